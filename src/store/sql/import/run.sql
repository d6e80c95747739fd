-- store::import::import: a host's own messages after an idle session's transcript, if it is as it was looked at. Fence and turn are untouched. What is only added at the end leaves the anchor of the size true.
update session_run r
   set next_seq = r.next_seq + cardinality(:kinds::text[]), context_version = r.context_version + 1, open_calls = :open_calls::int,
       ctx_tokens = r.ctx_tokens + :shift_overhead::bigint + (select sum(t) from unnest((:shift_tokens::bigint[])[1:8]) t),
       anchor_version = r.anchor_version + case when r.anchor_version = r.context_version then 1 else 0 end
 where r.tenant_id = :tenant and r.session_id = :session
   and r.state = 0 and r.context_version = :context and r.epoch = :epoch and r.op = :op and {request_is_new}
returning {accept}, r.next_seq
