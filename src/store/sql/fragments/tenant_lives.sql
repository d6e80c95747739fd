not exists (select from tenant_deletions d
             where d.tenant_id = :tenant and (d.done_at is null or d.done_at > :known_at::timestamptz))
