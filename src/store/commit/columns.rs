//! The statements that the commit of a change runs, and the values of their parameters.

use super::{
    encoded_rows::{ConfigRow, EncodedRows},
    values::Values,
};
use crate::{
    codec,
    model::{CompactionId, Delivery, MessageId, RequestId, TurnId, event::WaitsFor},
    session::{
        Session,
        change::{AnchorTime, AnswerKind, Change, ClosedBy, ModelUsage, RequestedCall, TurnChange},
        compaction_rows::{CompactionChange, Replacement},
        counters::TokenCounters,
        import_rows::ImportRows,
        mark_rows::{Mark, Marks, PartPosition},
        new_calls::{Batch, CallHandling},
        queue_rows::{NewQueuedMessage, QueueChange, QueueEnd, Withdrawal},
    },
    store::{
        number::Number as _,
        queue_status,
        row::{ended_number, signed},
        seen::cancel_columns,
        tool_call::{ANSWERED, APPROVAL, CANCELLED, DENIED, REQUESTED, TIMED_OUT, WAITING, requested_status},
    },
};

/// The values of a change of the session as it was read.
pub(super) fn values<'a>(seen: &Session, change: &'a Change<'_>, encoded: &'a EncodedRows<'_>) -> Values<'a> {
    let mut values = Values::default();
    session(&mut values, change);
    anchor(&mut values, change);
    rows(&mut values, encoded);
    calls(&mut values, change);
    turn(&mut values, change, encoded);
    queue(&mut values, &change.queue);
    config(&mut values, change, encoded);
    fork(&mut values, change);
    marks(&mut values, change.marks);
    imports(&mut values, change.imports);
    moved_compaction(&mut values, seen, change);
    compactions(&mut values, &change.compactions);
    values
}

/// The session row.
fn session<'a>(values: &mut Values<'a>, change: &'a Change<'_>) {
    let session = &change.session;
    values.run(if change.creates { &["new_run", "new_activity"] } else { &["session"] });
    if change.is_use && !change.creates {
        values.run(&["session_used"]);
    }
    if change.deletes {
        values.run(&["gone", "unlist", "last_epoch"]);
    }
    values.set("state", session.state.number());
    values.set("new_epoch", session.fence.epoch);
    values.set("new_op", session.fence.op);
    values.set("written_by", session.written_by.as_deref());
    values.set("new_owner", session.owner.as_deref());
    values.set("takeovers", i16::try_from(session.takeovers).unwrap_or(i16::MAX));
    let (cancel, cause, reason) = cancel_columns(session.cancel.as_ref());
    values.set("cancel", cancel);
    values.set("cancel_cause", cause);
    values.set("cancel_reason", reason);
    values.set("step", signed(session.step));
    values.set("attempt", signed(session.attempt));
    values.set("open_calls", signed(session.open_calls));
    values.set("first_seq", change.first_seq().0);
    values.set("next_seq", session.next_seq.0);
    values.set("turn", change.turn_id.as_ref().map(TurnId::as_str));
    values.set("new_turn", session.turn.as_ref().map(TurnId::as_str));
    values.set("turn_ends_within", change.turn_ends_within.map(|within| within.as_secs_f64()));
    values.set("context_version", session.context_version);
    values.set("lease", change.lease.map(|lease| lease.as_secs_f64()));
    values.set("wake_at", session.wake_at);
    values.set("wake_within", change.wake_within.map(|within| within.as_secs_f64()));
    values.set("growth", session.growth);
    values.set("revision", session.revision);
    let TokenCounters { messages, overhead, tokens, parts } = &session.counters;
    values.set("ctx_messages", *messages);
    values.set("ctx_overhead", *overhead);
    values.set("ctx_tokens", tokens.as_slice());
    values.set("ctx_parts", parts.as_slice());
}

