-- ListSessions by metadata. The hashes name the tenant too, so that no tenant's search reads what is another's. The program before it
-- neither uses nor misses it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists session_revisions_labels on session_revisions using gin (labels);
