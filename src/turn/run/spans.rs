//! The spans of a turn that runs here: the turn's, in the trace in which it began, and the current
//! step's.

use std::time::Duration;

use crate::{
    model::{Ending, Message, Role, SessionKey, TurnId, event::StepPosition},
    store::owned::OwnedTurn,
    telemetry::{Span, Trace, Traces, spans::ResponseAttributes},
    turn::run::{
        answer::{CallEnd, Timing},
        cause::Cause,
        watch,
    },
};

/// The open spans. The turn's span ends last.
#[derive(Debug)]
pub(super) struct Spans {
    step: Option<(StepPosition, Span)>,
    turn: Option<Span>,
    /// The turn waited for tools until now.
    waited: bool,
}

impl Spans {
    pub(super) fn new(cause: Cause) -> Self {
        Self { step: None, turn: None, waited: cause == Cause::Answered }
    }

    /// Opens the spans for the state that was read, and returns the trace of the step.
    pub(super) fn at(
        &mut self,
        (traces, key, turn): (&Traces, &SessionKey, &TurnId),
        owned: &OwnedTurn,
        messages: &[Message],
    ) -> Trace {
        let begun = || traces.of_stored(owned.trace.as_deref()).turn(key, turn);
        let turn = self.turn.get_or_insert_with(begun);
        if std::mem::take(&mut self.waited)
            && let Some(waited) = waited(owned, messages)
        {
            turn.trace().tools_waited(waited);
        }
        let at = StepPosition { step: owned.step, attempt: owned.attempt };
        if self.step.as_ref().is_some_and(|(known, _)| *known != at) {
            self.step = None;
        }
        let (_, step) = self.step.get_or_insert_with(|| (at, turn.trace().step(at)));
        step.trace().clone()
    }

    /// Records the end of the turn.
    pub(super) fn turn_ended(&self, ending: &Ending) {
        if let Some(turn) = &self.turn {
            turn.turn_ended(ending);
        }
    }
}

/// How long the turn waited for the tools of its last response.
fn waited(owned: &OwnedTurn, messages: &[Message]) -> Option<Duration> {
    let asked = messages.iter().rfind(|it| it.role == Role::Assistant)?;
    owned.read_at.duration_since(asked.created_at).try_into().ok()
}

/// Records the end of a model call.
pub(super) fn answered(span: &Span, end: &CallEnd, timing: Timing) {
    let finish = match end {
        CallEnd::Complete(answer) => Some(&answer.finish),
        CallEnd::Failed(_) | CallEnd::Cut(..) => None,
    };
    span.model_answered(ResponseAttributes {
        usage: finish.and_then(|finish| finish.usage.as_ref()),
        model: finish.map_or("", |finish| &finish.provider_model),
        id: finish.map_or("", |finish| &finish.response_id),
        finish: finish.map(|finish| finish.reason),
        first: timing.first,
        error: watch::error(end),
    });
}
