-- What could not be told afterwards. A restore set `parts.pruned_at_seq` back to null, so that a view as of a seq between a prune and its
-- restore lost the prune: each prune that was taken back is now a row here. The compactions of a session were ordered by their ids, which
-- are as right as the clocks of the replicas that made them: the seq of `compaction_started` orders them. A rollback forgot what was
-- measured before the turn: the turn now keeps it.
-- The program before this one writes none of the three. It goes on forgetting its own restores; compactions without the seq come before
-- those with it, within one version of the context; after a rollback of a turn without the measurement the size is an estimate. When it
-- purges a deleted session it leaves the rows of past_prunes, which name messages that no other session has.
-- oldest-program: 13

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
alter table past_prunes alter column session_id set (n_distinct = 100);

alter table compactions add column begun_at_seq bigint;   -- of compaction_started

-- The anchor of the session when the turn began, with the version of the context that it was true of; null if there was none.
alter table turns add column anchor_before jsonb;
