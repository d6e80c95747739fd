((r.state = 1 and r.lease_until < now()) or (r.state = 2 and r.tool_deadline < now()))
