-- store::commit::new_session
insert into sessions (tenant_id, session_id, forked_from, forked_at_seq)
select :tenant, :session, :source, :at::bigint
 where {accepted}
