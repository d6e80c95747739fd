-- Which replica made the owner's statement counter what it is. After a failover that lost commits, another replica may be granted the
-- same epoch and op for the same turn; an owner whose answer was lost finds out by this column whether it was its own statement that
-- moved op. Every statement of an owner sets it. The program before this one neither reads nor writes it: what it writes leaves an older
-- name there, which costs something only where such a failover falls into the upgrade.
-- oldest-program: 13

alter table session_run add column written_by text collate "C";
