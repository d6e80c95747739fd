-- store::usage::record: after lock_run. What a call of the host's own used, in an idle session whose transcript is as it was looked at.
update session_run r
   set next_seq = r.next_seq + 1,
       {measured}
 where r.tenant_id = :tenant and r.session_id = :session
   and r.state = 0 and r.context_version = :context and r.epoch = :epoch and r.op = :op and {request_is_new}
returning {accept}, r.next_seq
