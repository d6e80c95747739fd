-- store::lease::cancel: after lock_run. A live owner gets the flag; where the turn has no owner the canceller becomes its owner in the
-- same statement and stops it. A repeated request reaches the turn that it reached first, and no other.
update session_run r
   set {cancelled}
 where r.tenant_id = :tenant and r.session_id = :session and (:turn::text is null or r.turn_id = :turn) and r.state in (1, 2)
   and not exists (select from idempotency i
                    where i.tenant_id = :tenant and i.session_id = :session and i.request_id = :request_id
                      and (i.req_hash <> :request_hash or i.result <> r.turn_id))
returning r.epoch, r.op, r.owner, r.turn_id
