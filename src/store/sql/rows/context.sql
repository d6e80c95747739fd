-- store::rows::context
update session_context c
   set {context_grown}
  from {grown} g
 where c.tenant_id = :tenant and c.session_id = :session and {accepted}
