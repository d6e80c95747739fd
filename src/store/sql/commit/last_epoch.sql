-- store::commit::last_epoch: how far the epoch got, under a key that no client can send. A session that takes the id later begins after it, so
-- that the fence of an owner of this one is never in force again.
insert into idempotency as i (tenant_id, session_id, request_id, req_hash, result)
select :tenant, :session, '', '', (:new_epoch::bigint)::text
 where {accepted}
on conflict (tenant_id, session_id, request_id) do update set result = excluded.result, at = now()
