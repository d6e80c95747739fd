-- store::turn::retry: the owner repeats its step as the next attempt: what was shown of this one is void. Unlike an append it is no
-- progress: takeovers are not forgotten, or a call that kills its owner would be repeated for ever.
-- $27 to $35 as in append $36 lease (s) $37 owner $38 turn
with f as (
  update session_run r
     set op = r.op + 1, written_by = $37, next_seq = r.next_seq + cardinality($3::text[]), attempt = r.attempt + 1,
         lease_until = greatest(r.lease_until, now() + make_interval(secs => $36))
   where r.tenant_id = $1 and r.session_id = $2 and r.epoch = $27 and r.op = $28 and r.state = 1
     and r.owner = $37 and r.turn_id = $38
  returning r.epoch, r.op, r.next_seq, r.next_seq - cardinality($3::text[]) as base, r.turn_id, r.ctx_tokens, r.state, r.cancel),
write_turn as (
  update turns t
     set calls = t.calls + $30::bigint, input_tokens = t.input_tokens + $31::bigint,
         output_tokens = t.output_tokens + $32::bigint, reasoning_tokens = t.reasoning_tokens + $33::bigint,
         cache_read_tokens = t.cache_read_tokens + $34::bigint, cache_write_tokens = t.cache_write_tokens + $35::bigint
    from f where t.tenant_id = $1 and t.session_id = $2 and t.turn_id = f.turn_id)
