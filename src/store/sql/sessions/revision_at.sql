-- store::session::revision_at: each revision has one event
select r.revision - (select count(*) from events e
                      where e.tenant_id = :tenant and e.session_id = :session and e.seq > :at and e.kind = 'session_updated') as revision
  from session_run r where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3
