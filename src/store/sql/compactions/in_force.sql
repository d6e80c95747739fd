-- store::compaction_read::in_force
select {compaction_columns}
  from {in_force} c