/// The last measured call, in the session row.
fn anchor<'a>(values: &mut Values<'a>, change: &'a Change<'_>) {
    let anchor = change.session.anchor.as_ref();
    values.set("anchor_model", anchor.map(|it| it.model.as_str()));
    values.set("anchor_version", anchor.map(|it| it.version));
    values.set("anchor_input", anchor.map(|it| signed(it.input)));
    values.set("anchor_output", anchor.map(|it| signed(it.output)));
    values.set("anchor_tokens", anchor.map(|it| it.estimated_at_anchor));
    values.set("anchor_cached", anchor.map(|it| signed(it.cached)));
    values.set("anchor_estimated", anchor.map(|it| signed(it.estimated)));
    values.set("anchor_basis", anchor.map(|it| it.basis.number()));
    let (measured, measured_at) = match change.anchor_time {
        AnchorTime::Now => (true, None),
        AnchorTime::At(at) => (false, Some(at)),
        AnchorTime::AsBefore => (false, None),
    };
    values.set("measured", measured);
    values.set("measured_at", measured_at);
}

/// Events, messages, parts, and references of parts to blobs.
fn rows<'a>(values: &mut Values<'a>, encoded: &'a EncodedRows<'_>) {
    values
        .rows(&["events"], &encoded.events)
        .column("event_kinds", |row| row.event.kind)
        .column("event_payloads", |row| row.event.payload.as_slice())
        .column("event_sizes", |row| row.size)
        .column("event_steps", |row| signed(row.at.step))
        .column("event_attempts", |row| signed(row.at.attempt))
        .column("event_of_turn", |row| row.of_turn);
    // Each reference with the number of its event, from 1.
    let refs = (1..).zip(&encoded.events).flat_map(|(n, row)| row.event.refs.iter().map(move |id| (n, id.as_str())));
    let (ref_events, refs): (Vec<i32>, Vec<&str>) = refs.unzip();
    values.set("refs", refs);
    values.set("ref_events", ref_events);
    values
        .rows(&["messages"], &encoded.messages)
        .column("message_events", |row| signed(row.event + 1))
        .column("message_ids", |row| row.id.as_str())
        .column("message_roles", |row| row.role.number())
        .column("message_steps", |row| signed(row.step))
        .column("message_tokens", |row| signed(row.overhead))
        .column("message_pinned", |row| row.pinned)
        .column("message_summaries", |row| row.is_summary)
        .column("message_times", |row| row.created_at)
        .column("message_behind", |row| row.version_before)
        .column("message_infos", |row| row.info.as_slice());
    values
        .rows(&["parts"], &encoded.parts)
        .column("part_messages", |part| part.message.as_str())
        .column("part_positions", |part| part.position)
        .column("part_kinds", |part| part.row.kind.as_str())
        .column("part_calls", |part| part.row.call.as_deref())
        .column("part_names", |part| part.row.name.as_deref())
        .column("part_outcomes", |part| part.row.outcome)
        .column("part_bodies", |part| part.row.body.as_str())
        .column("part_rests", |part| part.row.rest.as_deref())
        .column("part_tokens", |part| signed(part.size.tokens))
        .column("part_categories", |part| part.size.category.number());
    values
        .rows(&["media"], &encoded.blobs)
        .column("blobs", |it| it.blob.as_str())
        .column("blob_messages", |it| it.message.as_str())
        .column("blob_positions", |it| it.position);
}

/// Tool calls that are closed, requested or made.
fn calls<'a>(values: &mut Values<'a>, change: &'a Change<'_>) {
    values
        .rows(&["close_calls"], &change.closed)
        .column("closed_calls", |closed| closed.call.as_str())
        .column("closed_statuses", |closed| closed_status(closed.closed_by))
        .column("hashes", |closed| match closed.closed_by {
            ClosedBy::Answer(answer) => Some(answer.hash.as_str()),
            ClosedBy::Synthetic(_) => None,
        });
    values
        .rows(&["ask_calls"], &change.requested_calls)
        .column("asked_calls", |RequestedCall { call, .. }| call.as_str())
        .column("asked_statuses", |RequestedCall { waits_for, .. }| requested_status(*waits_for))
        .column("edits", |RequestedCall { edited, .. }| edited.as_deref());
    if let Some(Batch { message, results, calls }) = change.batch {
        values.set("calls_message", message.as_str());
        values.set("results_message", results.as_str());
        values.set("call_ords", (0..signed(calls.len())).collect::<Vec<i32>>());
        values
            .rows(&["new_calls"], calls)
            .column("call_ids", |call| call.id.as_str())
            .column("call_names", |call| call.name.as_str())
            .column("call_parts", |call| signed(call.part))
            .column("call_timeouts", |call| call.timeout.as_secs_f64())
            .column("call_executors", |call| call.executor.number())
            .column("call_statuses", |call| new_status(&call.handling))
            .column("call_closed", |call| !call.handling.is_open())
            .column("call_requests", |call| later_request(&call.handling));
    }
}

