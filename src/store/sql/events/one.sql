-- store::event::event
select e.seq, e.turn_id, e.step, e.attempt, e.at, e.kind, e.refs, e.size, e.payload, {event_totals} from events e where e.tenant_id = :tenant and e.session_id = :session and e.seq = :seq
