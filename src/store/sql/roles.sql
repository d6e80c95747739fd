-- store::migrate::roles: as whom statements run under row security, unless the roles are there already. They belong to the server, not to a
-- database.
do $$
declare
  name text;
begin
  foreach name in array array['contextd_tenant', 'contextd_worker'] loop
    if to_regrole(name) is null then
      begin
        execute format('create role %I nologin', name);
      exception when duplicate_object or unique_violation then null; -- created concurrently for another database
      end;
    end if;
    if not pg_has_role(current_user, name, 'member') then
      execute format('grant %I to current_user', name);
    end if;
  end loop;
end $$
