-- store::turn::unstart: after an end that is no completion only some messages start a turn of their own
update queue q
   set starts_turn = false
 where q.tenant_id = :tenant and q.session_id = :session and {accepted} and q.status = 0 and q.starts_turn and not q.from_execute and q.delivery <> 3
