-- store::sweep::sweep_tool_sets: the next ones after a key
select t.tenant_id, t.toolset_id, t.unused_since is not null as marked, coalesce(t.unused_since < now() - make_interval(secs => :age), false) as old,
       v.used is not null as used
  from (select * from toolsets t where (t.tenant_id, t.toolset_id) > (:tenant, :tool_set) order by t.tenant_id, t.toolset_id limit :most) t
  left join lateral (select true as used from session_revisions v
                      where v.tenant_id = t.tenant_id and v.toolset_id = t.toolset_id limit 1) v on true
 order by t.tenant_id, t.toolset_id
