//! The statements whose plans are checked: single statements, and statements of transitions, which run after the
//! preceding ones.

use contextd::store::{hot_statements, hot_transitions, named_parameters::Named};

use super::{commit_function::COMMIT, plans::arguments};

/// The session and the turn on which a transition is tried.
fn place(transition: &str) -> (&'static str, &'static str) {
    match transition {
        "create" => ("new", "new-turn"),
        "commit" => ("turns", "turns-t1"),
        "queue_outcome" => ("queue", "queue-t1"),
        "open_at" => ("long", "long-t1"),
        _ => ("run", "run-t1"),
    }
}

/// The arguments of a statement of a transition, for this session and turn.
fn named_arguments(transition: &str, statement: &Named, (session, turn): (&str, &str)) -> String {
    let argument = |name: &String| match (of_transition(transition, name), name.as_str()) {
        (Some(argument), _) => argument.to_owned(),
        (None, "session") => format!("'{session}'"),
        (None, "turn") if statement.name() == "store::commit::new_turn" => "'new-turn'".to_owned(),
        (None, "turn") => format!("'{turn}'"),
        (None, name) => of_any_transition(name).to_owned(),
    };
    statement.names.iter().map(argument).collect::<Vec<_>>().join(", ")
}

/// Arguments that are specific to a transition.
fn of_transition(transition: &str, name: &str) -> Option<&'static str> {
    let argument = match (transition, name) {
        ("create", name) => return of_creation(name).or_else(|| of_commit(name)),
        ("commit", name) => return of_commit(name),
        ("queue_outcome", "message") => "'q1'",
        _ => return None,
    };
    Some(argument)
}

/// Arguments of a commit that creates a session.
fn of_creation(name: &str) -> Option<&'static str> {
    let argument = match name {
        "epoch" | "op" | "new_op" => "0",
        "first_seq" => "1",
        "new_turn" => "'new-turn'",
        "known_at" => "null",
        // The session is a fork.
        "source" => "'long'",
        "at" | "copied_up_to" => "400",
        "copied_after" => "390",
        "is_hidden" => "false",
        _ => return None,
    };
    Some(argument)
}

/// Arguments of a commit with a result, an approval, a message, new calls, and their cost.
fn of_commit(name: &str) -> Option<&'static str> {
    let argument = match name {
        "version" => "version_of('turns')",
        "new_version" => "7",
        "epoch" | "op" => "1",
        "owner" => "null",
        "new_owner" | "written_by" => "'two'",
        "cancel" | "cancel_cause" => "0",
        "cancel_reason" => "''",
        "new_epoch" | "new_op" | "takeovers" | "step" | "attempt" | "open_calls" => "1",
        "ref_events" => "array[1, 2]",
        "next_seq" => "900002",
        "first_seq" => "next_seq_of('turns')",
        "ctx_messages" => "1",
        "ctx_overhead" => "4",
        "ctx_tokens" => "array_fill(0::bigint, array[9])",
        "ctx_parts" => "array_fill(0, array[9])",
        "measured" => "false",
        "growth" | "wake_at" | "turn_request" | "turn_model" => "null",
        name if name.starts_with("anchor_") => "null",
        "wake_within" => "60",
        "event_kinds" => "array['tool_call_completed', 'tool_call_requested']",
        "event_payloads" => "array['', '']::bytea[]",
        "event_sizes" => "array[null, null]::bigint[]",
        "event_steps" | "event_attempts" => "array[1, 1]",
        "event_of_turn" => "array[true, true]",
        "refs" => "array['d1', 'd2']",
        "blob_messages" => "array['new-message']",
        "blob_positions" => "array[0]",
        "closed_statuses" => "array[3]::smallint[]",
        "call_closed" => "array[false, false]",
        "hashes" => "array['h']",
        "asked_calls" => "array['d2']",
        "asked_statuses" => "array[0]::smallint[]",
        "edits" => "array['{}']",
        "seen_turn" | "new_turn" => "'turns-t1'",
        "context_version" => "0",
        "turn_ends_within" | "ttl" | "execute" => "null",
        "request_is_new" => "false",
        "asked_by" | "queued_by" => "'r'",
        "asked" | "queued_body" => "''",
        "asked_model" => "'scripted/demo'",
        "queued" => "'new-queued'",
        "queued_delivery" | "asap" => "1",
        "leaving" | "hurried" | "calmed" => "array['q1']",
        "leaving_statuses" => "array[1]::smallint[]",
        "leaving_events" => "array[0]",
        "leaving_into" => "array['new-message']",
        "drop_reasons" => "array[null]::smallint[]",
        "led" => "'[]'",
        "measured_at" | "failed_info" | "predecessor" => "null",
        "turn_last_seq" => "900001",
        "revision" => "900",
        "configures" => "true",
        "expires_after" | "compaction_lease" => "60",
        "tools_estimator" => "'test'",
        "marked_messages" => "array['new-message']",
        "described" | "summary" => "'new-message'",
        "marked_positions" => "array[0]",
        "description" | "begun_info" | "applied_info" => "''",
        "begun_compaction" | "moved_compaction" | "applied_compaction" => "'new-compaction'",
        "failed_compaction" => "'another-compaction'",
        "reverted" => "array['new-compaction']",
        "moved_to" | "pruned_at" | "placeholder" | "from_seq" | "to_seq" | "reverted_at" => "1",
        "kept" => "array[]::bigint[]",
        "hides_pinned" => "false",
        "applied_messages" | "applied_overhead" => "0",
        "applied_tokens" => "array_fill(0::bigint, array[9])",
        "applied_parts" => "array_fill(0, array[9])",
        _ => return None,
    };
    Some(argument)
}

