//! The plans of the hot statements: each reads only its session, regardless of the number of sessions of the tenant.

use std::collections::{BTreeMap, BTreeSet};

use contextd::{model::CancelCause, store::named_parameters::Named};
use serde_json::Value;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{hot::Hot, *};

fn with<'a>(mut arguments: Vec<&'a str>, more: &[&'a str]) -> Vec<&'a str> {
    arguments.extend(more);
    arguments
}

fn in_session(session: &'static str, more: &[&'static str]) -> Vec<&'static str> {
    with(vec!["'t'", session], more)
}

/// Arguments with which a statement finds or writes rows in the sessions of [`scenes`].
pub(super) fn arguments(statement: &str) -> Vec<&'static str> {
    let keys = |more: &[&'static str]| with(vec!["array['t']", "array['run']"], more);
    match statement {
        "last_role" => in_session("'run'", &[]),
        "revision_at" => in_session("'long'", &["100"]),
        "since" => in_session("'long'", &["'m100'"]),
        "head" => in_session("'run'", &["'r'"]),
        "owned" => in_session("'run'", &["1", "'one'", "'run-t1'"]),
        "calls" => in_session("'wait'", &["array['c1', 'c2']"]),
        "open_calls" | "open_results" | "seen_session" | "answers_open" => in_session("'wait'", &[]),
        "results" => vec!["array['c3']", "'t'", "'wait'"],
        "owned_here" => keys(&["'one'"]),
        "marks" => keys(&["array[1]", "array[null]::timestamptz[]"]),
        "cancels" => vec!["array['t']", "array['cancelled']", "array[1]", "array['cancelled-t1']", "'one'"],
        "heads" => keys(&["array[0]"]),
        "save_chunks" => {
            keys(&["array['run-t1']", "array[1]", "array['open']", "array[3]", "array['']::bytea[]", "'one'"])
        }
        "elsewhere" => keys(&["array['open']", "array[1]"]),
        "follow" => vec!["600", "'t'", "'long'", "100", "50", "30000", "true"],
        "settled_between" => in_session("'long'", &["100", "150"]),
        "ahead" => in_session("'idle'", &["false"]),
        "fate" => in_session("'queue'", &["'q2'"]),
        "look" => in_session("'queue'", &[]),
        "queued" => in_session("'queue'", &["0", "50", "1000000"]),
        "queued_message" => in_session("'queue'", &["'q2'"]),
        other => arguments_beside_turns(other),
    }
}

/// Arguments of statements about a session or its context.
fn arguments_beside_turns(statement: &str) -> Vec<&'static str> {
    match statement {
        "session" => in_session("'run'", &["1"]),
        // A session uses a few models, not the thousand of the other sessions.
        "stats" => in_session("'long'", &[]),
        "beginnings" => vec!["'t'", "array['blob']", "3600"],
        "renew_compaction" => in_session("'compacting'", &["'k'", "30"]),
        "event" => in_session("'long'", &["100"]),
        "standing" => in_session("'compacted'", &["'k'"]),
        "added_by_turn" => in_session("'run'", &["'run-t1'"]),
        "compactions_over_turn" => in_session("'compacted'", &["'compacted-t1'"]),
        "compactions" => in_session("'compacted'", &["null", "10"]),
        "compaction" => in_session("'compacted'", &["'k'"]),
        "compaction_in_force" | "newest_compaction" => in_session("'compacted'", &[]),
        other => transcript_arguments(other),
    }
}

/// Arguments of statements about whole transcripts.
fn transcript_arguments(statement: &str) -> Vec<&'static str> {
    let in_session = |session, more: &[&'static str]| with(vec!["'t'", session], more);
    match statement {
        "next_piece" => in_session("'long'", &["400", "300", "50", "1000000", "'2026-01-01'"]),
        "call_ids" => in_session("'long'", &[]),
        "tail" => in_session("'idle'", &["'r'"]),
        "appended_calls" => in_session("'imported'", &[]),
        "live_after" | "all_after" => in_session("'long'", &[NOW, "40", "10"]),
        "live_within" => in_session("'long'", &[NOW, "40", "10", "1000000"]),
        "live_before" | "all_before" => in_session("'long'", &[NOW, "110", "10"]),
        "live_bytes" => in_session("'long'", &[NOW]),
        "messages_by_id" => vec![NOW, "'t'", "'long'", "array['m10', 'm20']"],
        "variable" => in_session("'long'", &[NOW, "array[400]", "8", "true"]),
        "newest" => in_session("'long'", &[NOW, NOW, "10", "8"]),
        other => panic!("no arguments for {other}"),
    }
}

