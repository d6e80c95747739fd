-- store::take::take_compaction: where an idle session takes messages, a compaction that is being made is one of this version of the
-- context too: what was taken comes after all that it stands for.
update compactions c
   set context_version = r.context_version
  from session_run r
 where r.tenant_id = :tenant and r.session_id = :session and r.state = 0
   and c.tenant_id = :tenant and c.session_id = :session and c.status = 1 and c.context_version = r.context_version - 1 and {accepted}
