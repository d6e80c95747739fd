-- store::update::update: after lock_run. A new revision of the configuration, in force at once for whatever is begun from now on. Whoever
-- owns a turn is not disturbed. Refused where the session is deleted, changed since it was read, or the request is known. The anchor of the size stays: it says for which model it is, and how large it took the system prompt and tools to be.
update session_run r
   set revision = r.revision + 1, next_seq = r.next_seq + cardinality(:kinds::text[])
 where r.tenant_id = :tenant and r.session_id = :session
   and r.state <> 3 and r.revision = :revision and {request_is_new}
returning {accept}, r.revision, r.next_seq
