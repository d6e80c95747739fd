-- Turns that are to be cancelled when nobody has read their events for a while, and until when somebody is known to read: written by
-- the owner, renewed by the replicas that have readers. A program before this one neither writes nor heeds it.
create table attendance (
  tenant_id   text collate "C" not null,
  session_id  text collate "C" not null,
  turn_id     text collate "C" not null,
  patience    interval not null,
  seen_until  timestamptz not null default now(),
  primary key (tenant_id, session_id)
);
