-- What orders the compactions of a session by when they began: no clock of a replica, and so not their ids. The version of the context
-- only grows, and within one version the seq does. Those of a program that did not note the seq stand before the others of their
-- version. These are the columns of the index `compactions_in_order`.
c.context_version, coalesce(c.begun_at_seq, 0), c.created_at, c.compaction_id
