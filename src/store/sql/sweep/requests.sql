-- store::sweep::sweep_requests
delete from idempotency where ctid = any(array(
  select i.ctid from idempotency i where i.at < now() - make_interval(secs => :age)
   order by i.at limit :most for update skip locked))
returning 1
