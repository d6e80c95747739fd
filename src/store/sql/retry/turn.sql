-- store::turn::retry_turn
update turns t
   set {turn_spent}
  from {head} r
 where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = r.turn_id
