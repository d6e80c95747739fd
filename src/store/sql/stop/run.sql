-- store::turn::stop: the fence of every end that does not depend on the queue, while holding the gate, after lock_run: it closes the
-- calls that are open, each with a synthetic result, and with them the batch. They are open until the last but few of the statements.
update session_run r
   set op = r.op + 1,
       {measured},
       written_by = :owner, state = 0, owner = null, lease_until = '-infinity', open_calls = 0, takeovers = 0,
       next_seq = r.next_seq + cardinality(:kinds::text[]) + o.n + o.batch + 1,
       ctx_tokens = r.ctx_tokens + {added} + o.n * :closed_tokens::int + o.batch * :closed_overhead::int
  from {closing} o
 where r.tenant_id = :tenant and r.session_id = :session
   and {fence}
returning {accept}, r.state, r.cancel, r.next_seq
