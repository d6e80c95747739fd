-- What is known of the compactions of the session `s`, without a look at those that failed.
lateral (
  select count(*)::int as compactions, max(c.ended_at) as compacted_at,
         exists (select from compactions n where n.tenant_id = :tenant and n.session_id = s.session_id and n.status = 1) as compacting
    from compactions c where c.tenant_id = :tenant and c.session_id = s.session_id and c.status = 2)