/// The seq that represents the current view.
const NOW: &str = "9223372036854775807";

/// Text of an unfinished message, which is removed at the end of the turn.
const WRITTEN: &str = "
    insert into partial_chunks (tenant_id, session_id, epoch, message_id, n, body)
    values ('t', 'run', 1, 'written', 1, ''), ('t', 'turns', 1, 'written', 1, '')";

/// A message that is pending while a turn waits for tools, and one that is pending for the end of a turn.
const QUEUES: &str = "
    insert into queue (tenant_id, session_id, message_id, body, delivery, starts_turn, from_execute)
    values ('t', 'turns', 'q1', '', 1, true, false), ('t', 'idle', 'later', '', 2, false, false)";

/// What a commit compares and changes: the version of a session, and the record of a request.
const COMMITTED: &str = "
    create function version_of(session text) returns bigint language sql as
      'select version from session_run where tenant_id = ''t'' and session_id = session';
    create function next_seq_of(session text) returns bigint language sql as
      'select next_seq from session_run where tenant_id = ''t'' and session_id = session';
    insert into idempotency (tenant_id, session_id, request_id, req_hash, result) values ('t', 'turns', 'r', 'hash', '')";

/// Creates sessions in the states that the statements require.
async fn scenes(world: &World, client: &Client) {
    let store = &world.store;
    let (run, _) = world.running("run").await;
    world.waiting("wait", &["c1", "c2", "c3"]).await;
    submit(store, &key("wait"), &["c3"], &unremembered()).await;
    world.waiting("turns", &["d1", "?d2", ">d3"]).await;
    client.batch_execute(COMMITTED).await.unwrap();
    world.running("queue").await;
    for id in ["q1", "q2"] {
        enqueue(store, &key("queue"), id).await;
    }
    let waits = MessageId::new("waits");
    let same = request("waits");
    let starter = NewQueued { starts_turn: true, ..asap(&waits, &same) };
    placed(store.enqueue(&world.idle("idle").await, &starter, None).await.unwrap());
    let (cancelled, _) = world.running("cancelled").await;
    let none = unremembered();
    store.cancel(&cancelled, None, &cancelling(CancelCause::Requested, ""), &none).await.unwrap();
    for session in ["compacting", "compacted"] {
        let key = world.idle(session).await;
        super::compaction::begin(store, &key, "k", 0, &none).await.update.unwrap();
    }
    super::compaction::swap(store, &key("compacted"), "k").await.update.unwrap();
    world.idle("imported").await;
    client.batch_execute(IMPORTED).await.unwrap();
    client.batch_execute(QUEUES).await.unwrap();
    client.batch_execute(WRITTEN).await.unwrap();
    world.running("long").await;
    client.batch_execute(LONG).await.unwrap();
    client.batch_execute(OPEN).await.unwrap();
    assert_eq!(run, key("run"));
}

/// Text of an unfinished message and of another one that was not swept yet, and a result of several parts in an open
/// batch.
const OPEN: &str = "
    update parts set rest = '' where tenant_id = 't' and session_id = 'wait' and kind = 'tool_result';
    insert into partial_chunks (tenant_id, session_id, epoch, message_id, n, body)
    select 't', 'run', 1, m, n, '' from unnest(array['late', 'open']) m, generate_series(1, 2) n";

/// A session that ends with an appended call.
const IMPORTED: &str = "
    insert into messages (tenant_id, session_id, seq, message_id, role, step, tokens, info) values ('t', 'imported', 5, 'calls', 3, 0, 4, '');
    insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id,
                            ord, timeout)
    values ('t', 'imported', 'i1', '', 0, 1, 'look', 'calls', 0, '', 0, '0');
    insert into blobs (tenant_id, blob_id, media_type, size_bytes) values ('t', 'blob', 'text/plain', 1);
    insert into blob_chunks (tenant_id, blob_id, idx, bytes) values ('t', 'blob', 0, 'x');
    update session_run set version = version + 1, next_seq = 6, context_version = 1, open_calls = 1 where session_id = 'imported'";

