-- store::sweep::sweep_tool_sets (mark)
update toolsets t set unused_since = case when u.unused then now() end
  from unnest(:tenants::text[], :tool_sets::text[], :unused::boolean[]) as u(tenant, tool_set, unused)
 where t.tenant_id = u.tenant and t.toolset_id = u.tool_set

-- store::sweep::sweep_tool_sets (remove)
delete from toolsets t
 using unnest(:old_tenants::text[], :old_tool_sets::text[]) as u(tenant, tool_set)
 where t.tenant_id = u.tenant and t.toolset_id = u.tool_set and t.unused_since < now() - make_interval(secs => :age)
   and not exists (select from session_revisions v where v.tenant_id = t.tenant_id and v.toolset_id = t.toolset_id)
returning 1
