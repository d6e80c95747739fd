-- The schema. Every tenant-owned key starts with tenant_id, session-scoped ones go on with session_id, and no foreign key or
-- join crosses a tenant, so that a distributed PostgreSQL can shard by tenant or session. Marks are seqs; times are for display
-- and for leases. JSON is kept as text or inside encoded messages: order, duplicates and number forms survive.

-- The cold row.
create table sessions (
  tenant_id       text collate "C" not null,
  session_id      text collate "C" not null,
  created_at      timestamptz not null default now(),
  forked_from     text collate "C",
  forked_at_seq   bigint,
  events_from     bigint,        -- the oldest event that readers get; null: all are there
  events_since    timestamptz,   -- the time of that event, or when retention looks at it again; null: created_at
  primary key (tenant_id, session_id),
  check ((forked_from is null) = (forked_at_seq is null))
);
create index sessions_oldest_event on sessions (coalesce(events_since, created_at));

-- The hot row: what a session decides by, beside its queue. Only a turn that begins to wait for tools, or goes on, changes what an index
-- has: all other updates are HOT.
create table session_run (
  tenant_id       text collate "C" not null,
  session_id      text collate "C" not null,
  version         bigint not null default 0,           -- which write left it so: a random number
  state           smallint not null default 0 check (state between 0 and 3),  -- 0 IDLE, 1 RUN, 2 AWAITING_TOOLS, 3 DELETED
  epoch           bigint not null default 0,           -- fence: + 1 whenever the owner changes; never reset
  op              bigint not null default 0,           -- counts what owners wrote: nobody else raises it
  written_by      text collate "C",                    -- the replica that raised it last
  owner           text collate "C",
  lease_until     timestamptz not null default '-infinity',  -- from then on its replica keeps the turn, for as long as it has a heartbeat
  takeovers       smallint not null default 0,         -- failed owners since the last committed step
  cancel          smallint not null default 0 check (cancel between 0 and 2),  -- 0 none, 1 STOP, 2 ROLLBACK
  cancel_cause    smallint not null default 0,         -- 1 requested, 2 interrupted, 3 disconnected, 4 session deleted
  cancel_reason   text not null default '',
  turn_id         text collate "C",                    -- the live turn, or the last one
  step            int not null default 0,
  attempt         int not null default 0,
  open_calls      int not null default 0 check (open_calls >= 0),
  tool_deadline   timestamptz,                         -- the earliest thing a waiting turn must be woken for
  turn_deadline   timestamptz,
  next_seq        bigint not null default 1 check (next_seq >= 1),
  revision        bigint not null default 1,           -- the configuration in force: session_revisions
  context_version bigint not null default 0,
  ctx_messages    int not null default 0,              -- what the live transcript is made of: messages, their own tokens, and tokens
  ctx_overhead    bigint not null default 0,           -- and parts by category: 1 user, 2 assistant, 3 reasoning, 4 tool calls,
  ctx_tokens      bigint[] not null default '{0,0,0,0,0,0,0,0,0}' check (cardinality(ctx_tokens) = 9),  -- 5 tool results, 6 media,
  ctx_parts       int[] not null default '{0,0,0,0,0,0,0,0,0}' check (cardinality(ctx_parts) = 9),      -- 7 summary, 8 pinned, 9 pruned
  anchor_model    text,                                -- the last call that was measured: its model,
  anchor_input    int,                                 -- the reported prompt and answer,
  anchor_output   int,
  anchor_cached   int,                                 -- what of the prompt the provider's cache holds,
  anchor_at       timestamptz,                         -- when,
  anchor_version  bigint,                              -- the transcript that it describes,
  anchor_tokens   bigint,
  anchor_estimated int,                                -- and what was predicted for it
  anchor_basis    smallint check (anchor_basis between 1 and 4),  -- 1 actual, 2 calibrated, 3 tokenizer, 4 heuristic
  growth          double precision check (growth >= 0),           -- tokens from prompt to prompt, the last ones weighing most
  primary key (tenant_id, session_id),
  check (state = 1 or owner is null),
  check (state not in (1, 2) or turn_id is not null),
  check (state <> 2 or open_calls > 0)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
create index session_run_due on session_run (tool_deadline) where tool_deadline is not null;

-- The replicas, each with its heartbeat. A turn has no owner when its own lease is over and that of its replica too.
create table replicas (
  replica_id  text collate "C" primary key,
  lease_until timestamptz not null,
  gave_back   boolean not null default false,          -- turns, to whoever comes first; somebody is to look for them
  said_at     timestamptz not null default now()
);

-- Turns that are to be cancelled when nobody has read their events for a while, and until when somebody is known to read: written by
-- the owner, renewed by the replicas that have readers.
create table attendance (
  tenant_id   text collate "C" not null,
  session_id  text collate "C" not null,
  turn_id     text collate "C" not null,
  patience    interval not null,
  seen_until  timestamptz not null default now(),
  primary key (tenant_id, session_id)
);

-- When a session was last used, for lists: the last updated first. Touched when a turn starts or ends, not by its steps.
create table session_activity (
  tenant_id   text collate "C" not null,
  session_id  text collate "C" not null,
  updated_at  timestamptz not null default now(),
  ttl         interval check (ttl > interval '0'),     -- the session is deleted when it was not used for so long; null: no limit of its own
  primary key (tenant_id, session_id)
);
create index session_activity_recent on session_activity (tenant_id, updated_at desc, session_id desc);
create index session_activity_expiring on session_activity (((updated_at at time zone 'UTC') + ttl)) where ttl is not null;

-- Tool sets by content, with their size.
create table toolsets (
  tenant_id   text collate "C" not null,
  toolset_id  text collate "C" not null,
  tools       bytea not null,
  tokens      int not null,
  estimator   text not null,
  created_at  timestamptz not null default now(),
  unused_since timestamptz,                            -- when a sweep first found that no configuration refers to it; null: one did
  primary key (tenant_id, toolset_id)
);

-- Each version of a session's configuration.
create table session_revisions (
  tenant_id   text collate "C" not null,
  session_id  text collate "C" not null,
  revision    bigint not null,
  toolset_id  text collate "C" not null,
  config      bytea not null,
  labels      bytea[] not null default '{}',           -- hashes of the tenant and each metadata entry, 16 bytes each
  title       text collate "C",                        -- the first 128 characters of the entry "title"
  created_at  timestamptz not null default now(),
  primary key (tenant_id, session_id, revision),
  constraint session_revisions_toolset foreign key (tenant_id, toolset_id) references toolsets  -- so that none is removed while it is referred to
);
create index session_revisions_tool_set on session_revisions (tenant_id, toolset_id);
-- The hashes name the tenant too, so that no tenant's search reads what is another's.
create index session_revisions_labels on session_revisions using gin (labels);
create index session_revisions_title on session_revisions (tenant_id, title) where title is not null;

create table turns (
  tenant_id     text collate "C" not null,
  session_id    text collate "C" not null,
  turn_id       text collate "C" not null,
  state         smallint not null default 1 check (state in (1, 3, 4, 5)),  -- 1 live, 3 COMPLETED, 4 CANCELLED, 5 FAILED
  request_id    text collate "C",
  request       bytea not null,                        -- what it does differently from its session
  model         text not null,
  started_at    timestamptz not null default now(),
  ended_at      timestamptz,
  first_seq     bigint not null,
  last_seq      bigint,
  step_count    int not null default 0,
  final_message text collate "C",
  calls         bigint not null default 0,
  input_tokens  bigint not null default 0,
  output_tokens bigint not null default 0,
  reasoning_tokens   bigint not null default 0,
  cache_read_tokens  bigint not null default 0,
  cache_write_tokens bigint not null default 0,
  outcome       bytea,                                 -- how it ended and what came of it
  anchor_before jsonb,                                 -- the session's anchor when it began, with the version of the context that it described
  trace         text,                                  -- where in a trace it began (W3C traceparent, tracestate, baggage; in lines)
  primary key (tenant_id, session_id, turn_id),
  check ((state = 1) = (ended_at is null)),
  check ((state = 1) = (last_seq is null)),
  check ((state = 1) = (outcome is null))
);
create unique index turns_one_live on turns (tenant_id, session_id) where state = 1;
create index turns_by_seq on turns (tenant_id, session_id, first_seq desc);

-- The clients' log. Insert-only. What only the writing statement knew is a column; the rest is the encoded oneof member, with
-- messages and results referred to, not copied.
create table events (
  tenant_id   text collate "C" not null,
  session_id  text collate "C" not null,
  seq         bigint not null,
  epoch       bigint not null,
  turn_id     text collate "C",
  step        int not null,
  attempt     int not null,
  at          timestamptz not null default now(),
  kind        text not null,
  refs        text[] not null default '{}',
  size        bigint,
  payload     bytea not null,
  primary key (tenant_id, session_id, seq)
);

create table messages (
  tenant_id     text collate "C" not null,
  session_id    text collate "C" not null,
  seq           bigint not null,                       -- of the event that committed it
  message_id    text collate "C" not null,
  turn_id       text collate "C",
  step          int not null,
  role          smallint not null check (role between 1 and 4),  -- 1 system, 2 user, 3 assistant, 4 tool
  tokens        int not null,                          -- its own overhead; parts carry theirs
  pinned        boolean not null default false,
  is_summary    boolean not null default false,
  created_at    timestamptz not null default now(),
  info          bytea not null,                        -- labels, the model call behind it
  behind        bigint,                                -- of the first message of an append: the version of the transcript that it follows
  voided_at_seq bigint,
  primary key (tenant_id, session_id, seq),
  unique (tenant_id, session_id, message_id)
);

-- The parts of a message. Those of a tool message come one by one, before the message itself is committed.
create table parts (
  tenant_id       text collate "C" not null,
  session_id      text collate "C" not null,
  message_id      text collate "C" not null,
  idx             int not null,
  kind            text not null,
  call_id         text collate "C",
  tool_name       text,
  outcome         smallint,
  body            text not null,                       -- its words
  rest            bytea,                               -- everything else, encoded; null when there is nothing
  tokens          int not null,
  category        smallint not null,
  estimator       text not null,
  pruned_at_seq   bigint,
  original_tokens int,
  primary key (tenant_id, session_id, message_id, idx),
  check ((pruned_at_seq is null) = (original_tokens is null))
);
-- On these the size of a prompt depends beside the counters. They are found without reading the text of all others: media, and results that
-- are more than one text; reasoning; items of a provider's own.
create index parts_media on parts (tenant_id, session_id, message_id) where kind in ('media', 'media_url') or (kind = 'tool_result' and rest is not null);
create index parts_reasoning on parts (tenant_id, session_id, message_id) where kind = 'reasoning';
create index parts_items on parts (tenant_id, session_id, message_id) where kind = 'provider_item';

-- Prunes that were taken back.
create table past_prunes (
  tenant_id       text collate "C" not null,
  session_id      text collate "C" not null,
  message_id      text collate "C" not null,
  idx             int not null,
  pruned_at_seq   bigint not null,
  restored_at_seq bigint not null,
  tokens          int not null,                        -- of the placeholder
  primary key (tenant_id, session_id, message_id, idx, pruned_at_seq),
  check (restored_at_seq > pruned_at_seq)
);

create table tool_calls (
  tenant_id         text collate "C" not null,
  session_id        text collate "C" not null,
  call_id           text collate "C" not null,
  turn_id           text collate "C" not null,
  step              int not null,
  status            smallint not null check (status between 0 and 6),
      -- open: 0 requested, 1 waiting for its turn, 2 awaiting approval; closed: 3 answered, 4 timed out, 5 denied, 6 cancelled
  tool_name         text not null,
  message_id        text collate "C" not null,         -- the assistant message and part that made the call
  part_idx          int not null,
  result_message_id text collate "C" not null,         -- the tool message and part that answers it
  ord               int not null,
  timeout           interval not null,
  requested_at      timestamptz,
  deadline          timestamptz,
  request           bytea,                             -- the encoded tool_call_requested of a call that waits for its turn
  edited_arguments  text,
  closed_at         timestamptz,
  closed_by         text collate "C",                  -- the request_id that answered it
  answer_hash       text,
  executor          smallint not null default 1,       -- who runs the tool: 1 the host, 2 contextd on an MCP server
  requested_by      text,                              -- the commit that requested it: after a lost answer it tells which calls are to be begun
  primary key (tenant_id, session_id, call_id),
  check ((status >= 3) = (closed_at is not null)),
  check (status <> 0 or deadline is not null)
);
create index tool_calls_open on tool_calls (tenant_id, session_id, turn_id) where status < 3;

create table queue (
  tenant_id     text collate "C" not null,
  session_id    text collate "C" not null,
  message_id    text collate "C" not null,
  pos           bigint generated always as identity,
  status        smallint not null default 0 check (status between 0 and 4),
      -- 0 pending, 1 applied, 2 cancelled, 3 expired, 4 dropped
  delivery      smallint not null default 1 check (delivery between 1 and 3),  -- 1 ASAP, 2 WHEN_IDLE, 3 INTERRUPT
  starts_turn   boolean not null default false,
  from_execute  boolean not null default false,        -- an ExecuteTurn's input: keeps its start flag when a turn fails
  body          bytea not null,                        -- the encoded message
  request       bytea,                                 -- the turn request of an ExecuteTurn
  request_id    text collate "C",
  enqueued_at   timestamptz not null default now(),
  expires_at    timestamptz,
  ended_at      timestamptz,
  seq           bigint,                                -- of the event that ended it
  applied_to    text collate "C",                      -- the user message it went into
  drop_reason   smallint,
  primary key (tenant_id, session_id, message_id),
  check ((status = 0) = (seq is null)),
  check ((status = 0) = (ended_at is null)),
  check ((status = 1) = (applied_to is not null)),
  check ((status = 4) = (drop_reason is not null))
);
create index queue_pending on queue (tenant_id, session_id, pos) where status = 0;
create index queue_starting on queue (tenant_id, session_id) where status = 0 and starts_turn;
create index queue_expiring on queue (tenant_id, session_id, expires_at) where status = 0 and expires_at is not null;
create index queue_expired on queue (expires_at) where status = 0 and expires_at is not null;
create index queue_ended on queue (ended_at) where ended_at is not null;

-- One table for all RPCs; the row is written in the effect's transaction and kept for 7 days.
create table idempotency (
  tenant_id   text collate "C" not null,
  session_id  text collate "C" not null,
  request_id  text collate "C" not null,
  req_hash    text not null,
  result      text not null,
  at          timestamptz not null default now(),
  primary key (tenant_id, session_id, request_id)
);
create index idempotency_by_age on idempotency (at);

-- What stands for a stretch of the transcript. The newest applied one is in force; taking it back puts its predecessor in force.
create table compactions (
  tenant_id       text collate "C" not null,
  session_id      text collate "C" not null,
  compaction_id   text collate "C" not null,
  status          smallint not null check (status between 1 and 4),  -- 1 running, 2 applied, 3 failed, 4 reverted
  lease_until     timestamptz,                         -- while it runs; renewed here, not in the hot row
  context_version bigint not null,                     -- what it was made from
  from_seq        bigint,                              -- the first and last message it stands for
  to_seq          bigint,
  active_from_seq bigint,                              -- of compaction_completed
  reverted_at_seq bigint,                              -- of compaction_reverted
  predecessor     text collate "C",
  summary_message text collate "C",
  delta_messages  int,                                 -- what it changed in the counters; by category: 1 user, 2 assistant,
  delta_overhead  bigint,                              -- 3 reasoning, 4 tool calls, 5 tool results, 6 media, 7 summary,
  delta_tokens    bigint[],                            -- 8 pinned, 9 pruned
  delta_parts     int[],
  info            bytea not null,                      -- the encoded compaction
  kept            bigint[] not null default '{}',      -- messages in between that stay
  hides_pinned    boolean not null default false,      -- pinned messages that are not among `kept` are left out too
  begun_at_seq    bigint not null,                     -- of compaction_started
  created_at      timestamptz not null default now(),
  ended_at        timestamptz,
  primary key (tenant_id, session_id, compaction_id),
  check ((status = 1) = (lease_until is not null)),
  check ((status = 1) = (ended_at is null)),
  check ((status in (2, 4)) = (active_from_seq is not null)),
  check ((status = 4) = (reverted_at_seq is not null)),
  check (active_from_seq is null or (from_seq is not null and to_seq >= from_seq)),
  check (active_from_seq is null or (delta_messages is not null and delta_overhead is not null and cardinality(delta_tokens) = 9 and cardinality(delta_parts) = 9))
);
create unique index compactions_one_running on compactions (tenant_id, session_id) where status = 1;
create index compactions_in_order on compactions (tenant_id, session_id, begun_at_seq);
create index compactions_applied on compactions (tenant_id, session_id, active_from_seq desc) where status = 2;

-- The text of messages that are being written, insert-only, batched over all turns of a replica; gone at the commit.
create table partial_chunks (
  tenant_id   text collate "C" not null,
  session_id  text collate "C" not null,
  epoch       bigint not null,
  message_id  text collate "C" not null,
  n           int not null,
  at          timestamptz not null default now(),
  body        bytea not null,
  primary key (tenant_id, session_id, epoch, message_id, n)
);

-- Content by its SHA-256, in chunks that can be read by range.
create table blobs (
  tenant_id   text collate "C" not null,
  blob_id     text collate "C" not null,
  media_type  text not null,
  size_bytes  bigint not null check (size_bytes >= 0),
  created_at  timestamptz not null default now(),
  touched_at  timestamptz not null default now(),
  primary key (tenant_id, blob_id)
);
create table blob_chunks (
  tenant_id   text collate "C" not null,
  blob_id     text collate "C" not null,
  idx         int not null,
  bytes       bytea not null,
  primary key (tenant_id, blob_id, idx)
);
create table part_blobs (
  tenant_id   text collate "C" not null,
  session_id  text collate "C" not null,
  message_id  text collate "C" not null,
  idx         int not null,
  blob_id     text collate "C" not null,
  primary key (tenant_id, session_id, message_id, idx, blob_id),
  foreign key (tenant_id, blob_id) references blobs
);
create index part_blobs_blob on part_blobs (tenant_id, blob_id);

-- Everything ever spent by a session, by purpose and model.
create table usage_totals (
  tenant_id          text collate "C" not null,
  session_id         text collate "C" not null,
  purpose            smallint not null check (purpose in (1, 2)),  -- 1 turn, 2 compaction
  model              text not null,
  calls              bigint not null default 0,
  input_tokens       bigint not null default 0,
  output_tokens      bigint not null default 0,
  reasoning_tokens   bigint not null default 0,
  cache_read_tokens  bigint not null default 0,
  cache_write_tokens bigint not null default 0,
  primary key (tenant_id, session_id, purpose, model)
);

-- What calls teach about the size of prompts: reported over estimated tokens.
create table tenant_calibration (
    tenant_id  text             collate "C" not null,
    model      text             not null,
    ratio      double precision not null check (ratio between 0.5 and 2),
    calls      bigint           not null default 0,
    updated_at timestamptz      not null default now(),
    primary key (tenant_id, model)
);

-- API keys, as hashes of their secrets, and a number that grows with each change, by which replicas see that they have to read them again.
create table api_keys (
    tenant_id  text        collate "C" not null check (tenant_id ~ '^[a-z0-9._-]{1,64}$'),
    key_id     text        collate "C" not null,
    hash       bytea       not null check (octet_length(hash) = 32), -- SHA-256 of the whole key
    access     smallint    not null check (access between 1 and 4), -- read, write, admin, operator
    name       text        not null check (char_length(name) <= 200),
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    primary key (tenant_id, key_id)
);
create table api_keys_version (
    one     boolean primary key default true check (one),
    version bigint  not null
);
insert into api_keys_version (version) values (1);

-- What tenants may use where that differs from the server's configuration, a number that grows with each change of it, and what they
-- use, as replicas tell each other.
create table tenant_limits (
    tenant_id           text        collate "C" primary key check (tenant_id ~ '^[a-z0-9._-]{1,64}$'),
    running_turns       bigint      check (running_turns >= 0),
    requests_per_second bigint      check (requests_per_second >= 0),
    tokens_per_minute   bigint      check (tokens_per_minute >= 0),
    stored_bytes        bigint      check (stored_bytes >= 0),
    updated_at          timestamptz not null default now()
);
create table tenant_limits_version (
    one     boolean primary key default true check (one),
    version bigint  not null
);
insert into tenant_limits_version (version) values (1);
-- Written by each replica every few seconds while it runs turns of a tenant with a limit.
create table tenant_running (
    tenant_id  text        collate "C" not null,
    replica_id text        collate "C" not null,
    turns      bigint      not null,
    at         timestamptz not null default now(),
    reserved_seconds double precision not null default 0, -- what model calls that are under way are expected to cost
    primary key (tenant_id, replica_id)
);
-- tokens_due: when what was spent is paid for at the tenant's rate (generic cell rate algorithm).
create table tenant_use (
    tenant_id    text        collate "C" primary key,
    tokens_due   timestamptz not null default '-infinity',
    stored_bytes bigint      check (stored_bytes >= 0),
    measured_at  timestamptz not null default '-infinity',
    written_bytes bigint     not null default 0 -- since it was measured
);

-- Tenants that are being deleted, and those that were: when that was asked for and by whom, when it was done, and what was removed. What is
-- left of a tenant is its row here.
create table tenant_deletions (
    tenant_id    text        collate "C" not null check (tenant_id ~ '^[a-z0-9._-]{1,64}$'),
    asked_at     timestamptz not null default now(),
    asked_by     text        not null,                          -- the caller, as logs name it
    done_at      timestamptz,
    sessions     bigint      not null default 0,                -- removed so far
    blobs        bigint      not null default 0,
    blob_bytes   bigint      not null default 0,
    keys         bigint      not null default 0,
    worker       text        collate "C",                       -- the replica that removes
    worker_until timestamptz not null default '-infinity',
    primary key (tenant_id, asked_at)
);
create unique index tenant_deletions_going_on on tenant_deletions (tenant_id) where done_at is null;

-- Sessions are of very different length and the planner thinks of the average one: where a key names one row it may as well read
-- all rows of the session. Told that there are few sessions, it takes the whole key. (Set here, in force with the next ANALYZE.)
alter table session_revisions alter column session_id set (n_distinct = 100);
alter table turns alter column session_id set (n_distinct = 100);
alter table events alter column session_id set (n_distinct = 100);
alter table messages alter column session_id set (n_distinct = 100);
alter table parts alter column session_id set (n_distinct = 100);
alter table past_prunes alter column session_id set (n_distinct = 100);
alter table tool_calls alter column session_id set (n_distinct = 100);
alter table queue alter column session_id set (n_distinct = 100);
alter table idempotency alter column session_id set (n_distinct = 100);
alter table compactions alter column session_id set (n_distinct = 100);
alter table partial_chunks alter column session_id set (n_distinct = 100);
alter table part_blobs alter column session_id set (n_distinct = 100);
alter table usage_totals alter column session_id set (n_distinct = 100);
