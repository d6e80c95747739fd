-- store::commit::begin_compaction
insert into compactions (tenant_id, session_id, compaction_id, status, lease_until, context_version, begun_at_seq, info)
select :tenant, :session, :begun_compaction, 1, now() + make_interval(secs => :compaction_lease::float8), :context_version::bigint,
       :next_seq::bigint - 1, :begun_info::bytea
 where {accepted}
