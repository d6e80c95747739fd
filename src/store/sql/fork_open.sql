-- store::fork::open_fork: makes a fork that was copied in batches the session that it is to be. 0 rows: its claim is not in force any
-- more, or its source is gone, of which rows may have been missing then, or is another session that was made under its id.
with source as (
  select r.revision, r.context_version from session_run r join sessions s on s.tenant_id = :tenant and s.session_id = :session
   where r.tenant_id = :tenant and r.session_id = :session and r.state <> 3 and s.created_at = :source_created),
f as (
  update session_run r
     set state = 0, turn_id = null, lease_until = '-infinity', next_seq = :at::bigint + 1, context_version = s.context_version,
         revision = :revision, ctx_tokens = :overhead::bigint + (select sum(t) from unnest((:tokens::bigint[])[1:8]) t)
    from source s
   where r.tenant_id = :tenant and r.session_id = :new_session and r.state = 3 and r.turn_id = :claim and r.lease_until > clock_timestamp()
  returning 1),
write_session as (
  insert into sessions (tenant_id, session_id, forked_from, forked_at_seq) select :tenant, :new_session, :session, :at from f),
write_context as (
  insert into session_context (tenant_id, session_id, messages, overhead_tokens, user_tokens, user_parts, assistant_tokens,
                               assistant_parts, reasoning_tokens, reasoning_parts, tool_call_tokens, tool_call_parts,
                               tool_result_tokens, tool_result_parts, media_tokens, media_parts, summary_tokens, summary_parts,
                               pinned_tokens, pinned_parts, pruned_tokens, pruned_parts)
  select :tenant, :new_session, :messages::int, :overhead::bigint, t[1], n[1], t[2], n[2], t[3], n[3], t[4], n[4], t[5], n[5], t[6], n[6], t[7], n[7], t[8], n[8],
         t[9], n[9]
    from f, (select :tokens::bigint[] as t, :parts::int[] as n) z),
list as (
  update session_activity a
     set updated_at = now(),
         ttl = (select s.ttl from session_activity s where s.tenant_id = :tenant and s.session_id = :session)
    from f where a.tenant_id = :tenant and a.session_id = :new_session),
write_revision as (
  {copied_revision}),
write_compactions as (
  {copied_compactions})
select 1 from f
