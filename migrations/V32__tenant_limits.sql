-- What tenants may use where that differs from the server's configuration, a number that grows with each change of it, and what they
-- use, as replicas tell each other. The program before it has no limits: it neither reads nor writes any of this.
-- oldest-program: 13
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
    turns      bigint      not null check (turns > 0),
    at         timestamptz not null default now(),
    primary key (tenant_id, replica_id)
);
-- tokens_due: when what was spent is paid for at the tenant's rate (generic cell rate algorithm).
create table tenant_use (
    tenant_id    text        collate "C" primary key,
    tokens_due   timestamptz not null default '-infinity',
    stored_bytes bigint      check (stored_bytes >= 0),
    measured_at  timestamptz not null default '-infinity'
);
