-- store::commit::request: stores what the request with this key has led to, if the session still has the version that was read. Its row stays
-- locked: its own statement, which follows, is refused only where the key is another request's, or is known and was not to be, and then
-- this writes nothing either.
insert into idempotency as i (tenant_id, session_id, request_id, req_hash, result)
select :tenant, :session, :request_id, :request_hash, :led
  from (select from session_run r where r.tenant_id = :tenant and r.session_id = :session and r.xmin::text = :version for no key update) seen
on conflict (tenant_id, session_id, request_id) do update set result = excluded.result where i.req_hash = excluded.req_hash and not :request_is_new::boolean
