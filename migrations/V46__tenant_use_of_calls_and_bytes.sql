-- What model calls that are under way are expected to cost a tenant, and the bytes that were written since its storage was measured:
-- both are limits that a replica alone does not know. A replica that only reserves runs no turn. The program before it writes none of
-- this, and reads a measure without what was written since.
-- oldest-program: 13
alter table tenant_running add column reserved_seconds double precision not null default 0;
alter table tenant_running drop constraint tenant_running_turns_check;
alter table tenant_use add column written_bytes bigint not null default 0;
