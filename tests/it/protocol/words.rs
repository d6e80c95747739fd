//! The rows that actors write: as small as the rules allow, each with a mark that identifies the writer and the fence.

use std::{collections::BTreeMap, time::Duration};

use contextd::{
    codec::event::encode,
    model::{
        CallId, Category, Content, FailureReason, Fence, MessageId, Part, PartSize, Payload, RequestId, Role,
        SessionConfig, ToolCall, ToolOutcome, ToolResult, TurnId,
        command::{Idempotency, TurnRequest},
        event::{ModelFallback, StepPosition, WaitsFor},
        message::StoredPart,
    },
    session::{
        answers::Approval,
        change::{Answer, AnswerKind, TurnRow},
        new_calls::{Batch, CallHandling, NewCall},
        rows::{NewMessage, Rows},
        start::NewTurn,
    },
    store::{admission::Admission, tool_call::OpenCall},
};

use crate::harness::payloads;

/// The name of the estimator.
pub(super) const ESTIMATOR: &str = "test";
/// Tokens of a message in addition to its parts.
pub(super) const OVERHEAD: u32 = 4;
/// The timeout of a call. Time only passes when an actor advances it.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn at() -> StepPosition {
    StepPosition { step: 1, attempt: 1 }
}

pub(super) fn request(id: &str) -> Idempotency {
    Idempotency { request: Some(RequestId::new(id)), hash: format!("hash of {id}") }
}

/// The mark of a write of an owner.
pub(super) fn mark(verb: &str, session: &str, fence: Fence, n: u64) -> String {
    format!("{verb}/{session}/{}/{}/{n}", fence.epoch, fence.op)
}

/// Rows with only a mark.
pub(super) fn marked(mark: &str) -> Rows {
    let mut rows = Rows::new(ESTIMATOR, 10);
    rows.event(payloads::noted(mark), at());
    rows
}

/// Rows of a turn that continues with a fallback model named after the mark, and its request from then on.
pub(super) fn fallback(mark: &str) -> (Rows, Option<Box<TurnRequest>>) {
    let model = format!("test/{mark}");
    let mut rows = marked(mark);
    let fallback = ModelFallback {
        from: "test/model".to_owned(),
        to: model.clone(),
        reason: FailureReason::ProviderOverloaded,
        window: 0,
        reserve: 0,
    };
    rows.event(Payload::ModelFallback(fallback), at());
    let request = TurnRequest { model: Some(model), ..TurnRequest::default() };
    (rows, Some(Box::new(request)))
}

pub(super) fn part(content: Content, tokens: u32, category: Category) -> StoredPart {
    StoredPart {
        part: Part::new(content),
        size: PartSize { tokens, category },
        estimator: ESTIMATOR.to_owned(),
        pruned: None,
    }
}

pub(super) fn text(words: &str, tokens: u32, category: Category) -> StoredPart {
    part(Content::Text(words.to_owned()), tokens, category)
}

pub(super) fn message(id: &str, role: Role, parts: Vec<StoredPart>) -> NewMessage {
    NewMessage {
        id: MessageId::new(id),
        role,
        parts,
        overhead: OVERHEAD,
        pinned: false,
        metadata: BTreeMap::new(),
        response: None,
        queued: Vec::new(),
        created_at: None,
    }
}

/// The first rows of a turn. A turn without input starts for a pending message.
pub(super) fn opening(turn: &TurnId, input: bool) -> Rows {
    let mut rows = Rows::new(ESTIMATOR, 10);
    rows.event(payloads::turn_started(), StepPosition::default());
    if input {
        let said = vec![text("do it", 11, Category::User)];
        rows.message(message(&format!("{turn}-input"), Role::User, said), StepPosition::default());
    }
    rows.event(payloads::step_started(), at());
    rows
}

pub(super) fn admission<'a>(
    turn: &'a TurnId,
    rows: &'a Rows,
    idempotency: &'a Idempotency,
    request: &'a TurnRequest,
    revision: i64,
) -> Admission<'a> {
    let row = TurnRow { request_id: idempotency.request.as_ref(), request, model: "scripted/demo" };
    let new = NewTurn { turn, rows, timeout: Duration::from_secs(600), revision, row };
    Admission { new, idempotency, continues: false }
}

/// A configuration that differs from others only in its prompt.
pub(super) fn config(prompt: &str) -> SessionConfig {
    SessionConfig {
        model: "scripted/demo".to_owned(),
        system_prompt: prompt.to_owned(),
        policy: "default".to_owned(),
        ..SessionConfig::default()
    }
}

/// How the calls of a batch are requested.
#[derive(Debug, Clone, Copy)]
pub(super) enum Handing {
    AtOnce,
    OneByOne,
    AskingFirst,
}

/// A message with calls, and the calls.
pub(super) fn calls(mark: &str, count: usize, handing: Handing) -> (Rows, Batch) {
    let ids: Vec<CallId> = (0..count).map(|n| CallId::new(format!("{mark}-c{n}"))).collect();
    let said = ids.iter().map(|id| part(Content::ToolCall(look(id)), 5, Category::ToolCalls)).collect();
    let caller = format!("{mark}-calls");
    let results = format!("{mark}-results");
    let mut rows = marked(mark);
    rows.message(message(&caller, Role::Assistant, said), at());
    let calls = ids.into_iter().enumerate().map(|(part, id)| {
        let call = look(&id);
        let fate = match (handing, part) {
            (Handing::AtOnce, _) | (Handing::OneByOne, 0) => {
                CallHandling::Requested(WaitsFor::Result { edited: false })
            }
            (Handing::AskingFirst, _) => CallHandling::Requested(WaitsFor::Approval),
            (Handing::OneByOne, _) => CallHandling::Later {
                waits_for: WaitsFor::Result { edited: false },
                request: Box::new(Payload::ToolCallRequested {
                    call,
                    timeout: TIMEOUT,
                    edited: false,
                    executor: contextd::model::ToolExecutor::Host,
                }),
            },
        };
        NewCall {
            executor: contextd::model::ToolExecutor::Host,
            id,
            name: "look".to_owned(),
            part,
            handling: fate,
            timeout: TIMEOUT,
        }
    });
    let calls = calls.collect();
    (rows, Batch { message: MessageId::new(caller), results: MessageId::new(results), calls })
}

fn look(id: &CallId) -> ToolCall {
    ToolCall { id: id.clone(), name: "look".to_owned(), arguments: "{}".to_owned() }
}

/// The response to a waiting call: an approval, or a result that closes it.
pub(super) fn answer(open: &OpenCall, yes: bool) -> Result<Answer, Box<Approval>> {
    let call = open.pending.call.clone();
    let kind = match open.pending.waits_for {
        WaitsFor::Approval if yes => {
            let request = Payload::ToolCallRequested {
                call: call.clone(),
                timeout: TIMEOUT,
                edited: false,
                executor: contextd::model::ToolExecutor::Host,
            };
            return Err(Box::new(Approval { call: call.id, edited: None, request: encode(&request).payload }));
        }
        WaitsFor::Approval => AnswerKind::Denial,
        WaitsFor::Result { edited: _ } if open.overdue => AnswerKind::Overdue,
        WaitsFor::Result { edited } => AnswerKind::Result { edited },
    };
    let part = Part::new(Content::ToolResult(ToolResult {
        call: call.id.clone(),
        name: call.name,
        parts: vec!["seen".into()],
        outcome: ToolOutcome::Success,
        truncation: None,
        display_text: String::new(),
    }));
    Ok(Answer { call: call.id, kind, part, tokens: 3, hash: "answer".to_owned(), blobs: Vec::new() })
}
