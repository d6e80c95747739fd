(:request_id::text is null
       or not exists (select from idempotency i
                       where i.tenant_id = :tenant and i.session_id = :session and i.request_id = :request_id))
