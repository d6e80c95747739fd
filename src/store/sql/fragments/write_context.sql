, write_context as (
  update session_context c
     set {context_shifted}
    from f, shift s
   where c.tenant_id = :tenant and c.session_id = :session)
