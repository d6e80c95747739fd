-- store::admission::new_session: fails for its key where the session exists, and the transaction with it
insert into sessions (tenant_id, session_id) values (:tenant, :session)
