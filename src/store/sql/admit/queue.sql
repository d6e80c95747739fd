-- store::admission::admit_waiting: messages that waited for the turn before to end are taken by this one
update queue q
   set delivery = 1
 where q.tenant_id = :tenant and q.session_id = :session and {accepted} and q.status = 0 and q.delivery = 2
