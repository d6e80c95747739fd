-- store::commit::new_run: nothing where the session exists, a deleted one has its id, the epoch of a deleted one got further than was seen,
-- the request is known, or the tenant is no more. Only times are the database's.
insert into session_run as r (tenant_id, session_id, version, state, epoch, op, owner, turn_id, step, attempt, next_seq, context_version,
                              ctx_messages, ctx_overhead, ctx_tokens, ctx_parts, revision, turn_deadline, lease_until)
select :tenant, :session, :new_version::bigint, :state::smallint, :new_epoch::bigint, :new_op::bigint, :new_owner, :new_turn, :step::int, :attempt::int,
       :next_seq::bigint, :context_version::bigint, :ctx_messages::int, :ctx_overhead::bigint, :ctx_tokens::bigint[], :ctx_parts::int[], :revision::bigint,
       now() + make_interval(secs => :turn_ends_within::float8), coalesce(now() + make_interval(secs => :lease::float8), now())
 where {tenant_lives}
   and :epoch::bigint = coalesce((select i.result::bigint from idempotency i
                                   where i.tenant_id = :tenant and i.session_id = :session and i.request_id = ''), 0)
   and not exists (select from idempotency i where i.tenant_id = :tenant and i.session_id = :session and i.request_id = :request_id)
on conflict do nothing
returning {accept}, r.tool_deadline, r.turn_deadline, now() as written_at