fn closed_status(closed_by: ClosedBy<'_>) -> i16 {
    match closed_by {
        ClosedBy::Synthetic(_) => CANCELLED,
        ClosedBy::Answer(answer) => match answer.kind {
            AnswerKind::Result { edited: _ } => ANSWERED,
            AnswerKind::Denial => DENIED,
            AnswerKind::Overdue => TIMED_OUT,
        },
    }
}

fn new_status(handling: &CallHandling) -> i16 {
    match handling {
        CallHandling::Requested(WaitsFor::Result { .. }) => REQUESTED,
        CallHandling::Later { waits_for: WaitsFor::Result { .. }, .. } => WAITING,
        CallHandling::Requested(WaitsFor::Approval) | CallHandling::Later { waits_for: WaitsFor::Approval, .. } => {
            APPROVAL
        }
        CallHandling::NotRun => CANCELLED,
    }
}

/// The encoded request event of a call that waits for an earlier call.
fn later_request(handling: &CallHandling) -> Option<Vec<u8>> {
    match handling {
        CallHandling::Later { waits_for: _, request } => Some(codec::event::encode(request).payload),
        CallHandling::Requested(_) | CallHandling::NotRun => None,
    }
}

/// The row of the turn, and usage.
fn turn<'a>(values: &mut Values<'a>, change: &'a Change<'_>, encoded: &'a EncodedRows<'_>) {
    let TurnChange { step_count, final_message, request, end } = change.turn;
    if change.turn_id.is_some() && (change.turn != TurnChange::default() || change.usage.is_some()) {
        values.run(&["turn"]);
    }
    if change.rolls_back {
        values.run(&["void"]);
    }
    values.set("step_count", step_count.map(signed));
    values.set("final_message", final_message.map(MessageId::as_str));
    values.set("turn_request", encoded.turn_request.as_deref());
    values.set("turn_model", request.and_then(|request| request.model.as_deref()));
    values.set("turn_state", end.map(|(ending, _)| ended_number(ending.state())));
    values.set("outcome", end.map(|(ending, result)| codec::turn::encode_outcome(ending, result)));
    values.set("turn_last_seq", change.seq_of_end().map(|seq| seq.0));
    let totals = change.usage.map(|usage| usage.totals).unwrap_or_default();
    values.set("calls", totals.calls);
    values.set("input_tokens", totals.input);
    values.set("output_tokens", totals.output);
    values.set("reasoning_tokens", totals.reasoning);
    values.set("cache_read_tokens", totals.cache_read);
    values.set("cache_write_tokens", totals.cache_write);
    if let Some(ModelUsage { purpose, model, totals }) = change.usage
        && totals.calls > 0
    {
        values.run(&["spend"]);
        values.set("purpose", purpose.number());
        values.set("model", model);
    }
    if let (Some(row), Some(request)) = (change.begins, &encoded.new_request) {
        values.run(&["new_turn"]);
        values.set("asked_by", row.request_id.map(RequestId::as_str));
        values.set("asked", request.as_slice());
        values.set("asked_model", row.model);
    }
    if let Some((message, description)) = change.host_model_call {
        values.run(&["message_info"]);
        values.set("described", message.as_str());
        values.set("description", description);
    }
}

