-- ListSessions by the beginning of a title. The program before it neither uses nor misses it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists session_revisions_title on session_revisions (tenant_id, title) where title is not null;
