-- store::lease::beat
insert into replicas as p (replica_id, lease_until, gave_back)
values (:replica, now() + make_interval(secs => :lease), :gave_back)
on conflict (replica_id) do update
   set lease_until = greatest(p.lease_until, excluded.lease_until), gave_back = p.gave_back or excluded.gave_back, said_at = now()