/// A long conversation that is partially compacted, with an open call at seq 399.
const LONG: &str = "
    insert into messages (tenant_id, session_id, seq, message_id, role, step, tokens, info)
    select 't', 'long', n, 'm' || n, 2, 1, 4, '' from generate_series(4, 400) n;
    insert into parts (tenant_id, session_id, message_id, idx, kind, body, tokens, category, estimator)
    select 't', 'long', 'm' || n, 0, 'text', 'words', 4, 1, 'test' from generate_series(4, 400) n;
    insert into events (tenant_id, session_id, seq, epoch, step, attempt, kind, payload)
    select 't', 'long', n, 1, 1, 1, 'message_committed', '' from generate_series(4, 400) n;
    update messages set role = 3 where session_id = 'long' and message_id = 'm399';
    update parts set kind = 'tool_call', call_id = 'l1' where session_id = 'long' and message_id = 'm399';
    update messages set role = 4 where session_id = 'long' and message_id = 'm400';
    update parts set kind = 'tool_result', call_id = 'l1' where session_id = 'long' and message_id = 'm400';
    insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id,
                            ord, timeout, closed_at)
    values ('t', 'long', 'l1', 'long-t1', 1, 3, 'look', 'm399', 0, 'm400', 0, '1 s', now());
    insert into compactions (tenant_id, session_id, compaction_id, status, context_version, begun_at_seq, from_seq, to_seq, active_from_seq,
                             summary_message, delta_messages, delta_overhead, delta_tokens, delta_parts, info, ended_at)
    values ('t', 'long', 'k', 2, 0, 61, 10, 60, 61, 'm61', 0, 0, array_fill(0, array[9]), array_fill(0, array[9]), '', now());
    update messages set is_summary = true where session_id = 'long' and message_id = 'm61';
    insert into past_prunes (tenant_id, session_id, message_id, idx, pruned_at_seq, restored_at_seq, tokens)
    values ('t', 'long', 'm395', 0, 396, 398, 2);
    insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id) values ('t', 'long', 'm395', 0, 'blob');
    update parts set kind = 'media', rest = '' where session_id = 'long' and message_id = 'm150';
    update parts set kind = 'reasoning' where session_id = 'long' and message_id = 'm250';
    update sessions set created_at = '2026-01-01' where session_id = 'long';
    update session_run set version = version + 1, next_seq = 401 where session_id = 'long'";

/// Old rows for every session above that none of the statements needs.
const PAST: &str = "
    insert into turns (tenant_id, session_id, turn_id, state, request, model, first_seq, ended_at, last_seq, outcome)
    select tenant_id, session_id, 'old' || n, 3, '', 'scripted/demo', -n, now(), -n, '' from session_run, generate_series(1, 1000) n
     where tenant_id = 't' and session_id = any($1);
    insert into tool_calls (tenant_id, session_id, call_id, turn_id, step, status, tool_name, message_id, part_idx, result_message_id,
                            ord, timeout, closed_at)
    select tenant_id, session_id, 'old' || n, 'old' || n, 1, 3, 'look', 'old' || n, 0, 'old' || n, 0, '1 s', now()
      from session_run, generate_series(1, 1000) n where tenant_id = 't' and session_id = any($1);
    insert into queue (tenant_id, session_id, message_id, status, body, seq, ended_at, applied_to)
    select tenant_id, session_id, 'old' || n, 1, '', -n, now(), 'old' || n from session_run, generate_series(1, 1000) n
     where tenant_id = 't' and session_id = any($1);
    insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
    select tenant_id, session_id, 'old' || n, '', '' from session_run, generate_series(1, 1000) n
     where tenant_id = 't' and session_id = any($1);
    insert into session_revisions (tenant_id, session_id, revision, toolset_id, config)
    select v.tenant_id, v.session_id, -n, v.toolset_id, v.config from session_revisions v, generate_series(1, 1000) n
     where v.tenant_id = 't' and v.session_id = any($1);
    insert into compactions (tenant_id, session_id, compaction_id, status, context_version, begun_at_seq, info, ended_at)
    select tenant_id, session_id, 'old' || n, 3, 0, -n, '', now() from session_run, generate_series(1, 1000) n
     where tenant_id = 't' and session_id = any($1);
    insert into usage_totals (tenant_id, session_id, purpose, model)
    select tenant_id, session_id, 1, 'old' || n from session_run, generate_series(1, 1000) n
     where tenant_id = 't' and session_id = any($1);
    insert into messages (tenant_id, session_id, seq, message_id, role, step, tokens, info, voided_at_seq)
    select tenant_id, session_id, -n, 'old' || n, 2, 1, 4, '', 1 from session_run, generate_series(1, 1000) n
     where tenant_id = 't' and session_id = any($1);
    insert into parts (tenant_id, session_id, message_id, idx, kind, body, tokens, category, estimator)
    select tenant_id, session_id, 'old' || n, 0, 'text', 'words', 4, 1, 'test' from session_run, generate_series(1, 1000) n
     where tenant_id = 't' and session_id = any($1);
    insert into events (tenant_id, session_id, seq, epoch, step, attempt, kind, payload)
    select tenant_id, session_id, -n, 1, 1, 1, 'message_committed', '' from session_run, generate_series(1, 1000) n
     where tenant_id = 't' and session_id = any($1)";

