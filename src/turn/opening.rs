//! What a turn begins with: the configuration and the counters that it starts from, and the first
//! events of the turn and of its steps.

use crate::{
    context::{
        budget::Budget,
        size::{ContextSize, Counters},
    },
    model::{
        Limits, Payload, RequestId, SessionConfig, TokenCount,
        command::TurnRequest,
        event::{StepPosition, StepStarted, TurnStarted},
    },
    provider::registry::ResolvedModel,
    session::{
        creation::FIRST_REVISION,
        rows::{NewMessage, Rows},
    },
    store::{
        owned::{OwnedTurn, Revision},
        session::Session,
        session_memory::PrepareInput,
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
    /// A new session.
    pub(in crate::turn) fn new(config: &'a SessionConfig) -> Self {
        let counters = Counters { transcript_tokens: 0, context_version: 0, anchor: None };
        Self { config, revision: FIRST_REVISION, counters }
    }

    /// The state after a turn that runs here.
    pub(in crate::turn) fn after(owned: &'a OwnedTurn) -> Self {
        let Revision { number, config } = owned.in_force();
        Self { config, revision: *number, counters: owned.into() }
    }

    /// A session as read.
    pub(in crate::turn) fn of(session: &'a Session) -> Self {
        Self { config: &session.config, revision: session.revision, counters: session.into() }
    }

    /// A session as read, or from this replica's memory.
    pub(in crate::turn) fn of_basis(basis: &'a PrepareInput) -> Self {
        let Revision { number, config } = &*basis.revision;
        Self { config, revision: *number, counters: basis.into() }
    }
}

/// A turn that is about to begin.
pub(in crate::turn) struct Opening<'a> {
    pub(in crate::turn) request_id: Option<&'a RequestId>,
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

/// The first events of a turn, and its input if it has one.
pub(in crate::turn) fn opening(new: Opening<'_>) -> Rows {
    let Opening { request_id, request, input, size, model, limits, budget, start } = new;
    let StartingPoint { config, revision, counters: _ } = start;
    let call = PromptCall::new(config, request, 1, false, model);
    let mut rows = Rows::new(&estimator(model).name(), size.map_or(0, |size| size.offset()));
    let offered = call.tools.visible().filter(|_| model.info.supports_tools).map(|tool| tool.name.clone());
    rows.event(
        Payload::TurnStarted(TurnStarted {
            request: request_id.cloned(),
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
    rows
}

/// The event that begins a step. The statement fills in its tokens; `expected` provides the margin.
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
