-- store::prune::cleared_by: `pruned_at` is the seq of the prune
select r.context_version,
       exists (select from events e where e.tenant_id = :tenant and e.session_id = :session and e.seq = :pruned_at and e.kind = 'context_pruned') as known,
       p.message_id, p.idx, p.call_id, p.original_tokens - p.tokens as saved
  from session_run r
  left join lateral (
    select p.* from parts p
      join messages m on m.tenant_id = :tenant and m.session_id = :session and m.message_id = p.message_id
     where p.tenant_id = :tenant and p.session_id = :session and p.pruned_at_seq = :pruned_at and m.voided_at_seq is null
       and not exists (
         select from {in_force} k
          where m.seq between k.from_seq and k.to_seq and (not m.pinned or k.hides_pinned) and m.seq <> all (k.kept))
     order by m.seq, p.idx) p on true
 where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3
