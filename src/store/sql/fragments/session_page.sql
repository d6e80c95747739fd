-- After `page`: its sessions as far as their configurations fit into `bytes`, but at least one.
fits as (
  select p.*, sum(octet_length(v.config)) over w as bytes, row_number() over w as n, count(*) over () as page_rows
    from page p
    join session_run r on r.tenant_id = :tenant and r.session_id = p.session_id and r.state <> 3
    join session_revisions v on v.tenant_id = :tenant and v.session_id = p.session_id and v.revision = r.revision
  window w as (order by p.updated_at desc, p.session_id desc))
select s.session_id, s.created_at, s.forked_from, s.forked_at_seq, s.events_from, f.updated_at, r.state, r.turn_id, {holder}, r.next_seq,
       r.revision, {counter_columns}, r.open_calls, v.config, ''::bytea as tools, 0 as tools_tokens, f.page_rows,
       {anchor_columns},
       {model_dependent},
       (select count(*) from queue q where q.tenant_id = :tenant and q.session_id = s.session_id and q.status = 0)::int as queued,
       k.compactions, k.compacted_at, k.compacting
  from fits f
  join sessions s on s.tenant_id = :tenant and s.session_id = f.session_id
  join session_run r on r.tenant_id = :tenant and r.session_id = f.session_id
  join session_revisions v on v.tenant_id = :tenant and v.session_id = f.session_id and v.revision = r.revision
  cross join {compactions_known} k
 where f.bytes <= :bytes or f.n = 1
 order by f.updated_at desc, f.session_id desc
