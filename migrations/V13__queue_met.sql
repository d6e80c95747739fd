-- What a message met that is just being queued, told by the statement that queues it: one round trip and no transaction around it. A
-- statement sees what was there when it began, which is before it has the gate's lock: a turn that it saw may have ended since, without
-- the message. What a function looks up is as new as its call, and this one is called when the row is written, behind the lock. The
-- program before it asks with a second statement, and goes on doing so.

create function queue_met(in_tenant text, in_session text, in_pos bigint)
  returns table (state smallint, turn_id text, "position" int)
  language plpgsql volatile rows 1 as $$
#variable_conflict use_column
begin
  return query
    select r.state, r.turn_id,
           (select count(*) from queue q
             where q.tenant_id = in_tenant and q.session_id = in_session and q.status = 0 and q.pos <= in_pos)::int
      from session_run r
     where r.tenant_id = in_tenant and r.session_id = in_session and r.state <> 3;
end
$$;
