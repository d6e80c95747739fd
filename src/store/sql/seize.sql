-- store::delete::seize
update session_run r
   set epoch = r.epoch + 1, state = 1, owner = :owner, lease_until = now() + make_interval(secs => :lease), cancel = 1,
       cancel_cause = 4, cancel_reason = ''
 where r.tenant_id = :tenant and r.session_id = :session and r.state in (1, 2) and not (r.cancel <> 0 and r.cancel_cause = 4)
   and (:revision::bigint is null or r.revision = :revision)
returning 1
