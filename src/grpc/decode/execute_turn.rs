//! Decodes ExecuteTurn.

use super::{
    Findings, Path, StreamOptions, config,
    findings::StoredBlobs,
    generation,
    hash::{idempotency, request_hash},
    id, input, number, stream, text, tools,
};
use crate::{
    codec,
    grpc::violations::RequestError,
    model::{
        Seq,
        command::{BusyPolicy, ExecuteTurn, SessionDraft, Start, TurnRequest},
    },
    pb::{self, FieldReason, rpc},
};

/// Decodes an ExecuteTurnRequest.
pub fn execute_turn(
    mut request: pb::ExecuteTurnRequest,
    stored: StoredBlobs,
) -> Result<(ExecuteTurn, StreamOptions), RequestError> {
    let is_partial = config::is_partial(request.session.as_ref());
    let mut found = Findings::check_with(rpc::EXECUTE_TURN, &mut request, stored);
    if let Some(session) = request.session.as_ref().filter(|_| is_partial) {
        config::check_large_fields(Path::to("session"), session, None, &mut found);
    }
    // These belong to the call. The rest must be the same in a repeated request.
    let after_seq = std::mem::take(&mut request.after_seq);
    let stream = request.stream.take();
    let hash = request_hash(rpc::EXECUTE_TURN, &request);
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
    let command = ExecuteTurn {
        session: id::optional_session(session_id),
        idempotency: idempotency(request_id, hash),
        after: Seq(after_seq),
        start: start(input, continue_transcript, &mut found),
        contents: found.take_contents(),
        request: TurnRequest {
            tools: tools.map(|tools| tools::set(Path::to("tools"), tools, &mut found)),
            limits: found.converted(Path::to("limits"), codec::limits::override_from_pb(limits.unwrap_or_default())),
            model: text::non_empty(model),
            generation: generation::read(Path::to("generation"), generation, &mut found),
            cancel_after: number::duration(cancel_after_disconnect),
        },
        busy: busy(busy_policy),
        create: session.map(|session| create(Path::to("session"), session, &mut found)),
    };
    found.finish((command, stream::options(stream)))
}

/// What the turn starts with. Without input and without `continue_transcript`, it starts with the queued
/// messages. Does not check that there are any.
fn start(input: Option<pb::InputMessage>, continue_transcript: bool, found: &mut Findings) -> Start {
    if continue_transcript && input.is_some() {
        found.invalid(Path::to("continue_transcript"), FieldReason::Conflict, "must not be set together with input");
    }
    match input {
        Some(input) => Start::Input(Box::new(input::user(Path::to("input"), input, found))),
        None if continue_transcript => Start::Transcript,
        None => Start::Queue,
    }
}

fn busy(policy: i32) -> BusyPolicy {
    match number::choice(policy) {
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
