-- What calls teach about the size of prompts, by tenant and model: a tenant with odd content changes no other's predictions. What was
-- learnt for all tenants together is not taken over, since it says something of each; a model is learnt anew within 16 calls. The program
-- before it goes on with its own table, `calibration`, which a later migration drops.
-- oldest-program: 13
create table tenant_calibration (
    tenant_id  text             collate "C" not null,
    model      text             not null,
    ratio      double precision not null check (ratio between 0.5 and 2),
    calls      bigint           not null default 0,
    updated_at timestamptz      not null default now(),
    primary key (tenant_id, model)
);
