//! Decodes ExecuteTurn.

use super::{
    Decode, Findings, Path, StreamOptions, config, generation, hash::request_hash, input, media, number, stream, text,
    tools,
};
use crate::{
    codec::{
        DecodeError,
        field::{Field, choices},
    },
    model::{
        BlobId, Seq, SessionId,
        command::{BusyPolicy, ExecuteTurn, SessionDraft, Start, TurnRequest},
    },
    pb::{self, FieldReason, Rpc as _, limits::Limited as _},
};

impl Decode for pb::ExecuteTurnRequest {
    type Command = (ExecuteTurn, StreamOptions);

    fn blobs(&self) -> Vec<BlobId> {
        media::blobs_in_messages(&self.input)
    }

    fn clear_server_fields(&mut self, found: &mut Findings) {
        config::check_large_fields(self.session.as_ref(), None, found);
        self.clear_output_only();
    }

    fn hash(&mut self) -> String {
        // These belong to the call. The rest must be the same in a repeated request.
        let (after_seq, stream) = (std::mem::take(&mut self.after_seq), self.stream.take());
        let hash = request_hash(Self::NAME, self);
        (self.after_seq, self.stream) = (after_seq, stream);
        hash
    }

    fn read(self, found: &mut Findings) -> Result<(ExecuteTurn, StreamOptions), DecodeError> {
        let Self {
            session_id,
            request_id,
            after_seq,
            input,
            continue_transcript,
            tools,
            limits,
            model,
            generation,
            busy_policy,
            cancel_after_disconnect,
            stream,
            session,
        } = self;
        let command = ExecuteTurn {
            session: text::non_empty(session_id).map(SessionId::new),
            idempotency: found.idempotency(request_id),
            after: Seq(after_seq),
            start: start(input, continue_transcript, found),
            contents: found.take_contents(),
            request: TurnRequest {
                tools: tools.map(|tools| tools::set(Path::to("tools"), tools, found)),
                limits: found.converted(Path::to("limits"), Field::from_field("limits", limits)),
                model: text::non_empty(model),
                generation: generation::read(Path::to("generation"), generation, found),
                cancel_after: number::duration(cancel_after_disconnect),
            },
            busy: number::choice_or(busy_policy, BusyPolicy::Enqueue),
            create: session.map(|session| create(Path::to("session"), session, found)),
        };
        Ok((command, stream::options(stream)))
    }
}

choices! {
    BusyPolicy = BusyPolicy { Enqueue, Reject, Interrupt }
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
