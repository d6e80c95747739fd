-- What retention needs to know: how old the oldest kept event of a session is, how long an unused session is kept, and since when
-- no configuration refers to a tool set. Nullable columns without a default, and a constraint that is not checked against old rows, so
-- that no table is rewritten or read. The program before it writes none of the columns: its sessions are found by when they were created,
-- and a session that it creates or changes keeps the server's own time to live. The constraint stops it as it stops this one from
-- referring to a tool set that is being removed; the program before it answers INTERNAL then, in that moment, and this one tries again.
-- oldest-program: 13

alter table sessions
  add column events_from  bigint,        -- the oldest event that readers get; null: all are there
  add column events_since timestamptz;   -- the time of that event, or when to look at it again; null: created_at

alter table session_activity
  add column ttl interval,               -- the session is deleted when it was not used for so long; null: no limit of its own
  add constraint session_activity_ttl check (ttl > interval '0') not valid;

alter table toolsets
  add column unused_since timestamptz;   -- when a sweep first found that no configuration refers to it; null: one did

alter table session_revisions
  add constraint session_revisions_toolset foreign key (tenant_id, toolset_id) references toolsets not valid;
