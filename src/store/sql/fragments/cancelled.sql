cancel = greatest(r.cancel, :mode::smallint), cancel_cause = case when r.cancel = 0 then :cause::smallint else r.cancel_cause end,
       cancel_reason = case when r.cancel = 0 then :reason else r.cancel_reason end,
       epoch = r.epoch + case when {ownerless} then 1 else 0 end,
       owner = case when {ownerless} then :owner else r.owner end,
       lease_until = case when {ownerless} then now() + make_interval(secs => :lease) else r.lease_until end,
       state = 1
