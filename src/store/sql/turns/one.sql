-- store::turn_read::turn
select {turn_columns}, s.tools
  from turns t
  join session_run r on r.tenant_id = :tenant and r.session_id = :session and r.state <> 3
  left join {made_for}
 where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = :turn
