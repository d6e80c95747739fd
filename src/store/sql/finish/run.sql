-- store::turn::finish: the fence. The turn ends only if
-- no message waits for it and no cancel was requested. What follows goes by the row that this leaves.
update session_run r
   set op = r.op + 1,
       written_by = :owner, ctx_tokens = r.ctx_tokens + n.delta, takeovers = 0,
       {measured},
       next_seq = r.next_seq + cardinality(:kinds::text[]) + case when w.more or r.cancel <> 0 then 0 else 1 end,
       state = case when w.more or r.cancel <> 0 then 1 else 0 end,
       owner = case when w.more or r.cancel <> 0 then r.owner end,
       lease_until = case when w.more or r.cancel <> 0 then greatest(r.lease_until, now() + make_interval(secs => :lease))
                          else '-infinity' end
  from (select {added} as delta) n, (select {more_waits} as more) w
 where r.tenant_id = :tenant and r.session_id = :session
   and {fence} and r.open_calls = 0
returning {accept}, r.state, r.cancel, r.next_seq
