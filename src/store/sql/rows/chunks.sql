-- store::chunk::drop_written
delete from partial_chunks p
 where p.tenant_id = :tenant and p.session_id = :session and {accepted} and p.epoch <= :epoch