/// The default argument for a parameter name.
fn of_any_transition(name: &str) -> &'static str {
    match name {
        "owner" => "'one'",
        "epoch" | "calls" | "step_count" | "revision" => "1",
        "op" | "reasoning_tokens" | "cache_read_tokens" | "cache_write_tokens" | "tools_tokens" => "0",
        "model" => "'scripted/demo'",
        "trace" => "'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'",
        "input_tokens" => "100",
        "output_tokens" => "10",
        "final_message" | "calls_message" => "'new-message'",
        "payload" | "outcome" | "request" | "config" | "tools" => "''",
        "lease" => "30",
        "timeout" => "600",
        "ttl" => "60",
        "known_at" => "null",
        "request_id" => "'r'",
        "request_hash" => "'hash'",
        "toolset" => "'new-toolset'",
        "labels" => "array['label']::bytea[]",
        "title" => "'A title'",
        // A call that is requested, and another one that is requested after it.
        "call_ids" => "array['n1', 'n2']",
        "call_names" => "array['look', 'look']",
        "call_parts" | "call_ords" => "array[0, 1]",
        "call_timeouts" => "array[60, 60]",
        "call_statuses" => "array[0, 1]::smallint[]",
        "call_requests" => "array[null, '']::bytea[]",
        "call_executors" => "array[1, 2]::smallint[]",
        "results_message" => "'new-results'",
        // Calls that the end of a turn closes.
        "kind" => "'turn_completed'",
        "turn_state" => "3",
        "closed_words" => "'closed'",
        "closed_tokens" => "7",
        "closed_overhead" => "4",
        "closed_payload" | "led" | "info" | "reason" => "''",
        "continues" => "true",
        // Both pending messages.
        "next_seq" => "4",
        "state" | "mode" | "cause" | "purpose" | "context" => "1",
        "begun_steps" | "seen" | "open_calls" => "0",
        "queued" => "array['q1', 'q2']",
        "queued_statuses" => "array[1, 1]::smallint[]",
        "queued_events" => "array[1, 1]",
        "queued_into" => "array['new-message', 'new-message']",
        "drop_reasons" => "array[null, null]::smallint[]",
        "body" | "dropped_payload" | "started" => "''",
        "delivery" => "1",
        "starts_turn" => "true",
        "from_execute" | "expired_only" => "false",
        "most_waiting" => "100",
        "status" => "2",
        "stay" => "30",
        "unused_for" => "null",
        "submission" => "'submission'",
        "closed_calls" => "array['d1']",
        "overhead" => "4",
        "gave_back" => "true",
        // What the replica has cached.
        "replica" => "'one'",
        "tenants" => "array['t']",
        "sessions" => "array['run']",
        "epochs" => "array[1]",
        "turns" => "array['run-t1']",
        "at" => "399",
        // An appended call with its result, a result for an open call, and an output that was truncated.
        "imported_calls" => "array['imported']",
        "imported_names" => "array['look']",
        "imported_messages" | "answered_messages" => "array['new-message']",
        "imported_parts" | "imported_positions" | "answered_positions" => "array[0]",
        "imported_results" => "array['new-results']",
        "answered_calls" => "array['d1']",
        "blob_messages" => "array['new-message']",
        "blobs" => "array['blob']",
        // A message with one part.
        "tenant" => "'t'",
        "message_events" => "array[1]",
        "message_ids" | "part_messages" => "array['new-message']",
        "message_roles" => "array[2]::smallint[]",
        "message_steps" => "array[1]",
        "message_tokens" => "array[4]",
        "message_pinned" | "message_summaries" => "array[false]",
        "message_times" => "array[null]::timestamptz[]",
        "message_infos" => "array['']::bytea[]",
        "message_behind" => "array[null]::bigint[]",
        "part_positions" => "array[0]",
        "part_kinds" => "array['text']",
        "part_calls" | "part_names" => "array[null]::text[]",
        "part_outcomes" => "array[null]::smallint[]",
        "part_bodies" => "array['words']",
        "part_rests" => "array[null]::bytea[]",
        "part_tokens" => "array[9]",
        "part_categories" => "array[1]::smallint[]",
        "estimator" => "'test'",
        other => panic!("no argument for {other}"),
    }
}

