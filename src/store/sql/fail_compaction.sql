-- store::compaction::fail: after lock_run. The running compaction is given up; the context stays as it is.
-- `compaction` null: the one whose lease passed; `info` null: as it is; `accounts` are payloads of usage_recorded.
with k as (
  select c.compaction_id
    from compactions c
   where c.tenant_id = :tenant and c.session_id = :session and c.status = 1
     and (c.compaction_id = :compaction or (:compaction::text is null and c.lease_until < now()))),
f as (
  update session_run r
     set next_seq = r.next_seq + 1 + cardinality(:accounts::bytea[])
    from k where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3
  returning r.epoch, r.next_seq, case when r.state in (1, 2) then r.turn_id end as turn_id, r.context_version),
end_compaction as (
  update compactions c set status = 3, lease_until = null, ended_at = now(), info = coalesce(:info::bytea, c.info)
    from f, k where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = k.compaction_id),
write_event as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, payload)
  select :tenant, :session, f.next_seq - 1 - cardinality(:accounts::bytea[]), f.epoch, f.turn_id, 0, 0, 'compaction_failed', array[k.compaction_id], :payload::bytea
    from f, k
  union all
  select :tenant, :session, f.next_seq - 1 - cardinality(:accounts::bytea[]) + u.n, f.epoch, f.turn_id, 0, 0, 'usage_recorded', '{}', u.payload
    from f, unnest(:accounts::bytea[]) with ordinality as u(payload, n))
select f.context_version, f.next_seq from f
