//! Stored events to their wire form. Content that an event refers to is filled in; an event that cannot be read is sent
//! without a payload.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use crate::{
    codec::{DecodeError, field::Field as _, message},
    model::{
        CallId, Message, MessageId, SessionId, ToolResult, derive,
        event::{StepPosition, StoredEvent},
    },
    pb::{self, event::Payload},
};

use super::kind;

/// The content that the events of a page refer to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventContent {
    /// Committed messages.
    pub messages: BTreeMap<MessageId, Message>,
    /// Completed calls.
    pub results: BTreeMap<CallId, CompletedCall>,
}

impl EventContent {
    /// Whether all content that the events refer to is present, messages with their parts.
    pub fn has_all(&self, events: &[StoredEvent]) -> bool {
        let (messages, calls) = refs_to_load(events);
        // Retention removes the parts of a message before the message.
        let is_whole = |message: &Message| !message.parts.is_empty();
        messages.iter().all(|id| self.messages.get(id).is_some_and(is_whole))
            && calls.iter().all(|id| self.results.contains_key(id))
    }
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedCall {
    pub result: ToolResult,
    /// Time from the request to the result.
    pub elapsed: Duration,
}

/// The messages and calls that must be loaded before these events can be read.
pub fn refs_to_load(events: &[StoredEvent]) -> (Vec<MessageId>, Vec<CallId>) {
    let refs_of = |kind| events.iter().filter(move |event| event.kind == kind).flat_map(|event| &event.refs);
    (
        refs_of(kind::MESSAGE_COMMITTED).map(MessageId::new).collect(),
        refs_of(kind::TOOL_CALL_COMPLETED).map(CallId::new).collect(),
    )
}

/// Converts an event for the wire. It has no payload if its kind is newer than this version, or if it cannot be read.
pub fn to_pb(event: &StoredEvent, session: &SessionId, content: &EventContent) -> pb::Event {
    let payload = payload(event, session, content).unwrap_or_else(|error| {
        tracing::error!(
            session.id = %session,
            event.seq = event.seq.0,
            event.kind = event.kind.as_str(),
            %error,
            "cannot decode an event; sending it without its payload"
        );
        None
    });
    pb::Event {
        seq: event.seq.0,
        session_id: session.to_string(),
        turn_id: event.turn.to_field(),
        step: event.step.to_field(),
        attempt: event.attempt.to_field(),
        time: event.at.to_field(),
        replay: false,
        payload,
    }
}

/// The payload that the event's writer encoded, with the content that it refers to, and with what only the statement
/// that wrote it knew: its refs, its size and the totals. Most kinds are encoded whole.
fn payload(event: &StoredEvent, session: &SessionId, content: &EventContent) -> Result<Option<Payload>, DecodeError> {
    let stored = Payload::decode_message(&event.kind, &event.payload);
    let mut payload = stored.map_err(|error| DecodeError::new("event", error))?;
    match &mut payload {
        Some(Payload::StepStarted(started)) => {
            if let Some(size) = event.size {
                started.context_tokens.get_or_insert_default().tokens = saturated(size.max(0));
            }
        }
        Some(Payload::MessageCommitted(committed)) => {
            let id = MessageId::new(first_ref(event)?);
            let found = content.messages.get(&id).ok_or_else(|| missing("message", id.as_str()))?;
            committed.message = Some(message::to_pb(found, session));
        }
        Some(
            Payload::ToolCallRequested(pb::PendingCall { deadline, .. })
            | Payload::ApprovalRequested(pb::PendingApproval { deadline, .. }),
        ) => {
            *deadline = Some(absolute(deadline.take(), event.at)?);
        }
        Some(Payload::ToolCallCompleted(completed)) => {
            let id = CallId::new(first_ref(event)?);
            let found = content.results.get(&id).ok_or_else(|| missing("result of call", id.as_str()))?;
            completed.result = found.result.to_field();
            completed.elapsed = found.elapsed.to_field();
        }
        // The end of a turn cancels calls that only the statement knows.
        Some(Payload::ToolCallCancelled(cancelled)) => {
            if let [call, tool] = event.refs.as_slice() {
                cancelled.call_id.clone_from(call);
                cancelled.tool_name.clone_from(tool);
            }
        }
        Some(Payload::ActionRequired(action)) => action_required(action, event),
        Some(Payload::TurnRecovered(recovered)) => *recovered = turn_recovered(event),
        Some(Payload::ModelSwitched(switched)) => {
            switched.messages_retained = saturated(event.size.unwrap_or_default());
        }
        Some(
            Payload::QueuedMessageCancelled(pb::QueuedMessageCancelled { queued_message_id })
            | Payload::QueuedMessageExpired(pb::QueuedMessageExpired { queued_message_id })
            | Payload::QueuedMessageDropped(pb::QueuedMessageDropped { queued_message_id, .. }),
        ) => {
            queued_message_id.clone_from(first_ref(event)?);
        }
        Some(Payload::ContextPruned(pb::ContextPruned { report })) => {
            report.get_or_insert_default().pruned_at_seq = event.seq.0;
        }
        Some(
            Payload::CompactionStarted(pb::CompactionStarted { compaction })
            | Payload::CompactionCompleted(pb::CompactionCompleted { compaction })
            | Payload::CompactionFailed(pb::CompactionFailed { compaction }),
        ) => {
            add_compaction_ids(compaction.get_or_insert_default(), event, session)?;
        }
        Some(Payload::CompactionReverted(pb::CompactionReverted { compaction })) => {
            let compaction = compaction.get_or_insert_default();
            add_compaction_ids(compaction, event, session)?;
            compaction.set_state(pb::CompactionState::Reverted);
        }
        Some(
            Payload::TurnCompleted(pb::TurnCompleted { result, .. })
            | Payload::TurnCancelled(pb::TurnCancelled { result, .. })
            | Payload::TurnFailed(pb::TurnFailed { result, .. }),
        ) => {
            add_totals(result.get_or_insert_default(), event);
        }
        Some(_) | None => {}
    }
    Ok(payload)
}

/// A takeover. The event's ref is the cause, its size the number of takeovers so far.
fn turn_recovered(event: &StoredEvent) -> pb::TurnRecovered {
    let before = StepPosition { step: event.step, attempt: event.attempt.saturating_sub(1) };
    let cause = match event.refs.first().map(String::as_str) {
        Some(kind::LEASE_EXPIRED) => pb::RecoveryCause::LeaseExpired,
        Some(kind::HANDED_OVER) => pb::RecoveryCause::HandedOver,
        _ => pb::RecoveryCause::Unspecified,
    };
    let voided = event.turn.as_ref().map(|turn| derive::answer(turn, before));
    pb::TurnRecovered {
        cause: cause.into(),
        voided_message_id: voided.to_field(),
        takeovers: saturated(event.size.unwrap_or_default()),
    }
}

/// Adds the compaction's id, which the event stores as a ref, and its session.
fn add_compaction_ids(
    compaction: &mut pb::Compaction,
    event: &StoredEvent,
    session: &SessionId,
) -> Result<(), DecodeError> {
    compaction.compaction_id.clone_from(first_ref(event)?);
    compaction.session_id = session.to_string();
    Ok(())
}

fn first_ref(event: &StoredEvent) -> Result<&String, DecodeError> {
    event.refs.first().ok_or_else(|| DecodeError::new("event", "its reference is missing"))
}

fn missing(what: &str, id: &str) -> DecodeError {
    DecodeError::new("event", format_args!("the {what} {id} is missing"))
}

fn saturated(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Converts a stored deadline, which is relative to the event's time, to an absolute one.
fn absolute(stored: Option<prost_types::Timestamp>, at: Timestamp) -> Result<prost_types::Timestamp, DecodeError> {
    let Some(prost_types::Timestamp { seconds, nanos }) = stored else {
        return Err(DecodeError::new("event", "its deadline is missing"));
    };
    let timeout = Duration::from_field("deadline", prost_types::Duration { seconds, nanos })?;
    Ok(at.checked_add(timeout).unwrap_or(Timestamp::MAX).to_field())
}

/// After a submitted result only the statement knows the calls: the refs are their ids; the first `size` of them wait
/// for a result, the others for an approval.
fn action_required(action: &mut pb::ActionRequired, event: &StoredEvent) {
    let Some(results) = event.size.and_then(|size| usize::try_from(size).ok()) else {
        return;
    };
    let (results, approvals) = event.refs.split_at(results.min(event.refs.len()));
    *action = pb::ActionRequired { result_call_ids: results.to_vec(), approval_call_ids: approvals.to_vec() };
}

/// Adds the messages that are still queued, and the totals. The owner encoded the result without a compaction that
/// ended during its last call.
fn add_totals(result: &mut pb::TurnResult, event: &StoredEvent) {
    result.queued_message_ids.clone_from(&event.refs);
    if let Some(totals) = &event.totals {
        result.total_usage = Some(totals.to_field());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        codec::{arbitrary, event::encode},
        model::{
            self, Category, CompletionReason, Ending, Generation, Part, PartSize, Role, Seq, TokenBasis, TokenCount,
            ToolCall, ToolOutcome, TurnId, TurnResult, UsageTotals,
            event::{ModelSwitched, StepStarted},
            message::StoredPart,
        },
    };

    fn stored(payload: &model::Payload) -> StoredEvent {
        let encoded = encode(payload);
        StoredEvent {
            seq: Seq(7),
            turn: Some(TurnId::new("t1")),
            step: 1,
            attempt: 2,
            at: Timestamp::from_second(1_000_000).unwrap(),
            kind: encoded.kind.to_owned(),
            refs: encoded.refs,
            size: None,
            totals: None,
            payload: encoded.payload,
        }
    }

    fn content() -> EventContent {
        let part = Part::text("hello");
        let size = PartSize { tokens: 2, category: Category::User };
        let message = Message {
            id: MessageId::new("m1"),
            turn: None,
            step: 0,
            seq: Seq(7),
            role: Role::User,
            parts: vec![StoredPart { part, size, estimator: "chars".to_owned(), pruned: None }],
            overhead: 4,
            created_at: Timestamp::UNIX_EPOCH,
            response: None,
            pinned: false,
            metadata: BTreeMap::new(),
            queued: Vec::new(),
            is_summary: false,
            compacted_by: None,
            voided_at: None,
        };
        let result = ToolResult {
            call: CallId::new("c1"),
            name: "bash".to_owned(),
            parts: vec!["ok".into()],
            outcome: ToolOutcome::Success,
            truncation: None,
            display_text: String::new(),
        };
        EventContent {
            messages: [(message.id.clone(), message)].into(),
            results: [(CallId::new("c1"), CompletedCall { result, elapsed: Duration::from_millis(1500) })].into(),
        }
    }

    fn payload_of(event: &StoredEvent) -> Option<Payload> {
        to_pb(event, &SessionId::new("s1"), &content()).payload
    }

    #[test]
    fn each_kind_that_is_written_is_read() {
        for payload in arbitrary::payloads() {
            let event = stored(&payload);
            assert!(payload_of(&event).is_some(), "{} has no payload", event.kind);
        }
    }

    #[test]
    fn event_envelope_is_filled_from_the_columns() {
        let event = stored(&model::Payload::ActionRequired { results: vec![CallId::new("c1")], approvals: Vec::new() });
        let wire = to_pb(&event, &SessionId::new("s1"), &EventContent::default());
        assert_eq!((wire.seq, wire.session_id.as_str(), wire.turn_id.as_str()), (7, "s1", "t1"));
        let time: Option<prost_types::Timestamp> = event.at.to_field();
        assert_eq!((wire.step, wire.attempt, wire.time), (1, 2, time));
    }

    #[test]
    fn a_deadline_counts_from_the_events_time() {
        let call = ToolCall { id: CallId::new("c1"), name: "bash".to_owned(), arguments: "{}".to_owned() };
        let timeout = Duration::from_millis(600_500);
        let edited = true;
        let deadline = Some(prost_types::Timestamp { seconds: 1_000_600, nanos: 500_000_000 });
        let event = stored(&model::Payload::ToolCallRequested {
            call: call.clone(),
            timeout,
            edited,
            executor: model::ToolExecutor::Host,
        });
        let Some(Payload::ToolCallRequested(pending)) = payload_of(&event) else { panic!("no request") };
        assert_eq!((pending.deadline, pending.arguments_edited), (deadline, true));
        assert_eq!(pending.executor(), pb::ToolExecutor::Host);
        let event = stored(&model::Payload::ApprovalRequested { call, timeout });
        let Some(Payload::ApprovalRequested(pending)) = payload_of(&event) else { panic!("no question") };
        assert_eq!((pending.call.unwrap().call_id.as_str(), pending.deadline), ("c1", deadline));
    }

    #[test]
    fn required_action_is_read_from_refs_and_size() {
        let told =
            model::Payload::ActionRequired { results: vec![CallId::new("c1")], approvals: vec![CallId::new("c2")] };
        let check = |event: StoredEvent, results: &[&str], approvals: &[&str]| {
            let Some(Payload::ActionRequired(action)) = payload_of(&event) else { panic!("no action") };
            assert_eq!((action.result_call_ids, action.approval_call_ids), (owned(results), owned(approvals)));
        };
        check(stored(&told), &["c1"], &["c2"]);
        let known = |size, refs: &[&str]| StoredEvent {
            size: Some(size),
            refs: owned(refs),
            payload: Vec::new(),
            ..stored(&told)
        };
        check(known(2, &["a", "b", "c"]), &["a", "b"], &["c"]);
        check(known(0, &["a"]), &[], &["a"]);
        check(known(9, &["a"]), &["a"], &[]);
    }

    fn owned(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn context_size_of_the_statement_overrides_the_payload() {
        let context = TokenCount { tokens: 10, basis: TokenBasis::Heuristic, margin: 3, estimator: "chars".to_owned() };
        let started = model::Payload::StepStarted(StepStarted {
            model: "a/b".to_owned(),
            revision: 12,
            context,
            window: 1000,
            reserve: 100,
        });
        let check = |size, expected| {
            let event = StoredEvent { size, ..stored(&started) };
            let Some(Payload::StepStarted(started)) = payload_of(&event) else { panic!("no step") };
            assert_eq!(started.etag, "12");
            assert_eq!(started.context_tokens.map(|count| (count.tokens, count.margin)), Some((expected, 3)));
        };
        check(None, 10);
        check(Some(512), 512);
    }

    #[test]
    fn model_switch_event_counts_the_messages_that_its_statement_found() {
        let switched = model::Payload::ModelSwitched(ModelSwitched {
            from: "a/b".to_owned(),
            to: "a/c".to_owned(),
            revision: 3,
            generation: Generation { seed: Some(7), ..Generation::default() },
        });
        let event = StoredEvent { turn: None, size: Some(7), ..stored(&switched) };
        let Some(Payload::ModelSwitched(switched)) = payload_of(&event) else { panic!("no switch") };
        assert_eq!((switched.etag.as_str(), switched.messages_retained), ("3", 7));
        assert_eq!(switched.generation.and_then(|generation| generation.seed), Some(7));
    }

    #[test]
    fn dropped_message_event_is_named_by_the_delete_statement() {
        let event = StoredEvent {
            kind: kind::QUEUED_MESSAGE_DROPPED.to_owned(),
            refs: vec!["q1".to_owned()],
            payload: crate::codec::event::encode_dropped_with_session(),
            ..stored(&model::Payload::ActionRequired { results: Vec::new(), approvals: Vec::new() })
        };
        let Some(Payload::QueuedMessageDropped(dropped)) = payload_of(&event) else { panic!("no drop") };
        assert_eq!((dropped.queued_message_id.as_str(), dropped.reason()), ("q1", pb::DropReason::SessionDeleted));
    }

    #[test]
    fn message_events_are_filled_with_content() {
        let event = stored(&model::Payload::MessageCommitted { message: MessageId::new("m1") });
        let Some(Payload::MessageCommitted(committed)) = payload_of(&event) else { panic!("no message") };
        assert_eq!(committed.message.unwrap().message_id, "m1");
        let event = stored(&model::Payload::ToolCallCompleted { call: CallId::new("c1") });
        let Some(Payload::ToolCallCompleted(completed)) = payload_of(&event) else { panic!("no result") };
        assert_eq!(completed.elapsed, Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }));
        assert_eq!(completed.result.unwrap().call_id, "c1");
    }

    #[test]
    fn terminal_event_lists_pending_messages_and_total_usage() {
        let ended = model::Payload::TurnEnded {
            ending: Ending::Completed(CompletionReason::Stop),
            result: TurnResult::default(),
        };
        let totals = Some(UsageTotals { calls: 3, input: 20, output: 4, ..UsageTotals::default() });
        let event = StoredEvent { refs: vec!["q1".to_owned(), "q2".to_owned()], totals, ..stored(&ended) };
        let Some(Payload::TurnCompleted(completed)) = payload_of(&event) else { panic!("no end") };
        let result = completed.result.unwrap();
        assert_eq!(result.queued_message_ids, ["q1", "q2"]);
        assert_eq!(result.total_usage.map(|spent| (spent.calls, spent.total_tokens)), Some((3, 24)));
    }

    #[test]
    fn an_unreadable_event_keeps_its_seq_and_has_no_payload() {
        let event = stored(&model::Payload::ActionRequired { results: Vec::new(), approvals: Vec::new() });
        let check = |event: StoredEvent| {
            let wire = to_pb(&event, &SessionId::new("s1"), &EventContent::default());
            assert_eq!((wire.seq, wire.payload), (7, None));
        };
        check(StoredEvent { kind: "moon_landing".to_owned(), ..event.clone() });
        check(StoredEvent { payload: vec![0xff], ..event });
        check(stored(&model::Payload::MessageCommitted { message: MessageId::new("gone") }));
    }

    #[test]
    fn only_messages_and_results_are_loaded_for_events() {
        let call = ToolCall { id: CallId::new("c2"), name: "bash".to_owned(), arguments: "{}".to_owned() };
        let events = [
            stored(&model::Payload::MessageCommitted { message: MessageId::new("m1") }),
            stored(&model::Payload::ToolCallRequested {
                call,
                timeout: Duration::from_secs(1),
                edited: false,
                executor: model::ToolExecutor::Host,
            }),
            stored(&model::Payload::ToolCallCompleted { call: CallId::new("c1") }),
        ];
        assert_eq!(refs_to_load(&events), (vec![MessageId::new("m1")], vec![CallId::new("c1")]));
    }
}
