-- store::queue::look
select r.epoch, r.op, r.next_seq, r.cancel, r.state, r.open_calls, r.turn_id, {queued_columns}, row_number() over (order by q.pos)::int as position
      from session_run r
      left join queue q on q.tenant_id = :tenant and q.session_id = :session and q.status = 0 and q.delivery <> 2
     where r.tenant_id = :tenant and r.session_id = :session order by q.pos
