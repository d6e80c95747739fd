-- Who runs the live turn, and until when if its lease is not renewed.
r.owner, case when r.owner is not null then r.lease_until end as lease_until
