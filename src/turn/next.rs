//! What a turn does next: a pure decision from what is committed.

use std::time::Duration;

use crate::model::{
    CancelOutcome, Closed, CompletionReason, Ending, Failure, FailureReason, FinishReason, Limits, Role, UsageTotals,
};

/// What is committed of a turn, and what is known about the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The step it is at, from 1.
    pub step: u32,
    /// Owners that failed since the last committed step.
    pub takeovers: u32,
    /// How many of them are borne.
    pub max_takeovers: u32,
    /// Calls that wait for results.
    pub open_calls: u32,
    /// Somebody wants it cancelled.
    pub cancel: Option<(crate::model::CancelCause, String)>,
    /// How much time is left.
    pub time_left: Duration,
    /// Tokens spent so far.
    pub spent: UsageTotals,
    /// The bounds in force.
    pub limits: Limits,
    /// The newest message.
    pub last: Option<Last>,
}

/// The newest message of the transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Last {
    /// Who speaks.
    pub role: Role,
    /// The step that wrote it; 0 for input.
    pub step: u32,
    /// Why the model stopped, if it wrote it.
    pub finish: Option<FinishReason>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Call the model.
    Call,
    /// Begin the next step, then call the model.
    Begin,
    /// The model was done: end the turn, unless messages wait for it.
    Finish,
    /// End the turn.
    Stop(Ending),
}

impl Last {
    /// The newest message of a transcript.
    pub fn of(transcript: &Closed) -> Option<Self> {
        transcript.messages().last().map(|message| Self {
            role: message.role,
            step: message.step,
            finish: message.response.as_ref().map(|response| response.finish),
        })
    }
}

/// Decides what a turn does next.
pub fn next_step(facts: &Facts) -> Step {
    if let Some((cause, reason)) = &facts.cancel {
        let outcome = if facts.open_calls > 0 { CancelOutcome::ToolsInProgress } else { CancelOutcome::None };
        return Step::Stop(Ending::Cancelled { cause: *cause, outcome, reason: reason.clone() });
    }
    if facts.takeovers > facts.max_takeovers {
        return Step::Stop(Ending::Failed(poisoned(facts.takeovers)));
    }
    if let Some(end) = answered(facts) {
        return end;
    }
    if facts.time_left.is_zero() {
        return completed(CompletionReason::Deadline);
    }
    let step_is_over = facts.last.is_some_and(|last| last.role == Role::Tool && last.step == facts.step);
    match after_step(facts.step, &facts.spent, &facts.limits) {
        Some(reason) if step_is_over => completed(reason),
        None if step_is_over => Step::Begin,
        Some(_) | None => Step::Call,
    }
}

/// Whether a turn ends once the results of step `step` are in, and why. The step limit comes first.
pub fn after_step(step: u32, spent: &UsageTotals, limits: &Limits) -> Option<CompletionReason> {
    if step >= limits.max_steps {
        Some(CompletionReason::MaxSteps)
    } else if limits.max_total_tokens.is_some_and(|most| spent.total() >= most) {
        Some(CompletionReason::Budget)
    } else {
        None
    }
}

/// How a turn ends whose model stopped without calls that could be run, and is asked nothing more.
pub fn ending_of(finish: FinishReason) -> Step {
    match finish {
        FinishReason::Stop | FinishReason::ToolCalls => Step::Finish,
        FinishReason::Length => completed(CompletionReason::Length),
        FinishReason::ContentFilter | FinishReason::Refusal => completed(CompletionReason::ContentFilter),
        FinishReason::Error | FinishReason::Cancelled => {
            Step::Stop(Ending::Failed(Failure::local(FailureReason::ProviderBroken, "the answer broke off", true)))
        }
    }
}

/// The end of a turn whose last message is the model's, or follows an answer that was cut short.
fn answered(facts: &Facts) -> Option<Step> {
    let last = facts.last?;
    (last.role == Role::Assistant && last.step == facts.step)
        .then(|| ending_of(last.finish.unwrap_or(FinishReason::Stop)))
}

fn completed(reason: CompletionReason) -> Step {
    Step::Stop(Ending::Completed(reason))
}

fn poisoned(takeovers: u32) -> Failure {
    Failure::local(
        FailureReason::Poisoned,
        format!("{takeovers} replicas stopped one after the other while working on this turn"),
        true,
    )
}
