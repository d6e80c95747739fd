-- What the turn spent that the event `e` ends: as its row says, since the owner that wrote the event may have seen less.
case when e.kind in ('turn_completed', 'turn_cancelled', 'turn_failed')
     then (select {turn_totals}
             from turns t where t.tenant_id = :tenant and t.session_id = :session and t.turn_id = e.turn_id) end as totals
