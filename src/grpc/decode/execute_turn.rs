//! Decodes ExecuteTurn.

use std::time::Duration;

use super::{
    Findings, Path, StreamOptions, config, duration,
    findings::StoredBlobs,
    generation,
    hash::{idempotency, request_hash},
    id, ignored, input, limits, number, stream, tools,
};
use crate::{
    grpc::violations::RequestError,
    model::command::{BusyPolicy, ExecuteTurn, SessionDraft, Start, TurnRequest},
    pb::{self, FieldReason},
};

/// Minimum time without readers after which a turn is ended.
const MIN_CANCEL_AFTER_DISCONNECT: Duration = Duration::from_secs(1);
pub const EXECUTE_TURN: &str = "contextd.v1.TurnService/ExecuteTurn";

/// Decodes an ExecuteTurnRequest.
pub fn execute_turn(
    mut request: pb::ExecuteTurnRequest,
    stored: StoredBlobs,
) -> Result<(ExecuteTurn, StreamOptions), RequestError> {
    let mut found = Findings::with(EXECUTE_TURN, stored);
    if let Some(session) = &request.session {
        config::check_large_fields(Path::to("session"), session, None, &mut found);
    }
    let (after_seq, stream) = take_call(&mut request);
    let hash = request_hash(EXECUTE_TURN, &request);
    let pb::ExecuteTurnRequest {
        session_id,
        request_id,
        after_seq: _,
        input,
        continue_transcript,
        tools,
        limits,
        model,
        generation,
        busy_policy,
        cancel_after_disconnect,
        stream: _,
        session,
    } = request;
    let model = config::model(Path::to("model"), model, &mut found);
    let command = ExecuteTurn {
        session: id::optional_session(Path::to("session_id"), session_id, &mut found),
        idempotency: idempotency(request_id, hash, &mut found),
        after: number::seq(Path::to("after_seq"), after_seq, &mut found),
        start: start(input, continue_transcript, &mut found),
        contents: found.take_contents(),
        request: TurnRequest {
            tools: tools.map(|tools| tools::set(Path::to("tools"), tools, &mut found)),
            limits: limits::read(Path::to("limits"), limits, &mut found),
            model: (!model.is_empty()).then_some(model),
            generation: generation::read(Path::to("generation"), generation, &mut found),
            cancel_after: cancel_after_disconnect.and_then(|after| {
                duration::within(
                    MIN_CANCEL_AFTER_DISCONNECT..=duration::DAY,
                    Path::to("cancel_after_disconnect"),
                    after,
                    &mut found,
                )
            }),
        },
        busy: busy(Path::to("busy_policy"), busy_policy, &mut found),
        create: session.map(|session| create(Path::to("session"), session, &mut found)),
    };
    let stream = stream::options(stream, &mut found);
    found.finish((command, stream))
}

/// Takes out the fields that belong to the call and clears ignored fields. The rest must be the same in a
/// repeated request.
fn take_call(request: &mut pb::ExecuteTurnRequest) -> (i64, Option<pb::StreamOptions>) {
    request.session.iter_mut().for_each(ignored::clear_session);
    request
        .input
        .iter_mut()
        .flat_map(|input| &mut input.parts)
        .for_each(ignored::clear_part);
    (
        std::mem::take(&mut request.after_seq),
        request.stream.take(),
    )
}

/// What the turn starts with. Without input and without `continue_transcript`, it starts with the queued
/// messages. Does not check that there are any.
fn start(
    input: Option<pb::InputMessage>,
    continue_transcript: bool,
    found: &mut Findings,
) -> Start {
    if continue_transcript && input.is_some() {
        found.invalid(
            Path::to("continue_transcript"),
            FieldReason::Conflict,
            "must not be set together with input",
        );
    }
    match input {
        Some(input) => Start::Input(Box::new(input::user(Path::to("input"), input, found))),
        None if continue_transcript => Start::Transcript,
        None => Start::Queue,
    }
}

fn busy(at: Path<'_>, policy: i32, found: &mut Findings) -> BusyPolicy {
    match number::enum_value(at, policy, found) {
        Some(pb::BusyPolicy::Unspecified | pb::BusyPolicy::Enqueue) | None => BusyPolicy::Enqueue,
        Some(pb::BusyPolicy::Reject) => BusyPolicy::Reject,
        Some(pb::BusyPolicy::Interrupt) => BusyPolicy::Interrupt,
    }
}

fn create(at: Path<'_>, session: pb::Session, found: &mut Findings) -> SessionDraft {
    if !session.session_id.is_empty() {
        found.invalid(
            at.field("session_id"),
            FieldReason::Conflict,
            "must be empty; set the request's session_id instead",
        );
    }
    config::draft(at, session, found)
}
