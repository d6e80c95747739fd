-- store::lease::takeover: compare-and-set on the epoch that was seen. A hand-off (owner null) is no failed attempt; a waiting turn
-- whose time is up is no recovery at all.
with seen as (
  select r.state, r.owner from session_run r where r.tenant_id = :tenant and r.session_id = :session and r.epoch = :epoch),
f as (
  update session_run r
     set owner = :owner, epoch = r.epoch + 1, lease_until = now() + make_interval(secs => :lease), state = 1,
         next_seq = r.next_seq + case when r.state = 1 then 1 else 0 end,
         takeovers = r.takeovers + case when r.state = 1 and r.owner is not null then 1 else 0 end,
         attempt = r.attempt + case when r.state = 1 then 1 else 0 end
    from seen
   where r.tenant_id = :tenant and r.session_id = :session and r.epoch = :epoch
     and r.state = seen.state and r.owner is not distinct from seen.owner
     and {is_due}
  returning r.epoch, r.op, r.next_seq, r.turn_id, r.step, r.attempt, r.takeovers, seen.state as was, seen.owner as before),
write_events as (
  insert into events (tenant_id, session_id, seq, epoch, turn_id, step, attempt, kind, refs, size, payload)
  select :tenant, :session, f.next_seq - 1, f.epoch, f.turn_id, f.step, f.attempt, 'turn_recovered',
         array[case when f.before is null then 'handed_over' else 'lease_expired' end], f.takeovers, ''
    from f where f.was = 1)
select f.epoch, f.op, f.next_seq, f.turn_id from f
