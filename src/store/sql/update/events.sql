-- store::update::update_events
insert into events (tenant_id, session_id, seq, epoch, step, attempt, kind, size, payload)
select r.tenant_id, r.session_id, r.next_seq - cardinality(:kinds::text[]) + u.n - 1, r.epoch, 0, 0, u.kind,
       case when u.kind = 'model_switched'
            then (select c.messages from session_context c where c.tenant_id = :tenant and c.session_id = :session) end, u.payload
  from session_run r, unnest(:kinds::text[], :payloads::bytea[]) with ordinality as u(kind, payload, n)
 where r.tenant_id = :tenant and r.session_id = :session and {accepted}
