-- What ListSessions finds sessions by without reading every configuration: a hash of the tenant and each metadata entry, and the
-- beginning of the entry "title". Written with each revision. The program before this one leaves both null; a worker of this one fills them
-- in, in small batches, and until then such a session is not found by metadata or title.
-- oldest-program: 13

alter table session_revisions
  add column labels bytea[],             -- of the metadata, 16 bytes each; null: not worked out yet
  add column title  text collate "C";    -- at most 128 characters; null: none
