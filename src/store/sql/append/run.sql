-- store::turn::append: the fence of the owner's append. Others' appends never make it fail: next_seq is not compared. With calls left
-- open and no cancel the turn waits and the lease is released in the same statement; else the lease is renewed.
update session_run r
   set op = r.op + 1,
       written_by = :owner, next_seq = r.next_seq + cardinality(:kinds::text[]), ctx_tokens = r.ctx_tokens + n.delta, takeovers = 0,
       {measured},
       open_calls = r.open_calls + c.n,
       tool_deadline = case when c.n > 0 then least(now() + make_interval(secs => c.timeout), r.turn_deadline) else r.tool_deadline end,
       state = case when r.cancel = 0 and r.open_calls + c.n > 0 then 2 else 1 end,
       owner = case when r.cancel = 0 and r.open_calls + c.n > 0 then null else r.owner end,
       lease_until = case when r.cancel = 0 and r.open_calls + c.n > 0 then '-infinity'
                          else greatest(r.lease_until, now() + make_interval(secs => :lease)) end
  from (select {added} as delta) n,
       (select count(*) filter (where s < 3) as n, min(t) filter (where s < 3 and q is null) as timeout
          from unnest(:call_timeouts::float8[], :call_statuses::smallint[], :call_requests::bytea[]) as u(t, s, q)) c
 where r.tenant_id = :tenant and r.session_id = :session
   and {fence}
returning {accept}, r.state, r.cancel, r.next_seq
