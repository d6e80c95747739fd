-- store::message::newest: the newest messages of the live transcript, each with its variable parts; what the others take up is in its
-- overhead. `bare_reasoning`: size in bytes of reasoning with nothing attached.
{live}
select m.place, m.seq, m.message_id, m.turn_id, m.step, m.role, m.pinned, m.is_summary, m.created_at, m.voided_at_seq,
       m.tokens + coalesce((select sum(x.tokens) from parts x
                             where x.tenant_id = :tenant and x.session_id = :session and x.message_id = m.message_id
                               and not (x.kind in ('media', 'media_url', 'reasoning', 'provider_item') or (x.kind = 'tool_result' and x.rest is not null))),
                           0)::int as overhead,
       case when m.role = 3 then m.info else '' end as info, null::text as compacted_by,
       p.idx, p.kind, p.call_id, p.tool_name, p.outcome, p.body, p.rest, p.category, p.estimator, p.attached, p.tokens, p.pruned_at_seq,
       coalesce(p.original_tokens, p.tokens) as original_tokens, null::timestamptz as pruned_at
  from {live_before} m
  left join lateral (
        {media_part} and x.message_id = m.message_id
        union all
        {reasoning_part} and x.message_id = m.message_id
        union all
        {item_part} and x.message_id = m.message_id) p on true
 order by m.place desc, m.seq, p.idx