/// Copies the stored sessions above under other ids.
async fn fill(client: &Client, tenant: &str, from: u32, to: u32) {
    let tables = "select t.table_name::text, string_agg(c.column_name::text, ', ') from information_schema.tables t
                    join information_schema.columns c using (table_schema, table_name)
                   where table_schema = 'public' and c.is_generated = 'NEVER' and c.is_identity = 'NO'
                     and c.column_name not in ('tenant_id', 'session_id')
                     and exists (select from information_schema.columns s
                                  where s.table_name = t.table_name and s.column_name = 'session_id')
                   group by 1 order by 1";
    let sources = "array['run', 'wait', 'queue', 'idle', 'compacted']";
    // Configurations reference them.
    let tool_sets = format!(
        "insert into toolsets (tenant_id, toolset_id, tools, tokens, estimator)
         select '{tenant}', toolset_id, tools, tokens, estimator from toolsets where tenant_id = 't' on conflict do nothing"
    );
    client.batch_execute(&tool_sets).await.unwrap();
    for row in client.query(tables, &[]).await.unwrap() {
        let (table, columns): (String, String) = (row.get(0), row.get(1));
        let copy = format!(
            "insert into {table} (tenant_id, session_id, {columns})
             select '{tenant}', 'other' || other, {columns} from generate_series({from}, {to}) other
               join {table} o on o.tenant_id = 't' and o.session_id = ({sources})[1 + other % 5]"
        );
        client.batch_execute(&copy).await.unwrap();
    }
    client.batch_execute("vacuum analyze").await.unwrap();
}

/// Runs a statement, rolls it back, and returns its plan.
async fn explain(client: &Client, hot: Hot) -> Value {
    let mut executions = hot.executions();
    let last = executions.pop().unwrap();
    executions.push(format!("explain (analyze, buffers, format json) {last}"));
    let execute = format!("begin; {}; rollback", executions.join("; "));
    let answers = client.simple_query(&execute).await.unwrap_or_else(|error| panic!("{}: {error:?}", hot.name()));
    let json = answers.into_iter().rev().find_map(|answer| {
        if let SimpleQueryMessage::Row(row) = answer { row.get(0).map(str::to_owned) } else { None }
    });
    let plan: Value = serde_json::from_str(&json.unwrap()).unwrap();
    plan[0]["Plan"].clone()
}

fn children(node: &Value) -> impl Iterator<Item = &Value> {
    node["Plans"].as_array().into_iter().flatten()
}

fn text<'a>(node: &'a Value, name: &str) -> &'a str {
    node[name].as_str().unwrap_or_default()
}

/// The nodes of a plan that are not limited to one session.
fn complaints(node: &Value) -> Vec<String> {
    let kind = text(node, "Node Type");
    let relation = text(node, "Relation Name");
    let condition = text(node, "Index Cond");
    let mut found: Vec<String> = children(node).flat_map(complaints).collect();
    if kind == "Seq Scan" {
        found.push(format!("a sequential scan of {relation}"));
    }
    if kind.contains("Index") && !bound(condition, text(node, "Index Name"), relation) {
        found.push(format!("{} of {relation} by {}: ({condition})", kind, text(node, "Index Name")));
    }
    found
}

