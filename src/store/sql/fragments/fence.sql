r.epoch = :epoch and r.op = :op and r.state = 1 and r.owner = :owner and r.turn_id = :turn
