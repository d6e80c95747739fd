//! The first events of a turn and of a step.

use crate::{
    context::{budget::Budget, size::ContextSize},
    model::{
        Limits, Payload, RequestId, TokenCount,
        command::TurnRequest,
        event::{StepPosition, StepStarted, TurnStarted},
    },
    provider::registry::ResolvedModel,
    session::rows::{NewMessage, Rows},
    turn::{
        context::estimators::estimator,
        run::{call_settings, starting_point::StartingPoint},
    },
};

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
    let Opening {
        request_id,
        request,
        input,
        size,
        model,
        limits,
        budget,
        start,
    } = new;
    let StartingPoint {
        config,
        revision,
        counters: _,
    } = start;
    let tools = request.tools.as_ref().unwrap_or(&config.tools);
    let mut rows = Rows::new(
        &estimator(model).name(),
        size.map_or(0, |size| size.offset()),
    );
    let offered = tools
        .visible()
        .filter(|_| model.info.supports_tools)
        .map(|tool| tool.name.clone());
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
    let (_, unsupported) = call_settings::fitting(model, config, request, tools, 1);
    for setting in unsupported {
        rows.event(
            call_settings::left_out(model, setting),
            StepPosition::default(),
        );
    }
    if let Some(size) = size {
        let started = step_started(model, revision, size.size().count, budget);
        rows.event(
            started,
            StepPosition {
                step: 1,
                attempt: 1,
            },
        );
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
        window: budget
            .filter(|budget| !budget.assumed)
            .map_or(0, |budget| budget.window),
        reserve: budget.map_or(0, |budget| budget.reserve),
    })
}
