//! What a turn begins with: the configuration and the counters that it starts from, and the first
//! events of the turn and of its steps.

use std::time::Duration;

use crate::{
    context::{
        budget::Budget,
        size::{ContextSize, Counters},
    },
    model::{
        Limits, LimitsOverride, Payload, SessionConfig, TokenCount, TurnId,
        command::{Idempotency, TurnRequest},
        event::{StepPosition, StepStarted, TurnStarted},
    },
    provider::registry::ResolvedModel,
    session::{
        change::TurnRow,
        rows::{NewMessage, Rows},
        start::NewTurn,
    },
    store::{
        admission::Admission,
        owned::{OwnedTurn, Revision},
        session::Session,
    },
    turn::context::{estimators::estimator, prompt_call::PromptCall},
};

/// The configuration that a turn begins with, and the counters of the transcript.
#[derive(Debug, Clone, Copy)]
pub(in crate::turn) struct StartingPoint<'a> {
    pub(in crate::turn) config: &'a SessionConfig,
    pub(in crate::turn) revision: i64,
    pub(in crate::turn) counters: Counters<'a>,
}

impl<'a> StartingPoint<'a> {
    /// The starting point for a turn that follows `owned`, a turn of this replica.
    pub(in crate::turn) fn after(owned: &'a OwnedTurn) -> Self {
        let Revision { number, config } = owned.in_force();
        Self { config, revision: *number, counters: owned.into() }
    }

    /// The starting point from a session that was read from the database.
    pub(in crate::turn) fn of(session: &'a Session) -> Self {
        Self { config: &session.config, revision: session.revision, counters: session.into() }
    }
}

/// A turn that is about to begin.
pub(in crate::turn) struct Opening<'a> {
    pub(in crate::turn) turn: TurnId,
    pub(in crate::turn) idempotency: Idempotency,
    pub(in crate::turn) request: &'a TurnRequest,
    pub(in crate::turn) input: Option<NewMessage>,
    /// The size of the first step's prompt, if the step begins with the turn. Otherwise the step
    /// begins when the queued messages are taken, so that its size includes them.
    pub(in crate::turn) size: Option<ContextSize<'a>>,
    pub(in crate::turn) model: &'a ResolvedModel,
    pub(in crate::turn) limits: Limits,
    pub(in crate::turn) budget: Option<Budget>,
    pub(in crate::turn) start: StartingPoint<'a>,
}

/// A turn with its first events, ready to be admitted.
#[derive(Debug)]
pub(in crate::turn) struct OpenedTurn {
    pub(in crate::turn) turn: TurnId,
    pub(in crate::turn) rows: Rows,
    timeout: Duration,
    revision: i64,
    idempotency: Idempotency,
    request: TurnRequest,
    model: String,
}

impl OpenedTurn {
    /// The admission of the turn. `continues`: it starts without input.
    pub(in crate::turn) fn admission(&self, continues: bool) -> Admission<'_> {
        let Self { turn, rows, timeout, revision, idempotency, request, model } = self;
        let row = TurnRow { request_id: idempotency.request.as_ref(), request, model };
        let new = NewTurn { turn, rows, timeout: *timeout, revision: *revision, row };
        Admission { new, idempotency, continues }
    }
}

impl Opening<'_> {
    /// The first events of the turn, and its input if it has one.
    pub(in crate::turn) fn open(self) -> OpenedTurn {
        let Opening { turn, idempotency, request, input, size, model, limits, budget, start } = self;
        let StartingPoint { config, revision, counters: _ } = start;
        let call = PromptCall::new(config, request, 1, false, model);
        let mut rows = Rows::new(&estimator(model).name(), size.map_or(0, |size| size.offset()));
        let offered = call.tools.visible().filter(|_| model.info.supports_tools).map(|tool| tool.name.clone());
        rows.event(
            Payload::TurnStarted(TurnStarted {
                request: idempotency.request.clone(),
                model: model.reference.clone(),
                limits,
                tool_names: offered.collect(),
                input: input.as_ref().map(|input| input.id.clone()),
            }),
            StepPosition::default(),
        );
        if let Some(input) = input {
            rows.message(input, StepPosition::default());
        }
        for left_out in call.left_out() {
            rows.event(left_out, StepPosition::default());
        }
        if let Some(size) = size {
            let started = step_started(model, revision, size.size().count, budget);
            rows.event(started, StepPosition { step: 1, attempt: 1 });
        }
        // The timeout is fixed now: a later change of the session's turn_timeout applies to later
        // turns.
        let fixed = LimitsOverride { turn_timeout: Some(limits.turn_timeout), ..request.limits };
        let request = TurnRequest { limits: fixed, ..request.clone() };
        let (timeout, model) = (limits.turn_timeout, model.reference.clone());
        OpenedTurn { turn, rows, timeout, revision, idempotency, request, model }
    }
}

/// The event that begins a step. The SQL statement that writes it sets its tokens; `expected` provides the margin.
/// `budget` is the window under the policy in force, if one is known or assumed.
pub(in crate::turn) fn step_started(
    model: &ResolvedModel,
    revision: i64,
    expected: TokenCount,
    budget: Option<Budget>,
) -> Payload {
    Payload::StepStarted(StepStarted {
        model: model.reference.clone(),
        revision,
        context: expected,
        window: budget.filter(|budget| !budget.assumed).map_or(0, |budget| budget.window),
        reserve: budget.map_or(0, |budget| budget.reserve),
    })
}
