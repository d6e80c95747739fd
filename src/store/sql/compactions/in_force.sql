-- store::compaction_read::in_force
select {compaction_columns}, c.hides_pinned
  from {in_force} c
