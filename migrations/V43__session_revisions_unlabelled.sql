-- The worker that fills in labels and titles finds the revisions that lack them: those of a program before this one, and in the long run none.
-- The program before it neither uses nor misses it.
-- oldest-program: 13
-- no-transaction
create index concurrently if not exists session_revisions_unlabelled on session_revisions (tenant_id, session_id, revision) where labels is null;
