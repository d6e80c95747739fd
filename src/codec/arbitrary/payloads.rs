//! An event of each kind, for the tests of stored events.

use std::{collections::BTreeMap, time::Duration};

use crate::model::{
    AppliedMessage, CallId, CancelCause, CancelOutcome, CompactionId, CompletionReason, DropReason, Ending, Failure,
    FailureReason, Generation, Limits, MessageId, Payload, PruneReport, Restored, TokenBasis, TokenCount, ToolCall,
    ToolExecutor, TurnResult, UsagePurpose,
    event::{
        CallCancelReason, ModelFallback, ModelSwitched, StepStarted, TurnRetrying, TurnStarted, UnsupportedPart,
        UnsupportedSetting, UsageRecorded,
    },
    generation::{Setting, Unsupported},
    media::OmittedMedia,
};

fn left_out() -> OmittedMedia {
    OmittedMedia {
        message: MessageId::new("m"),
        part: 1,
        media_type: "image/png".to_owned(),
        filename: "a.png".to_owned(),
        why: "The model takes no image/png.".to_owned(),
    }
}

fn usage_recorded(model: String) -> Payload {
    let message = None;
    let compaction = Some(CompactionId::new("k1"));
    Payload::UsageRecorded(UsageRecorded {
        purpose: UsagePurpose::Compaction,
        model,
        usage: None,
        estimate: None,
        ratio: 1.25,
        message,
        compaction,
    })
}

/// One payload of each kind. Payloads that refer to content use message `m1` and call `c1`.
pub(in crate::codec) fn payloads() -> Vec<Payload> {
    let message = MessageId::new("m1");
    let call = CallId::new("c1");
    let second = Duration::from_secs(1);
    let model = "a/b".to_owned();
    let name = "bash".to_owned();
    let failure = Failure::local(FailureReason::Internal, "broken", false);
    let limits = Limits {
        max_steps: 50,
        max_output_tokens: None,
        max_total_tokens: None,
        turn_timeout: second,
        tool_timeout: second,
        grace: second,
    };
    let context = TokenCount { tokens: 1, basis: TokenBasis::Heuristic, margin: 0, estimator: "chars".to_owned() };
    let cancelled = Ending::Cancelled {
        cause: CancelCause::Requested,
        outcome: CancelOutcome::None,
        reason: "enough".to_owned(),
        undone: None,
    };
    let ended = |ending| Payload::TurnEnded { ending, result: TurnResult::default() };
    vec![
        Payload::TurnStarted(TurnStarted {
            request: None,
            model: model.clone(),
            limits,
            tool_names: vec![name.clone()],
            input: None,
        }),
        Payload::StepStarted(StepStarted { model: model.clone(), revision: 1, context, window: 1000, reserve: 100 }),
        Payload::MessageCommitted { message },
        Payload::ToolCallRequested {
            call: ToolCall { id: call.clone(), name: name.clone(), arguments: "{}".to_owned() },
            timeout: second,
            edited: false,
            executor: ToolExecutor::Host,
        },
        Payload::ApprovalRequested {
            call: ToolCall { id: call.clone(), name: name.clone(), arguments: "{}".to_owned() },
            timeout: second,
        },
        Payload::ToolCallCompleted { call: call.clone() },
        Payload::ToolCallCancelled { call: call.clone(), name, reason: CallCancelReason::TurnEnded },
        Payload::ActionRequired { results: vec![call], approvals: Vec::new() },
        usage_recorded(model),
        Payload::UnsupportedPart(UnsupportedPart {
            left_out: left_out(),
            provider: "scripted".to_owned(),
            model: "scripted/demo".to_owned(),
        }),
        Payload::UnsupportedSetting(UnsupportedSetting {
            unsupported: Unsupported { setting: Setting::TopK, why: "It has none.".to_owned() },
            provider: "a".to_owned(),
            model: "a/b".to_owned(),
        }),
        Payload::TurnRetrying(TurnRetrying { failure: failure.clone(), next_attempt: 2, delay: second, voided: None }),
        Payload::ModelSwitched(ModelSwitched {
            from: "a/b".to_owned(),
            to: "a/c".to_owned(),
            revision: 2,
            generation: Generation { seed: Some(7), ..Generation::default() },
        }),
        Payload::ModelFallback(ModelFallback {
            from: "a/b".to_owned(),
            to: "a/c".to_owned(),
            reason: failure.reason,
            window: 1000,
            reserve: 100,
        }),
        Payload::SessionUpdated { revision: 2, paths: vec!["model".to_owned()] },
        Payload::ContextPruned { report: PruneReport { saved: 1, ..PruneReport::default() } },
        Payload::ContextRestored { restored: Restored::default() },
        Payload::MessagesApplied {
            message: MessageId::new("m1"),
            taken: vec![AppliedMessage {
                message: MessageId::new("q1"),
                queued_at: jiff::Timestamp::UNIX_EPOCH,
                metadata: BTreeMap::new(),
            }],
        },
        Payload::QueuedMessageDropped { message: MessageId::new("q1"), reason: DropReason::TooLarge },
        ended(Ending::Completed(CompletionReason::Stop)),
        ended(cancelled),
        ended(Ending::Failed(failure)),
    ]
}
