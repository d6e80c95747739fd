(r.state = 2 or r.lease_until < now())
