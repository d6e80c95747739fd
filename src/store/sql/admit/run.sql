-- store::admission::admit: IDLE -> RUN for an existing session, with its input and first events. Refused where the
-- session is busy, the request is a repeated one, or the configuration changed since it was read. A turn that goes on from the transcript
-- (after lock_run) needs that its last word is not the model's, or that a message waits.
-- Where messages wait, the rows have no step_started: the first step begins when these are taken, with their size.
update session_run r
   set {begun}
  from {opening} n
 where r.tenant_id = :tenant and r.session_id = :session
   and r.state = 0 and r.open_calls = 0 and r.revision = :revision and {request_is_new}
   and (not :continues::boolean
        or (select m.role from messages m
             where m.tenant_id = :tenant and m.session_id = :session and m.voided_at_seq is null and not m.is_summary
             order by m.seq desc limit 1) <> 3
        or exists (select from queue q where q.tenant_id = :tenant and q.session_id = :session and q.status = 0))
returning {accept}, {session_columns}
