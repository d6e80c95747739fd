-- store::commit::calm: messages that start no turn any more
update queue q
   set starts_turn = false
 where q.tenant_id = :tenant and q.session_id = :session and q.message_id = any(:calmed::text[]) and {accepted}
