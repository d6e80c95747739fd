-- store::usage::record: what a call of the host's own used, in an idle session whose transcript is as it was looked at. Else `op`
-- becomes null, which fails.
update session_run r
   set op = case when r.state = 0 and r.context_version = :context and r.epoch = :epoch and r.op = :op and {request_is_new} then r.op end,
       next_seq = r.next_seq + 1,
       {measured}
 where r.tenant_id = :tenant and r.session_id = :session
returning r.next_seq
