-- store::step::begin_step: the fence of an owner that goes on to its next step. The configuration that the step is made for is written
-- with it, so it fails when another one came in force meanwhile: the owner looks again, having lost nothing.
update session_run r
   set op = r.op + 1,
       written_by = :owner, next_seq = r.next_seq + 1, step = r.step + 1, attempt = 1, takeovers = 0,
       lease_until = greatest(r.lease_until, now() + make_interval(secs => :lease))
 where r.tenant_id = :tenant and r.session_id = :session
   and {fence} and (r.revision = :revision or not :binding::boolean)
returning {accept}, r.state, r.cancel, r.next_seq
