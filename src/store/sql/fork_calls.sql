-- store::fork::copy_calls: the next calls of a fork that is copied in batches. All are closed: the transcript is.
-- $3 the seq $4 new session $5 claim $6 lease (s) $7 copied up to this call $8 most calls
with claim as (
  update session_run r set lease_until = clock_timestamp() + make_interval(secs => $6)
   where r.tenant_id = $1 and r.session_id = $4 and r.state = 3 and r.turn_id = $5 and r.lease_until > clock_timestamp()
  returning 1),
batch as materialized (
  select c.* from claim, tool_calls c
   where c.tenant_id = $1 and c.session_id = $2 and c.call_id > $7 order by c.call_id limit $8),
write_calls as (
  insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id, ord,
                          timeout, requested_at, deadline, edited_arguments, closed_at, answer_hash)
  select $1, $4, c.call_id, c.turn_id, c.step, c.status, c.tool_name, c.message_id, c.part_idx, c.result_message_id, c.ord, c.timeout,
         c.requested_at, c.deadline, c.edited_arguments, c.closed_at, c.answer_hash
    from batch c
    join lateral (select m.seq from messages m
                   where m.tenant_id = $1 and m.session_id = $2 and m.message_id = c.message_id offset 0) m on m.seq <= $3
   where c.status >= 3)
select (select count(*) from claim) as claims, (select max(b.call_id) from batch b) as last