/// Whether the condition starts with the tenant and, if the relation has sessions, the session. Replicas have no
/// tenant.
fn bound(condition: &str, index: &str, relation: &str) -> bool {
    let mut columns = condition.split(" AND ").map(|comparison| {
        let column = comparison.trim_start_matches('(').split(" = ").next().unwrap_or_default();
        column.rsplit('.').next().unwrap_or_default()
    });
    if relation == "replicas" {
        return columns.next() == Some("replica_id");
    }
    let of_tenant = ["blobs", "blob_chunks", "toolsets", "tenant_deletions"]
        .iter()
        .any(|table| relation == *table || index.starts_with(table));
    columns.next() == Some("tenant_id") && (of_tenant || columns.next() == Some("session_id"))
}

/// The number of pages that a statement touched, summed over the nodes themselves. Otherwise a result that is computed
/// once and read through a CTE would be counted at each place that reads it, or not at all.
fn buffers(node: &Value) -> i64 {
    let of = |node: &Value| {
        ["Shared Hit Blocks", "Shared Read Blocks"].iter().filter_map(|n| node[*n].as_i64()).sum::<i64>()
    };
    let below: i64 = children(node).filter(|child| text(child, "Parent Relationship") != "InitPlan").map(of).sum();
    let itself = match text(node, "Node Type") {
        "CTE Scan" | "Function Scan" | "Result" | "Limit" | "Aggregate" => 0,
        _ => (of(node) - below).max(0),
    };
    itself + children(node).map(buffers).sum::<i64>()
}

/// Whether a statement found or wrote a row. For a statement that returns no rows, its input counts.
fn did_something(plan: &Value) -> bool {
    let some = |node: &Value| node["Actual Rows"].as_f64() > Some(0.0);
    some(plan) || text(plan, "Node Type") == "ModifyTable" && children(plan).any(some)
}