fn queue<'a>(values: &mut Values<'a>, change: &'a QueueChange<'_>) {
    let QueueChange { added, removed, promoted_to_asap, cleared_turn_starts } = change;
    if let Some(NewQueuedMessage { message, body, blobs: _, delivery, starts_turn, execute, ttl, request }) = added {
        values.run(&["queued"]);
        values.set("queued", message.as_str());
        values.set("queued_body", *body);
        values.set("queued_delivery", delivery.number());
        values.set("starts_turn", *starts_turn);
        values.set("from_execute", execute.is_some());
        values.set("execute", *execute);
        values.set("ttl", ttl.map(|ttl| ttl.as_secs_f64()));
        values.set("queued_by", request.map(RequestId::as_str));
    }
    values
        .rows(&["leave_queue"], removed)
        .column("leaving", |it| it.message.as_str())
        .column("leaving_statuses", |it| queue_end(&it.end).0)
        .column("leaving_events", |it| signed(it.event))
        .column("leaving_into", |it| queue_end(&it.end).1)
        .column("drop_reasons", |it| queue_end(&it.end).2);
    values.rows(&["hurry"], promoted_to_asap).column("hurried", MessageId::as_str);
    values.set("asap", Delivery::Asap.number());
    values.rows(&["calm"], cleared_turn_starts).column("calmed", MessageId::as_str);
}

/// The values of `queue.status`, `applied_to` and `drop_reason` of a message that leaves the queue.
fn queue_end(end: &QueueEnd) -> (i16, Option<&str>, Option<i16>) {
    match end {
        QueueEnd::Applied(into) => (queue_status::APPLIED, Some(into.as_str()), None),
        QueueEnd::Withdrawn(Withdrawal::Cancelled) => (queue_status::CANCELLED, None, None),
        QueueEnd::Withdrawn(Withdrawal::Expired) => (queue_status::EXPIRED, None, None),
        QueueEnd::Withdrawn(Withdrawal::Dropped(reason)) => (queue_status::DROPPED, None, Some(reason.number())),
    }
}

/// The configuration of a new revision.
fn config<'a>(values: &mut Values<'a>, change: &Change<'_>, encoded: &'a EncodedRows<'_>) {
    let ttl = change.config.and_then(|new| new.config.ttl);
    values.set("configures", change.config.is_some());
    values.set("expires_after", ttl.map(|ttl| ttl.as_secs_f64()));
    if let Some(ConfigRow { new, toolset, config, tools, found_by }) = &encoded.config {
        values.run(&["toolset", "revision"]);
        values.set("toolset", toolset.as_str());
        values.set("config", config.as_slice());
        values.set("tools", tools.as_slice());
        values.set("tools_tokens", signed(new.tools_tokens));
        values.set("tools_estimator", new.estimator);
        values.set("labels", found_by.labels.as_slice());
        values.set("title", found_by.title.as_deref());
    }
}

/// The rows that a fork copies, and the row of a session that is listed from now on. A fork is listed when it is
/// complete.
fn fork<'a>(values: &mut Values<'a>, change: &'a Change<'_>) {
    let fork = change.fork;
    let opens = fork.is_some_and(|fork| fork.opens);
    if opens || change.creates && fork.is_none() {
        values.run(&["new_session"]);
    }
    if opens {
        values.run(&["copy_compactions"]);
    }
    values.set("source", fork.map(|fork| fork.source.as_str()));
    values.set("at", fork.map(|fork| fork.at.0));
    values.set("is_hidden", fork.is_some_and(|fork| !fork.opens));
    if let Some((after, up_to)) = fork.and_then(|fork| fork.copies) {
        values.run(&["copy_messages", "copy_parts", "copy_prunes", "copy_blobs", "copy_calls"]);
        values.set("copied_after", after.0);
        values.set("copied_up_to", up_to.0);
    }
}

