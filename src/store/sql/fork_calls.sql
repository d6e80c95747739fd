-- store::fork::copy_calls: the next calls of a fork that is copied in batches. All are closed: the transcript is.
with source as (
  select 1 from sessions s where s.tenant_id = :tenant and s.session_id = :session and s.created_at = :source_created),
claim as (
  update session_run r set lease_until = clock_timestamp() + make_interval(secs => :lease)
    from source
   where r.tenant_id = :tenant and r.session_id = :new_session and r.state = 3 and r.turn_id = :claim and r.lease_until > clock_timestamp()
  returning 1),
batch as materialized (
  select c.* from claim, tool_calls c
   where c.tenant_id = :tenant and c.session_id = :session and c.call_id > :after order by c.call_id limit :most),
write_calls as (
  insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id, ord,
                          timeout, requested_at, deadline, edited_arguments, closed_at, answer_hash)
  select :tenant, :new_session, c.call_id, c.turn_id, c.step, c.status, c.tool_name, c.message_id, c.part_idx, c.result_message_id, c.ord, c.timeout,
         c.requested_at, c.deadline, c.edited_arguments, c.closed_at, c.answer_hash
    from batch c
    join lateral (select m.seq from messages m
                   where m.tenant_id = :tenant and m.session_id = :session and m.message_id = c.message_id offset 0) m on m.seq <= :at
   where c.status >= 3)
select (select count(*) from source) as sources, (select count(*) from claim) as claims, (select max(b.call_id) from batch b) as last
