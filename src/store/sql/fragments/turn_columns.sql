t.turn_id, t.state, r.state as run_state, t.request_id, t.request, t.started_at, t.ended_at, t.first_seq,
       t.last_seq, t.step_count, t.final_message, t.calls, t.input_tokens, t.output_tokens, t.reasoning_tokens,
       t.cache_read_tokens, t.cache_write_tokens, t.outcome, v.revision, v.config,
       extract(epoch from coalesce(t.ended_at, now()) - t.started_at)::float8 as elapsed,
       case when t.state = 1 then r.step else t.step_count end as steps_begun,
       coalesce(t.state = 1 and e.at >= r.turn_deadline, false) as late