/// Whether a transition needs a statement: some only create a session, others only change one.
fn is_needed(transition: &str, statement: &str) -> bool {
    const CREATES: [&str; 10] = [
        "store::commit::new_session",
        "store::commit::new_run",
        "store::commit::new_context",
        "store::commit::new_activity",
        "store::commit::copy_messages",
        "store::commit::copy_parts",
        "store::commit::copy_prunes",
        "store::commit::copy_blobs",
        "store::commit::copy_calls",
        "store::commit::copy_compactions",
    ];
    const BOTH: [&str; 7] = [
        "store::commit::events",
        "store::commit::messages",
        "store::commit::parts",
        "store::commit::new_turn",
        "store::commit::toolset",
        "store::commit::revision",
        "store::commit::request",
    ];
    match transition {
        "create" => CREATES.contains(&statement) || BOTH.contains(&statement),
        "commit" => !CREATES.contains(&statement),
        _ => true,
    }
}

/// A statement to check: a single one, or one of a transition, which runs after the preceding ones.
#[derive(Clone, Copy)]
pub(super) enum Hot {
    /// The name and the text.
    Alone(&'static str, &'static str),
    /// The transition, its statements, and the index of this one.
    Nth(&'static str, &'static [Named], usize),
}

impl Hot {
    pub(super) fn all() -> Vec<Self> {
        let alone = hot_statements().into_iter().map(|(name, sql)| Self::Alone(name, sql));
        let commits = ["commit", "create"].map(|name| (name, COMMIT.as_slice()));
        let nth = commits
            .into_iter()
            .chain(hot_transitions())
            .flat_map(|(name, statements)| (0..statements.len()).map(move |at| Self::Nth(name, statements, at)));
        alone.chain(nth).filter(|hot| hot.is_needed()).collect()
    }

    /// Whether the statement has something to write.
    fn is_needed(self) -> bool {
        match self {
            Self::Alone(..) => true,
            Self::Nth(transition, statements, at) => is_needed(transition, statements[at].name()),
        }
    }

    /// The name in complaints.
    pub(super) fn name(self) -> String {
        match self {
            Self::Alone(name, _) => name.to_owned(),
            Self::Nth(transition, statements, at) => {
                format!("{transition}: {}", statements[at].name())
            }
        }
    }

    pub(super) fn sql(self) -> &'static str {
        match self {
            Self::Alone(_, sql) => sql,
            Self::Nth(_, statements, at) => &statements[at].sql,
        }
    }

    /// The EXECUTE commands for the preceding statements and this one.
    pub(super) fn executions(self) -> Vec<String> {
        match self {
            Self::Alone(name, _) => {
                vec![format!("execute {name} ({})", arguments(name).join(", "))]
            }
            Self::Nth(transition, statements, at) => {
                let execution = |(at, statement): (usize, &Named)| {
                    format!("execute {transition}_{at} ({})", named_arguments(transition, statement, place(transition)))
                };
                let needed = statements[..=at]
                    .iter()
                    .enumerate()
                    .filter(|(_, statement)| is_needed(transition, statement.name()));
                needed.map(execution).collect()
            }
        }
    }

    /// The name of the prepared statement.
    pub(super) fn prepared_name(self) -> String {
        match self {
            Self::Alone(name, _) => name.to_owned(),
            Self::Nth(transition, _, at) => format!("{transition}_{at}"),
        }
    }
}
