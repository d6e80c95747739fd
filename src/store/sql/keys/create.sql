-- store::api_key::create_key: after next_version, for which creations wait for each other, and count in turn
insert into api_keys (tenant_id, key_id, hash, access, name, expires_at)
select :tenant, :key, :hash, :access, :name, now() + make_interval(secs => :ttl)
 where {tenant_lives}
   and (select count(*) from api_keys k
         where k.tenant_id = :tenant and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())) < :most::bigint
returning tenant_id, key_id, access, name, created_at, expires_at, revoked_at
