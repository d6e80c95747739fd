-- store::commit::drop_partial: what was shown of a message is committed or void
delete from partial_chunks p
 where p.tenant_id = :tenant and p.session_id = :session and p.epoch <= :new_epoch and {accepted}
