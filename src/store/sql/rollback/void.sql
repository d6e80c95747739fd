-- store::rollback::void
with run as (
  select r.turn_id, t.first_seq, r.next_seq - 1 as seq, r.epoch
    from session_run r join turns t on t.tenant_id = :tenant and t.session_id = :session and t.turn_id = r.turn_id and t.state = 4
   where r.tenant_id = :tenant and r.session_id = :session and r.epoch = :epoch and r.op = :op::bigint + 1 and r.state = 0
     and r.written_by = :owner and r.turn_id = :turn and {accepted}),
back as (
  select c.compaction_id, row_number() over (order by c.active_from_seq desc) as k
    from run join compactions c on c.tenant_id = :tenant and c.session_id = :session and c.status = 2 and c.to_seq >= run.first_seq),
revert as (
  update compactions c set status = 4, reverted_at_seq = run.seq
    from run, back where c.tenant_id = :tenant and c.session_id = :session and c.compaction_id = back.compaction_id),
write_reverted as (
  insert into events (tenant_id, session_id, seq, epoch, step, attempt, kind, refs, payload)
  select :tenant, :session, run.seq + back.k, run.epoch, 0, 0, 'compaction_reverted', array[back.compaction_id], ''::bytea from run, back),
grow as (
  update session_run r set next_seq = r.next_seq + (select count(*) from back)
    from run where r.tenant_id = :tenant and r.session_id = :session)
update messages m set voided_at_seq = run.seq
  from run
 where m.tenant_id = :tenant and m.session_id = :session and m.seq between run.first_seq and run.seq and m.turn_id = run.turn_id
   and m.voided_at_seq is null
