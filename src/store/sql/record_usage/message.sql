-- store::usage::record_message: what is to be kept of the call in the message that it wrote
update messages m
   set info = :info::bytea
 where m.tenant_id = :tenant and m.session_id = :session and {accepted} and m.message_id = :message