/// Tool results that are pruned from the context, or restored to it.
fn marks<'a>(values: &mut Values<'a>, marks: Option<Marks<'a>>) {
    let Some(Marks { places, mark }) = marks else { return };
    let statements: &[&'static str] = match mark {
        Mark::Pruned { placeholder } => {
            values.set("placeholder", signed(placeholder));
            &["prune"]
        }
        Mark::Restored { pruned_at } => {
            values.set("pruned_at", pruned_at.0);
            &["past_prune", "restore"]
        }
    };
    values.run(statements);
    values
        .rows(&[], places)
        .column("marked_messages", |(message, _)| message.as_str())
        .column("marked_positions", |(_, position)| signed(*position));
}

/// The calls in messages that a host appends. An empty message id means no result.
fn imports<'a>(values: &mut Values<'a>, imports: Option<ImportRows<'a>>) {
    let Some(ImportRows { calls, answers, .. }) = imports else { return };
    let place =
        |place: Option<&'a PartPosition>| place.map_or(("", 0), |(message, at)| (message.as_str(), signed(*at)));
    values
        .rows(&["import_calls"], calls)
        .column("imported_calls", |call| call.id.as_str())
        .column("imported_names", |call| call.name.as_str())
        .column("imported_messages", |call| place(Some(&call.made)).0)
        .column("imported_parts", |call| place(Some(&call.made)).1)
        .column("imported_results", |call| place(call.answered.as_ref()).0)
        .column("imported_positions", |call| place(call.answered.as_ref()).1);
    values
        .rows(&["import_answers"], answers)
        .column("answered_calls", |(call, _)| call.as_str())
        .column("answered_messages", |(_, answered)| place(Some(answered)).0)
        .column("answered_positions", |(_, answered)| place(Some(answered)).1);
}

/// The running compaction, if it is rebased to the new version of the context.
fn moved_compaction<'a>(values: &mut Values<'a>, seen: &Session, change: &'a Change<'_>) {
    if let (Some(before), Some(running)) = (&seen.compaction, &change.session.compaction)
        && before.id == running.id
        && before.context_version != running.context_version
    {
        values.run(&["move_compaction"]);
        values.set("moved_compaction", running.id.as_str());
        values.set("moved_to", running.context_version);
    }
}

/// Compactions that begin or end.
fn compactions<'a>(values: &mut Values<'a>, changes: &'a [CompactionChange<'_>]) {
    let mut reverted = Vec::new();
    for change in changes {
        match change {
            CompactionChange::Begins { compaction, info, lease } => {
                values.run(&["begin_compaction"]);
                values.set("begun_compaction", compaction.as_str());
                values.set("begun_info", *info);
                values.set("compaction_lease", lease.as_secs_f64());
            }
            CompactionChange::Fails { compaction, info } => {
                values.run(&["fail_compaction"]);
                values.set("failed_compaction", compaction.as_str());
                values.set("failed_info", *info);
            }
            CompactionChange::Applies { compaction, predecessor, replacement } => {
                values.run(&["apply_compaction"]);
                values.set("applied_compaction", compaction.as_str());
                values.set("predecessor", predecessor.as_ref().map(CompactionId::as_str));
                replaced(values, replacement);
            }
            CompactionChange::Reverts { compaction, at } => reverted.push((compaction.as_str(), at.0)),
        }
    }
    if let Some((_, at)) = reverted.last() {
        values.run(&["revert_compactions"]);
        values.set("reverted_at", *at);
        values.set("reverted", reverted.iter().map(|(compaction, _)| *compaction).collect::<Vec<_>>());
    }
}

fn replaced<'a>(values: &mut Values<'a>, replacement: &'a Replacement<'_>) {
    values.set("from_seq", replacement.from.0);
    values.set("to_seq", replacement.to.0);
    values.set("kept", replacement.kept.iter().map(|seq| seq.0).collect::<Vec<i64>>());
    values.set("hides_pinned", replacement.hides_pinned);
    values.set("summary", replacement.summary().map(MessageId::as_str));
    let TokenCounters { messages, overhead, tokens, parts } = &replacement.shift;
    values.set("applied_messages", *messages);
    values.set("applied_overhead", *overhead);
    values.set("applied_tokens", tokens.as_slice());
    values.set("applied_parts", parts.as_slice());
    values.set("applied_info", replacement.info);
}
