-- Tenants that are being deleted, and those that were: when that was asked for and by whom, when it was done, and what was removed. What is
-- left of a tenant is its row here. The program before it knows nothing of this: it goes on serving a tenant that is being deleted, whose
-- API keys alone it refuses.
-- oldest-program: 13
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
