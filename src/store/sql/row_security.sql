-- store::migrate::protect: each table that says whose its rows are shows the role of tenants only those of the tenant that the
-- transaction names, and the role of the service's own work all rows. Existing policies are not changed, so that no
-- lock is taken.
do $$
declare
  of_tenant constant text := 'tenant_id = current_setting(''contextd.tenant'', true)';
  part record;
begin
  for part in select unnest(array['contextd_tenant', 'contextd_worker']) as name loop
    execute format('grant usage on schema %I to %I', current_schema(), part.name);
    execute format('grant select, insert, update, delete on all tables in schema %I to %I', current_schema(), part.name);
    execute format('grant usage on all sequences in schema %I to %I', current_schema(), part.name);
    execute format('revoke insert, update, delete on refinery_schema_history from %I', part.name);
  end loop;
  execute format('revoke create on schema %I from public', current_schema());

  for part in
    select t.oid::regclass as name, t.relrowsecurity as is_on,
           exists (select from pg_policy p where p.polrelid = t.oid and p.polname = 'of_tenant') as has_tenant,
           exists (select from pg_policy p where p.polrelid = t.oid and p.polname = 'of_worker') as has_worker
      from pg_class t join pg_attribute a on a.attrelid = t.oid
     where t.relnamespace = current_schema()::regnamespace and t.relkind in ('r', 'p') and a.attname = 'tenant_id' and not a.attisdropped
  loop
    if not part.has_tenant then
      execute format('create policy of_tenant on %s to contextd_tenant using (%s) with check (%s)', part.name, of_tenant, of_tenant);
    end if;
    if not part.has_worker then
      execute format('create policy of_worker on %s to contextd_worker using (true) with check (true)', part.name);
    end if;
    if not part.is_on then
      execute format('alter table %s enable row level security', part.name);
    end if;
  end loop;
end $$
