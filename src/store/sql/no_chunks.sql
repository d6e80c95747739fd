, drop_chunks as (
  delete from partial_chunks p using f where p.tenant_id = $1 and p.session_id = $2 and p.epoch <= f.epoch)
