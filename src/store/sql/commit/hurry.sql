-- store::commit::hurry: messages that waited for the turn before to end
update queue q
   set delivery = :asap::smallint
 where q.tenant_id = :tenant and q.session_id = :session and q.message_id = any(:hurried::text[]) and {accepted}
