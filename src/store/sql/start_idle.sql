-- store::queue::start_idle: IDLE -> RUN for a message that waits and asks for it, in a statement of its own, while holding the gate's
-- key-share lock or lock_run. The turn begins without input and before its first step: that step begins when the message is taken, and
-- with it all that waited for the turn before to end. `follows`: only if what is before it in the transaction was accepted. 0 rows: it does not begin, and what stands in the same transaction is kept.
with f as (
  update session_run r
     set {begun}
    from {opening} n
   where r.tenant_id = :tenant and r.session_id = :session and r.state = 0 and r.open_calls = 0 and r.revision = :revision
     and (not :follows::boolean or {accepted})
     and exists (select from queue q
                  where q.tenant_id = :tenant and q.session_id = :session and q.message_id = :message and q.status = 0 and q.starts_turn)
  returning {session_columns}, r.next_seq - cardinality(:kinds::text[]) as base, {anchor_before} as anchor),
write_turn as (
  insert into turns (tenant_id, session_id, turn_id, request_id, request, model, trace, first_seq, anchor_before)
  select :tenant, :session, :turn, :request_id, :request::bytea, :model, :trace, f.base, f.anchor from f),
admit_waiting as (
  update queue q set delivery = 1
    from f where q.tenant_id = :tenant and q.session_id = :session and q.status = 0 and q.delivery = 2),
touch as (
  update session_activity a set updated_at = now() from f where a.tenant_id = :tenant and a.session_id = :session)
{write_rows}
, write_context as (
  update session_context c
     set {context_grown}
    from f, {grown} g
   where c.tenant_id = :tenant and c.session_id = :session)
select f.* from f
