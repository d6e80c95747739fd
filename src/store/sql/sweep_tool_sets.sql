-- store::sweep::sweep_tool_sets: after the last key
with seen as (
  select t.tenant_id, t.toolset_id, t.unused_since, v.used is not null as used
    from (select * from toolsets t where (t.tenant_id, t.toolset_id) > (:tenant, :tool_set) order by t.tenant_id, t.toolset_id limit :most) t
    left join lateral (select true as used from session_revisions v
                        where v.tenant_id = t.tenant_id and v.toolset_id = t.toolset_id limit 1) v on true),
marked as (
  update toolsets t set unused_since = case when not s.used then now() end
    from seen s
   where t.tenant_id = s.tenant_id and t.toolset_id = s.toolset_id and s.used = (s.unused_since is not null)),
gone as (
  delete from toolsets t using seen s
   where t.tenant_id = s.tenant_id and t.toolset_id = s.toolset_id and not s.used
     and s.unused_since < now() - make_interval(secs => :age)
  returning 1)
select s.tenant_id, s.toolset_id, (select count(*) from gone) as swept
  from seen s order by s.tenant_id desc, s.toolset_id desc limit 1
