//! Timing metrics of the turn loop: how long a step takes, and how much of that is overhead of
//! contextd.

use std::time::Instant;

use crate::{
    model::UsagePurpose,
    provider::registry::ResolvedModel,
    telemetry::{
        Metrics,
        metrics::{CallOutcome, ModelCall, Phase},
    },
    turn::run::{
        answer::{CallEnd, CutReason, Timing},
        cause::Cause,
    },
};

/// The start times of measurements.
#[derive(Debug)]
pub(super) struct Watch {
    /// When the request that started the turn was received. `None` after the first content of the
    /// model.
    requested: Option<Instant>,
    /// Since when only this replica has been working.
    working: Instant,
    /// The step, and when this replica first read it.
    step: (u32, Instant),
    /// When the response that will be committed was complete.
    answered: Option<Instant>,
}

impl Watch {
    /// For a turn that was granted to this replica by a statement sent at `sent`.
    pub(super) fn new(cause: Cause, sent: Instant) -> Self {
        let requested = match cause {
            Cause::Executed(received) => Some(received),
            Cause::Queued | Cause::Answered | Cause::Continued => None,
        };
        Self { requested, working: requested.unwrap_or(sent), step: (0, sent), answered: None }
    }

    /// The turn was read in this step.
    pub(super) fn look(&mut self, step: u32) {
        if self.step.0 != step {
            self.step = (step, Instant::now());
        }
    }

    /// The model is about to be called.
    pub(super) fn call(&self, metrics: &Metrics) {
        metrics.overhead(Phase::BeforeCall, self.working.elapsed());
    }

    /// A model call has ended.
    pub(super) fn answered(&mut self, metrics: &Metrics, call: ModelCall<'_>, end: &CallEnd, timing: Timing) {
        let outcome = CallOutcome { total: timing.total, first: timing.first, error: error(end) };
        metrics.model_called(call, outcome);
        if let (Some(requested), Some(first)) = (self.requested, timing.first) {
            self.requested = None;
            // The rest of the response is not counted.
            let rest = timing.total.saturating_sub(first);
            metrics.first_token(requested.elapsed().saturating_sub(rest));
        }
        match end {
            CallEnd::Complete(answer) => {
                self.answered = Some(Instant::now());
                if let Some(usage) = &answer.finish.usage {
                    metrics.tokens_used(call, usage);
                }
            }
            CallEnd::Cut(CutReason::Cancelled | CutReason::Deadline, _) => self.answered = Some(Instant::now()),
            CallEnd::Cut(CutReason::LeaseLost | CutReason::Aborted | CutReason::WindowFull, _) | CallEnd::Failed(_) => {
            }
        }
        self.working = Instant::now();
    }

    /// A statement was committed.
    pub(super) fn committed(&mut self, metrics: &Metrics) {
        if let Some(answered) = self.answered.take() {
            metrics.overhead(Phase::AfterCall, answered.elapsed());
            metrics.step_committed(self.step.1.elapsed());
            self.working = Instant::now();
        }
    }

    /// The turn has waited for something other than this replica.
    pub(super) fn waited(&mut self) {
        self.working = Instant::now();
    }
}

/// The labels of a turn's model call.
pub(super) fn model_call(model: &ResolvedModel) -> ModelCall<'_> {
    ModelCall { provider: &model.provider_name, model: &model.info.name, purpose: UsagePurpose::Turn }
}

/// The error label of a call. Returns `None` if the call completed.
pub(super) fn error(end: &CallEnd) -> Option<&'static str> {
    match end {
        CallEnd::Complete(_) => None,
        CallEnd::Failed(broken) => Some(broken.error.kind.name()),
        CallEnd::Cut(CutReason::Cancelled, _) => Some("cancelled"),
        CallEnd::Cut(CutReason::Deadline, _) => Some("deadline"),
        CallEnd::Cut(CutReason::LeaseLost, _) => Some("lease_lost"),
        CallEnd::Cut(CutReason::Aborted, _) => Some("aborted"),
        CallEnd::Cut(CutReason::WindowFull, _) => Some("window_full"),
    }
}