/// Pages by statement and plan mode, and the plan.
type Pages = BTreeMap<(String, &'static str), (i64, Value)>;

/// The plan mode for plans that are independent of the arguments.
const GENERIC: &str = "force_generic_plan";

/// This statement marks a running compaction as failed. There is none here.
const IDLE: &str = "store::commit::fail_compaction";

/// Runs all statements. Fails if a plan is not limited to one session or a statement did nothing.
async fn measure(client: &Client) -> Pages {
    let mut touched = BTreeMap::new();
    let mut found = Vec::new();
    // The position of row versions is not measured: every page has room for another version.
    let tables = "select relname::text from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace";
    for row in client.query(tables, &[]).await.unwrap() {
        let roomy = format!("alter table {} set (fillfactor = 50)", row.get::<_, String>(0));
        client.batch_execute(&roomy).await.unwrap();
    }
    client.batch_execute("vacuum full analyze").await.unwrap();
    for mode in ["force_custom_plan", GENERIC] {
        client.batch_execute(&format!("set plan_cache_mode = {mode}")).await.unwrap();
        for hot in Hot::all() {
            // Dead row versions occupy pages too. So do their index entries, which VACUUM otherwise leaves if few pages
            // have them.
            client.batch_execute("vacuum (index_cleanup on)").await.unwrap();
            let name = hot.name();
            explain(client, hot).await;
            let mut fewest = (i64::MAX, Value::Null);
            // The minimum of several runs, because a full index page is split now and then.
            for _ in 0..3 {
                let plan = explain(client, hot).await;
                let is_idle = name.ends_with(IDLE);
                assert!(did_something(&plan) != is_idle, "{name}: {plan:#}");
                found.extend(complaints(&plan).into_iter().map(|complaint| format!("{name}, {mode}: {complaint}")));
                let pages = buffers(&plan);
                if pages < fewest.0 {
                    fewest = (pages, plan);
                }
            }
            touched.insert((name, mode), fewest);
        }
    }
    assert_eq!(found, Vec::<String>::new());
    touched
}

/// A connection with the settings of the service and all statements prepared.
async fn prepared(database: &TestDatabase) -> Client {
    let client = database.client().await;
    client.batch_execute("set enable_seqscan = off; set jit = off; set timezone = 'UTC'").await.unwrap();
    for hot in Hot::all() {
        let name = hot.prepared_name();
        let sql = hot.sql();
        let prepare = format!("prepare {name} as {sql}");
        client.batch_execute(&prepare).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    client
}

/// How many more pages a statement may touch with many sessions: an index may have one more level.
const DEEPER: i64 = 2;

/// Statements that can use either of two indexes, so that a generic plan chooses another one with many sessions than
/// with few, and how many more pages that costs.
const EITHER_INDEX: [&str; 2] = ["store::commit::apply_compaction", "store::commit::revert_compactions"];
const OTHER_INDEX: i64 = 6;

/// A statement that reads all parts of a session, in the order of the table or of an index: it touches each of their pages
/// once, or a page for each of the 400 parts.
const WHOLE_SESSION: &str = "live_bytes";
const PARTS: i64 = 400;

#[tokio::test]
async fn the_cost_of_hot_statements_is_independent_of_session_count_and_age() {
    let world = World::new().await;
    let client = world.database.client().await;
    scenes(&world, &client).await;
    fill(&client, "another", 1, 1000).await;
    fill(&client, "t", 1, 10).await;
    let few = measure(&prepared(&world.database).await).await;
    fill(&client, "t", 11, 10_000).await;
    let many = measure(&prepared(&world.database).await).await;
    let scenes = "array(select session_id from session_run where tenant_id = 't' and session_id not like 'other%' and session_id <> 'long')";
    client.batch_execute(&PAST.replace("$1", scenes)).await.unwrap();
    client.batch_execute("vacuum analyze").await.unwrap();
    let long = measure(&prepared(&world.database).await).await;
    assert_eq!([grown(&few, &many, DEEPER), grown(&many, &long, 12)], [Vec::<String>::new(), Vec::new()]);
    let plan = explain(&prepared(&world.database).await, Hot::Alone("variable", "")).await;
    assert_eq!(
        scans(&plan, "parts"),
        ["parts_items: 0 rows", "parts_media: 1 row", "parts_reasoning: 1 row"],
        "{plan:#}"
    );
}

/// The statements that touched at least half more pages, and more than `slack` more: with many sessions an index has
/// one more level or another index is chosen; in an old session two keys are two descents, and row versions of earlier
/// runs are on other pages.
fn grown(before: &Pages, after: &Pages, slack: i64) -> Vec<String> {
    let mut found = Vec::new();
    for ((name, mode), (pages, plan)) in before {
        let (then, plan_then) = &after[&(name.clone(), *mode)];
        let is_either = *mode == GENERIC && EITHER_INDEX.iter().any(|it| name.ends_with(it));
        let slack = match name.as_str() {
            WHOLE_SESSION => slack.max(PARTS),
            _ if is_either => slack.max(OTHER_INDEX),
            _ => slack,
        };
        if then * 2 > pages * 3 && *then > pages + slack {
            eprintln!("{name}, {mode}: {plan:#}\nthen\n{plan_then:#}");
            found.push(format!("{name}, {mode}: {pages} pages, then {then}"));
        }
    }
    found
}

/// The indexes with which rows of a table are read, each with the number of rows, including those that a filter
/// removes.
fn scans(node: &Value, table: &str) -> Vec<String> {
    let mut found: Vec<String> = children(node).flat_map(|child| scans(child, table)).collect();
    let index = text(node, "Index Name");
    if index.starts_with(&format!("{table}_")) {
        let rows = node["Actual Rows"].as_f64().unwrap_or_default()
            + node["Rows Removed by Filter"].as_f64().unwrap_or_default();
        found.push(format!("{index}: {rows} row{}", if rows == 1.0 { "" } else { "s" }));
    }
    found.sort();
    found
}

#[test]
fn the_plan_check_finds_a_plan_that_reads_too_much() {
    let index =
        |condition| serde_json::json!({"Node Type": "Index Scan", "Relation Name": "turns", "Index Cond": condition});
    assert_eq!(
        complaints(&index("((t.tenant_id = $1) AND (t.session_id = $2) AND (turn_id = $3))")),
        Vec::<String>::new()
    );
    assert_eq!(complaints(&index("(tenant_id = $1)")).len(), 1);
    assert_eq!(complaints(&index("((session_id = $1) AND (tenant_id = $2))")).len(), 1);
    assert_eq!(complaints(&serde_json::json!({"Node Type": "Index Scan", "Relation Name": "turns"})).len(), 1);
    let nested =
        serde_json::json!({"Node Type": "Limit", "Plans": [{"Node Type": "Seq Scan", "Relation Name": "turns"}]});
    assert_eq!(complaints(&nested).len(), 1);
}

/// The rows that the nodes of a plan returned, or compared and left out.
fn rows(node: &Value) -> f64 {
    let names = ["Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter"];
    let each: f64 = names.iter().filter_map(|name| node[*name].as_f64()).sum();
    let loops = node["Actual Loops"].as_f64().unwrap_or_default();
    each * loops + children(node).map(rows).sum::<f64>()
}

/// Messages of the session, as many parts.
const MESSAGES: i32 = 2_000;

#[tokio::test]
async fn the_size_of_a_session_is_read_in_one_pass_before_tables_have_statistics() {
    let world = World::new().await;
    scenes(&world, &world.database.client().await).await;
    let client = prepared(&world.database).await;
    let more = format!(
        "insert into messages (tenant_id, session_id, seq, message_id, role, step, tokens, info)
         select 't', 'long', 1000000 + n, 'more' || n, 2, 1, 4, '' from generate_series(1, {MESSAGES}) n;
         insert into parts (tenant_id, session_id, message_id, idx, kind, body, tokens, category, estimator)
         select 't', 'long', 'more' || n, 0, 'text', 'words', 4, 1, 'test' from generate_series(1, {MESSAGES}) n;
         set plan_cache_mode = {GENERIC}"
    );
    client.batch_execute(&more).await.unwrap();
    let plan = explain(&client, Hot::Alone("live_bytes", "")).await;
    let rows = rows(&plan);
    assert!(rows < f64::from(20 * MESSAGES), "{rows} rows: {plan:#}");
}

/// Number of turns that wait for their tools.
const WAITING: i64 = 20_000;

#[tokio::test]
async fn calls_whose_time_is_up_are_found_without_reading_turns_that_wait() {
    let world = World::new().await;
    let client = world.database.client().await;
    world.waiting("waits", &["c1"]).await;
    let (lapsed, _) = world.running("lapsed").await;
    world.expire(&lapsed).await;
    let (overdue, _) = world.waiting("overdue", &["c1"]).await;
    let late = "update session_run set version = version + 1, tool_deadline = now() - interval '1 s' where session_id = 'overdue'";
    client.batch_execute(late).await.unwrap();
    let copies = format!(
        "insert into sessions (tenant_id, session_id) select 't', 'w' || n from generate_series(1, {WAITING}) n;
         insert into session_run (tenant_id, session_id, state, epoch, turn_id, open_calls, tool_deadline, turn_deadline)
         select 't', 'w' || n, 2, 1, 'turn', 1, now() + interval '1 hour', now() + interval '1 hour' from generate_series(1, {WAITING}) n"
    );
    client.batch_execute(&copies).await.unwrap();
    client.batch_execute("vacuum analyze session_run").await.unwrap();
    let statement = Named::new(include_str!("../../../src/store/sql/lease/candidates.sql"));
    assert_eq!(statement.names, ["orphans", "tenants", "sessions", "limit"]);
    let explain = format!(
        "set enable_seqscan = off; set plan_cache_mode = force_generic_plan;
         prepare candidates as {};
         explain (analyze, buffers, format json) execute candidates(false, '{{}}', '{{}}', 128)",
        statement.sql
    );
    let answers = client.simple_query(&explain).await.unwrap();
    let json = answers.into_iter().find_map(|answer| {
        if let SimpleQueryMessage::Row(row) = answer { row.get(0).map(str::to_owned) } else { None }
    });
    let plan: Value = serde_json::from_str(&json.unwrap()).unwrap();
    let of = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
    let pages = of("Shared Hit Blocks") + of("Shared Read Blocks");
    eprintln!("{pages} pages, {} ms", plan[0]["Execution Time"]);
    assert_eq!(of("Actual Rows"), 1);
    assert!(pages < 50, "{pages} pages");
    let found = async |orphans| {
        let found = world.store.candidates(orphans, 128, &[]).await.unwrap();
        found.into_iter().map(|found| found.key).collect::<BTreeSet<_>>()
    };
    assert_eq!(found(false).await, [overdue.clone()].into());
    assert_eq!(found(true).await, [overdue, lapsed].into());
}
