-- store::admission::admit_new: the epoch begins after that of a deleted session which had this id
insert into session_run as r (tenant_id, session_id, state, owner, epoch, lease_until, turn_id, step, attempt, turn_deadline, next_seq,
                         ctx_tokens, revision)
select :tenant, :session, 1, :owner,
        1 + coalesce((select i.result::bigint from idempotency i
                       where i.tenant_id = :tenant and i.session_id = :session and i.request_id = ''), 0),
        now() + make_interval(secs => :lease), :turn, 1, 1, now() + make_interval(secs => :timeout),
        1 + cardinality(:kinds::text[]), {added},
        :revision::bigint
 where {accepted}
returning {session_columns}
