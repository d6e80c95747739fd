-- store::sweep::sweep_events (remove): a session that took the id since has young ones
delete from events e
 where e.tenant_id = :tenant and e.session_id = :session and e.seq = any(:gone::bigint[]) and e.at < now() - make_interval(secs => :age)

-- store::sweep::sweep_events (mark): unless another replica did it
update sessions s set events_from = :from, events_since = :until
 where s.tenant_id = :tenant and s.session_id = :session and s.events_from is not distinct from :was_from and coalesce(s.events_since, s.created_at) = :since
