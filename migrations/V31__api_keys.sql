-- API keys, as hashes of their secrets, and a number that grows with each change, by which replicas see that they have to read them again.
-- The program before it does not authenticate: it does without them.
-- oldest-program: 13
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
