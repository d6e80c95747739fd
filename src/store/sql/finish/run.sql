-- store::turn::finish: the fence. Where it is another one `op` becomes null, which fails, and the transaction with it. The turn ends only if
-- no message waits for it and no cancel was requested. What follows goes by the row that this leaves.
update session_run r
   set op = case when r.epoch = :epoch and r.op = :op and r.state = 1 and r.open_calls = 0 and r.owner = :owner and r.turn_id = :turn
                 then r.op + 1 end,
       written_by = :owner, ctx_tokens = r.ctx_tokens + n.delta, takeovers = 0,
       anchor_version = coalesce((:measured::bigint[])[1], r.anchor_version),
       anchor_input = coalesce((:measured::bigint[])[2]::int, r.anchor_input),
       anchor_output = coalesce((:measured::bigint[])[3]::int, r.anchor_output),
       anchor_tokens = coalesce((:measured::bigint[])[4], r.anchor_tokens),
       anchor_cached = coalesce((:measured::bigint[])[5]::int, r.anchor_cached),
       anchor_estimated = coalesce((:measured::bigint[])[6]::int, r.anchor_estimated),
       anchor_basis = coalesce((:measured::bigint[])[7]::smallint, r.anchor_basis),
       anchor_model = case when (:measured::bigint[]) is null then r.anchor_model else :model end,
       anchor_at = case when (:measured::bigint[]) is null then r.anchor_at else now() end,
       growth = case when r.anchor_model = :model and r.anchor_version = (:measured::bigint[])[1] and (:measured::bigint[])[2] >= r.anchor_input
                     then coalesce(0.7 * r.growth + 0.3 * ((:measured::bigint[])[2] - r.anchor_input), (:measured::bigint[])[2] - r.anchor_input)
                     else r.growth end,
       next_seq = r.next_seq + cardinality(:kinds::text[]) + case when w.more or r.cancel <> 0 then 0 else 1 end,
       state = case when w.more or r.cancel <> 0 then 1 else 0 end,
       owner = case when w.more or r.cancel <> 0 then r.owner end,
       lease_until = case when w.more or r.cancel <> 0 then greatest(r.lease_until, now() + make_interval(secs => :lease))
                          else '-infinity' end
  from (select (select coalesce(sum(t), 0) from unnest(:message_tokens::int[]) t) + (select coalesce(sum(t), 0) from unnest(:part_tokens::int[]) t) as delta) n,
       (select exists (select 1 from queue q
                        where q.tenant_id = :tenant and q.session_id = :session and q.status = 0 and q.delivery <> 2) as more) w
 where r.tenant_id = :tenant and r.session_id = :session
returning r.state, r.cancel, r.next_seq
