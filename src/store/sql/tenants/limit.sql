-- store::quota::set_tenant_limits
insert into tenant_limits (tenant_id, running_turns, requests_per_second, tokens_per_minute, stored_bytes)
select :tenant, :running_turns::bigint, :requests_per_second::bigint, :tokens_per_minute::bigint, :stored_bytes::bigint
 where {tenant_lives}
on conflict (tenant_id) do update
   set running_turns = excluded.running_turns, requests_per_second = excluded.requests_per_second,
       tokens_per_minute = excluded.tokens_per_minute, stored_bytes = excluded.stored_bytes, updated_at = now()
returning 1
