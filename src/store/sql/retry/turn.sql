-- store::turn::retry_turn
update turns t
   set {turn_spent},
       request = coalesce(:fallback_request::bytea, t.request), model = coalesce(:fallback_model::text, t.model)
  from {head} r
 where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = r.turn_id
