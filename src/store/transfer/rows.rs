//! The rows of a session, and the statements that read them.

/// Whether the database has the schema from before the counters were moved to the session row.
pub(super) const IS_OLDER: &str = "-- store::transfer::is_older
select to_regclass('session_context') is not null";

pub(super) const TENANTS: &str = "-- store::transfer::tenants
select distinct r.tenant_id from session_run r
 where r.state <> 3 and ($1::text is null or r.tenant_id = $1) and (cardinality($2::text[]) = 0 or r.session_id = any($2)) order by 1";

/// The next sessions of a tenant after the one with the id $2.
pub(super) const SESSIONS: &str = "-- store::transfer::sessions
select r.session_id from session_run r
 where r.tenant_id = $1 and r.session_id > $2 and r.state <> 3 and (cardinality($3::text[]) = 0 or r.session_id = any($3))
 order by r.session_id limit 500";

/// Rows shared by sessions of a tenant: $1 tenant, $2 the selected session ids, empty for all.
pub(super) const OF_TENANT: [(&str, &str); 4] = [
    (
        "tenant_calibration",
        "-- store::transfer::calibration
        select to_jsonb(x)::text as columns from tenant_calibration x where x.tenant_id = $1 and $2::text[] is not null",
    ),
    (
        "toolsets",
        "-- store::transfer::toolsets
        select (to_jsonb(x) - 'unused_since')::text as columns from toolsets x
         where x.tenant_id = $1 and (cardinality($2::text[]) = 0 or exists (
               select from session_revisions v where v.tenant_id = $1 and v.toolset_id = x.toolset_id and v.session_id = any($2)))",
    ),
    (
        "blobs",
        "-- store::transfer::blobs
        select (to_jsonb(x) - 'touched_at')::text as columns from blobs x
         where x.tenant_id = $1 and (cardinality($2::text[]) = 0 or exists (
               select from part_blobs p where p.tenant_id = $1 and p.blob_id = x.blob_id and p.session_id = any($2)))",
    ),
    (
        "blob_chunks",
        "-- store::transfer::chunks
        select to_jsonb(x)::text as columns from blob_chunks x
         where x.tenant_id = $1 and (cardinality($2::text[]) = 0 or exists (
               select from part_blobs p where p.tenant_id = $1 and p.blob_id = x.blob_id and p.session_id = any($2)))",
    ),
];

/// Reads all rows of a session from one table.
macro_rules! of_session {
    ($($table:literal $(order by $order:literal)?);+ $(;)?) => {
        [
            // No replica of the other database owns a running turn: its lease has expired.
            (HOT, "-- store::transfer::hot
            select (to_jsonb(x) || '{\"lease_until\": \"-infinity\"}')::text as columns from session_run x
             where x.tenant_id = $1 and x.session_id = $2"),
            $(($table, concat!("-- store::transfer::rows ", $table, "
            select to_jsonb(x)::text as columns from ", $table, " x where x.tenant_id = $1 and x.session_id = $2", $(" order by x.", $order)?))),+
        ]
    };
}

/// The session row, with which a session begins.
pub(super) const HOT: &str = "session_run";

/// The tables of a session: $1 tenant, $2 session.
pub(super) const OF_SESSION: [(&str, &str); 16] = of_session! {
    "sessions"; "session_activity"; "session_revisions"; "turns"; "events"; "messages"; "parts"; "past_prunes"; "part_blobs"; "tool_calls";
    "queue" order by "pos"; "idempotency"; "compactions"; "usage_totals"; "attendance"
};

/// The statement for a table that has other columns in an older schema.
pub(super) fn of_older(table: &str) -> Option<&'static str> {
    match table {
        HOT => Some(
            "-- store::transfer::older_hot
            select (to_jsonb(r) || jsonb_build_object('lease_until', '-infinity', 'ctx_messages', c.messages, 'ctx_overhead', c.overhead_tokens,
                     'ctx_tokens', array[c.user_tokens, c.assistant_tokens, c.reasoning_tokens, c.tool_call_tokens, c.tool_result_tokens,
                                         c.media_tokens, c.summary_tokens, c.pinned_tokens, c.pruned_tokens],
                     'ctx_parts', array[c.user_parts, c.assistant_parts, c.reasoning_parts, c.tool_call_parts, c.tool_result_parts,
                                        c.media_parts, c.summary_parts, c.pinned_parts, c.pruned_parts]))::text as columns
              from session_run r join session_context c using (tenant_id, session_id)
             where r.tenant_id = $1 and r.session_id = $2",
        ),
        "compactions" => Some(
            "-- store::transfer::older_compactions
            select (to_jsonb(x) || jsonb_build_object('begun_at_seq', coalesce(x.begun_at_seq, x.active_from_seq, 0)))::text as columns
              from compactions x where x.tenant_id = $1 and x.session_id = $2",
        ),
        _ => None,
    }
}
