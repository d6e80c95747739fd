-- store::turn::retry: the fence of an owner that repeats its step as the next attempt: what was shown of this one is void. Unlike an
-- append it is no progress: takeovers are not forgotten, or a call that kills its owner would be repeated for ever.
update session_run r
   set op = r.op + 1,
       written_by = :owner, next_seq = r.next_seq + cardinality(:kinds::text[]), attempt = r.attempt + 1,
       lease_until = greatest(r.lease_until, now() + make_interval(secs => :lease))
 where r.tenant_id = :tenant and r.session_id = :session
   and {fence}
returning {accept}, r.state, r.cancel, r.next_seq
