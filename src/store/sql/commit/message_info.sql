-- store::commit::message_info: what is kept of a call that the host made
update messages m
   set info = :description::bytea
 where m.tenant_id = :tenant and m.session_id = :session and m.message_id = :described and {accepted}
