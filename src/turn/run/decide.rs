//! Decides a turn's next step: a pure function of its committed state and the remaining time.

use std::time::Duration;

use crate::model::{
    CancelOutcome, ClosedTranscript, CompletionReason, Ending, Failure, FailureReason, FinishReason, Limits, Role,
    TurnId, UsageTotals,
};

/// The committed state of a turn, and its remaining time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnProgress {
    /// The current step, from 1. 0 before the first step, which waits for queued messages to be
    /// taken.
    pub step: u32,
    /// The response of the current step is committed, although a compaction may have hidden it.
    pub is_answered: bool,
    /// Owners that failed since the last committed step.
    pub takeovers: u32,
    /// Most such owners before the turn fails.
    pub max_takeovers: u32,
    /// Calls without a result.
    pub open_calls: u32,
    /// Cause and reason of a cancel request.
    pub cancel: Option<(crate::model::CancelCause, String)>,
    /// Remaining time of the turn.
    pub time_left: Duration,
    /// Remaining grace period, which allows one last step.
    pub grace_left: Duration,
    /// The step began after the turn's time had passed: it is the last one.
    pub late: bool,
    pub spent: UsageTotals,
    /// The limits in force.
    pub limits: Limits,
    /// The newest message.
    pub last: Option<LastMessage>,
    /// There are queued messages for the turn.
    pub waiting: bool,
    /// The step has taken a message, and the policy leaves the others to the next step.
    pub has_taken: bool,
}

/// The newest message of the transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastMessage {
    pub role: Role,
    /// The step of this turn that wrote it. 0 for input and for messages of earlier turns.
    pub step: u32,
    /// The finish reason of the response: of this message, or of the one whose calls it answers.
    pub finish: Option<FinishReason>,
    /// It is an empty response, with reasoning at most.
    pub is_silent: bool,
}

/// The next action of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnAction {
    Call,
    /// Begin the next step, then call the model.
    Begin,
    /// Take queued messages into the transcript.
    Take {
        /// Begin the next step in the same statement.
        advance: bool,
    },
    /// The model has finished: end the turn, unless there are queued messages for it.
    Finish,
    Stop(Ending),
}

impl LastMessage {
    /// The newest message of a transcript, relative to the turn.
    pub fn of(transcript: &ClosedTranscript, turn: &TurnId) -> Option<Self> {
        let mut newest = transcript.messages().iter().rev();
        let message = newest.next()?;
        let response = match message.role {
            Role::Tool => newest.next().and_then(|caller| caller.response.as_ref()),
            Role::System | Role::User | Role::Assistant => message.response.as_ref(),
        };
        // Messages from the queue are input of the step, not its result.
        let answers = message.role == Role::Assistant || message.role == Role::Tool;
        let step = if answers && message.turn.as_ref() == Some(turn) { message.step } else { 0 };
        Some(Self {
            role: message.role,
            step,
            finish: response.map(|response| response.finish),
            is_silent: message.role == Role::Assistant && message.parts.iter().all(|stored| stored.part.is_silent()),
        })
    }

    /// The completion reason of a turn whose model stopped with this message.
    pub fn completion(self) -> CompletionReason {
        if self.step > 0 && self.is_silent { CompletionReason::Empty } else { CompletionReason::Stop }
    }

    /// Whether there is nothing for a model to respond to.
    fn needs_no_answer(self) -> bool {
        self.role == Role::Assistant && self.finish != Some(FinishReason::Paused)
    }
}

/// Decides a turn's next step.
pub fn next_action(progress: &TurnProgress) -> TurnAction {
    if let Some((cause, reason)) = &progress.cancel {
        let outcome = if progress.open_calls > 0 { CancelOutcome::ToolsInProgress } else { CancelOutcome::None };
        let cause = *cause;
        let reason = reason.clone();
        return TurnAction::Stop(Ending::Cancelled { cause, outcome, reason, undone: None });
    }
    if progress.takeovers > progress.max_takeovers {
        return TurnAction::Stop(Ending::Failed(poisoned(progress.takeovers)));
    }
    let here = progress.last.filter(|last| progress.step > 0 && last.step == progress.step);
    if let Some(end) = here.and_then(end_after_response) {
        return match end {
            // The last step of a turn is not repeated.
            TurnAction::Finish if progress.waiting && progress.time_left.is_zero() => {
                completed(CompletionReason::Deadline)
            }
            TurnAction::Finish if progress.waiting => action_after_step(progress),
            end @ (TurnAction::Call
            | TurnAction::Begin
            | TurnAction::Take { .. }
            | TurnAction::Finish
            | TurnAction::Stop(_)) => end,
        };
    }
    let is_answered = progress.step > 0 && (here.is_some() || progress.is_answered);
    let more = after_step(progress.step, &progress.spent, &progress.limits);
    let concludes = progress.open_calls == 0 && (!is_answered || !progress.late && more.is_none());
    if progress.time_left.is_zero() && (progress.grace_left.is_zero() || !concludes) {
        return completed(CompletionReason::Deadline);
    }
    let needs_no_answer = progress.last.is_none_or(LastMessage::needs_no_answer);
    match here {
        Some(_) => action_after_step(progress),
        // A compaction has hidden the response and the results of its calls.
        None if is_answered && (progress.waiting || !needs_no_answer) => action_after_step(progress),
        // A compaction used the remaining tokens.
        None if is_spent(&progress.spent, &progress.limits) => completed(CompletionReason::Budget),
        None if progress.waiting && !progress.has_taken => TurnAction::Take { advance: progress.step == 0 },
        // The queued message that started the turn was withdrawn.
        None if needs_no_answer => TurnAction::Finish,
        // The message that started the turn was withdrawn, but there is other input to respond to.
        None if progress.step == 0 => TurnAction::Begin,
        None => TurnAction::Call,
    }
}

/// The action after a completed step.
fn action_after_step(progress: &TurnProgress) -> TurnAction {
    match after_step(progress.step, &progress.spent, &progress.limits) {
        Some(reason) => completed(reason),
        None if progress.waiting => TurnAction::Take { advance: true },
        None => TurnAction::Begin,
    }
}

/// How a turn ends after the model's last response. Returns `None` if the turn continues: with the
/// results of its calls, or because the provider only paused it.
fn end_after_response(last: LastMessage) -> Option<TurnAction> {
    let finish = last.finish.unwrap_or(FinishReason::Stop);
    let goes_on = match finish {
        FinishReason::Paused => true,
        FinishReason::Stop | FinishReason::ToolCalls => last.role == Role::Tool,
        FinishReason::Length
        | FinishReason::ContentFilter
        | FinishReason::Refusal
        | FinishReason::Error
        | FinishReason::Cancelled => false,
    };
    (!goes_on).then(|| ending_of(finish))
}

/// How a turn ends after a response without calls that can be run.
pub fn ending_of(finish: FinishReason) -> TurnAction {
    match finish {
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Paused => TurnAction::Finish,
        FinishReason::Length => completed(CompletionReason::Length),
        FinishReason::ContentFilter | FinishReason::Refusal => completed(CompletionReason::ContentFilter),
        FinishReason::Error | FinishReason::Cancelled => TurnAction::Stop(Ending::Failed(Failure::local(
            FailureReason::ProviderBroken,
            "the response ended early",
            true,
        ))),
    }
}

/// Why a turn ends after the results of step `step`. Returns `None` if it does not. The step limit
/// takes precedence.
pub fn after_step(step: u32, spent: &UsageTotals, limits: &Limits) -> Option<CompletionReason> {
    if step >= limits.max_steps {
        Some(CompletionReason::MaxSteps)
    } else if is_spent(spent, limits) {
        Some(CompletionReason::Budget)
    } else {
        None
    }
}

fn is_spent(spent: &UsageTotals, limits: &Limits) -> bool {
    limits.max_total_tokens.is_some_and(|most| spent.total() >= most)
}

fn completed(reason: CompletionReason) -> TurnAction {
    TurnAction::Stop(Ending::Completed(reason))
}

fn poisoned(takeovers: u32) -> Failure {
    Failure::local(
        FailureReason::Poisoned,
        format!("{takeovers} replicas in a row stopped while running this turn"),
        true,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CancelCause;

    fn progress(last: Option<LastMessage>) -> TurnProgress {
        TurnProgress {
            step: 2,
            is_answered: false,
            takeovers: 0,
            max_takeovers: 5,
            open_calls: 0,
            cancel: None,
            time_left: Duration::from_secs(60),
            grace_left: Duration::ZERO,
            late: false,
            spent: UsageTotals { input: 90, output: 9, ..UsageTotals::default() },
            limits: Limits {
                max_steps: 50,
                max_output_tokens: None,
                max_total_tokens: None,
                turn_timeout: Duration::from_secs(60),
                tool_timeout: Duration::from_secs(60),
                grace: Duration::ZERO,
            },
            last,
            waiting: false,
            has_taken: false,
        }
    }

    fn last(role: Role, step: u32, finish: Option<FinishReason>) -> Option<LastMessage> {
        Some(LastMessage { role, step, finish, is_silent: false })
    }

    #[test]
    fn the_last_message_decides_whether_to_call_begin_or_finish() {
        let stop = |reason| TurnAction::Stop(Ending::Completed(reason));
        let table = [
            (None, TurnAction::Finish),
            (last(Role::User, 0, None), TurnAction::Call),
            (last(Role::Tool, 0, Some(FinishReason::ToolCalls)), TurnAction::Call),
            (last(Role::Tool, 1, Some(FinishReason::ToolCalls)), TurnAction::Call),
            (last(Role::Tool, 2, Some(FinishReason::ToolCalls)), TurnAction::Begin),
            (last(Role::Tool, 2, Some(FinishReason::Stop)), TurnAction::Begin),
            (last(Role::Tool, 2, Some(FinishReason::Length)), stop(CompletionReason::Length)),
            (last(Role::Tool, 2, Some(FinishReason::ContentFilter)), stop(CompletionReason::ContentFilter)),
            (last(Role::Assistant, 2, Some(FinishReason::Stop)), TurnAction::Finish),
            (last(Role::Assistant, 2, Some(FinishReason::Length)), stop(CompletionReason::Length)),
            (last(Role::Assistant, 2, Some(FinishReason::Refusal)), stop(CompletionReason::ContentFilter)),
            (last(Role::Assistant, 2, Some(FinishReason::Paused)), TurnAction::Begin),
            (last(Role::Assistant, 1, Some(FinishReason::Paused)), TurnAction::Call),
            (last(Role::Assistant, 1, Some(FinishReason::Stop)), TurnAction::Finish),
            (last(Role::Assistant, 0, Some(FinishReason::Stop)), TurnAction::Finish),
        ];
        for (last, expected) in table {
            assert_eq!(next_action(&progress(last)), expected, "{last:?}");
        }
    }

    /// Row D10
    #[test]
    fn pending_messages_are_taken_between_steps_and_before_the_end() {
        let take = |advance| TurnAction::Take { advance };
        let table = [
            (None, take(false)),
            (last(Role::User, 0, None), take(false)),
            (last(Role::Tool, 1, Some(FinishReason::ToolCalls)), take(false)),
            (last(Role::Assistant, 1, Some(FinishReason::Stop)), take(false)),
            (last(Role::Tool, 2, Some(FinishReason::ToolCalls)), take(true)),
            (last(Role::Assistant, 2, Some(FinishReason::Stop)), take(true)),
            (last(Role::Assistant, 2, Some(FinishReason::Length)), completed(CompletionReason::Length)),
        ];
        for (last, expected) in table {
            assert_eq!(next_action(&TurnProgress { waiting: true, ..progress(last) }), expected, "{last:?}");
        }
        let done = TurnProgress { waiting: true, ..progress(last(Role::Assistant, 2, Some(FinishReason::Stop))) };
        let limits = Limits { max_steps: 2, ..done.limits };
        assert_eq!(next_action(&TurnProgress { limits, ..done.clone() }), completed(CompletionReason::MaxSteps));
        assert_eq!(
            next_action(&TurnProgress { time_left: Duration::ZERO, ..done }),
            completed(CompletionReason::Deadline)
        );
    }

    #[test]
    fn a_step_whose_response_was_hidden_by_a_compaction_is_not_repeated() {
        let input = last(Role::User, 0, None);
        let other = last(Role::Assistant, 0, Some(FinishReason::Stop));
        let table = [
            (input, false, TurnAction::Begin),
            (input, true, TurnAction::Take { advance: true }),
            (other, false, TurnAction::Finish),
            (other, true, TurnAction::Take { advance: true }),
            (None, false, TurnAction::Finish),
        ];
        for (last, waiting, expected) in table {
            assert_eq!(
                next_action(&TurnProgress { is_answered: true, waiting, ..progress(last) }),
                expected,
                "{last:?} {waiting}"
            );
        }
        // The first step has not begun.
        assert_eq!(next_action(&TurnProgress { step: 0, is_answered: true, ..progress(input) }), TurnAction::Begin);
    }

    /// Row D10
    #[test]
    fn a_step_takes_as_many_messages_as_its_policy_allows() {
        let asked = last(Role::User, 0, None);
        let over = last(Role::Tool, 2, Some(FinishReason::ToolCalls));
        let table = [
            (asked, false, TurnAction::Take { advance: false }),
            (asked, true, TurnAction::Call),
            (over, true, TurnAction::Take { advance: true }),
        ];
        for (last, has_taken, expected) in table {
            assert_eq!(
                next_action(&TurnProgress { waiting: true, has_taken, ..progress(last) }),
                expected,
                "{last:?} {has_taken}"
            );
        }
    }

    #[test]
    fn a_turn_takes_its_starting_messages_before_the_first_step() {
        let tool = last(Role::Tool, 0, Some(FinishReason::ToolCalls));
        let table = [
            (None, true, TurnAction::Take { advance: true }),
            (last(Role::Assistant, 0, Some(FinishReason::Stop)), true, TurnAction::Take { advance: true }),
            (last(Role::User, 0, None), true, TurnAction::Take { advance: true }),
            (None, false, TurnAction::Finish),
            (last(Role::Assistant, 0, Some(FinishReason::Stop)), false, TurnAction::Finish),
            (last(Role::User, 0, None), false, TurnAction::Begin),
            (tool, false, TurnAction::Begin),
        ];
        for (last, waiting, expected) in table {
            assert_eq!(
                next_action(&TurnProgress { step: 0, waiting, ..progress(last) }),
                expected,
                "{last:?} {waiting}"
            );
        }
    }

    #[test]
    fn a_step_limit_is_checked_before_a_token_budget() {
        let over = last(Role::Tool, 2, Some(FinishReason::ToolCalls));
        let begun = last(Role::Tool, 1, Some(FinishReason::ToolCalls));
        let table = [
            (2, Some(99), over, completed(CompletionReason::MaxSteps)),
            (3, Some(99), over, completed(CompletionReason::Budget)),
            (3, Some(100), over, TurnAction::Begin),
            (2, Some(100), begun, TurnAction::Call),
            (2, Some(99), begun, completed(CompletionReason::Budget)),
            (2, Some(99), last(Role::Assistant, 2, Some(FinishReason::Stop)), TurnAction::Finish),
        ];
        for (max_steps, max_total_tokens, last, expected) in table {
            let mut progress = progress(last);
            progress.limits = Limits { max_steps, max_total_tokens, ..progress.limits };
            assert_eq!(next_action(&progress), expected, "{max_steps} {max_total_tokens:?} {last:?}");
        }
    }

    #[test]
    fn a_cancel_takes_precedence_and_says_whether_tools_ran() {
        for (open_calls, outcome) in [(0, CancelOutcome::None), (2, CancelOutcome::ToolsInProgress)] {
            let progress = TurnProgress {
                cancel: Some((CancelCause::Requested, "enough".to_owned())),
                open_calls,
                takeovers: 9,
                time_left: Duration::ZERO,
                ..progress(last(Role::Assistant, 2, Some(FinishReason::Stop)))
            };
            let cause = CancelCause::Requested;
            let reason = "enough".to_owned();
            let ending = Ending::Cancelled { cause, outcome, reason, undone: None };
            assert_eq!(next_action(&progress), TurnAction::Stop(ending));
        }
    }

    #[test]
    fn a_turn_with_too_many_takeovers_is_poisoned() {
        for (takeovers, poisoned) in [(5, false), (6, true)] {
            let step = next_action(&TurnProgress { takeovers, ..progress(None) });
            let failed = matches!(&step, TurnAction::Stop(Ending::Failed(f)) if f.reason == FailureReason::Poisoned);
            assert_eq!(failed, poisoned, "{takeovers}: {step:?}");
        }
    }

    #[test]
    fn a_turn_timeout_ends_a_turn_unless_its_answer_is_complete() {
        let up = |last| next_action(&TurnProgress { time_left: Duration::ZERO, ..progress(last) });
        assert_eq!(up(None), TurnAction::Stop(Ending::Completed(CompletionReason::Deadline)));
        assert_eq!(up(last(Role::Assistant, 2, Some(FinishReason::Stop))), TurnAction::Finish);
    }

    #[test]
    fn a_turn_may_take_one_last_step_in_its_grace_period() {
        let over = last(Role::Tool, 2, Some(FinishReason::ToolCalls));
        let before = last(Role::Tool, 1, Some(FinishReason::ToolCalls));
        let deadline = TurnAction::Stop(Ending::Completed(CompletionReason::Deadline));
        let table = [
            ("results are in", over, 60, false, 50, TurnAction::Begin),
            ("the last step is not answered", before, 60, true, 50, TurnAction::Call),
            ("a step before it is not answered", before, 60, false, 50, TurnAction::Call),
            ("the last step called tools", over, 60, true, 50, deadline.clone()),
            ("that time is up too", over, 0, false, 50, deadline.clone()),
            ("that time is up too, in the last step", before, 0, true, 50, deadline.clone()),
            ("there are no more steps", over, 60, false, 2, deadline),
        ];
        for (what, last, grace, late, max_steps, expected) in table {
            let mut progress = TurnProgress { time_left: Duration::ZERO, late, ..progress(last) };
            progress.grace_left = Duration::from_secs(grace);
            progress.limits.max_steps = max_steps;
            assert_eq!(next_action(&progress), expected, "{what}");
        }
        let progress = TurnProgress {
            time_left: Duration::ZERO,
            grace_left: Duration::from_secs(60),
            open_calls: 1,
            ..progress(None)
        };
        assert_eq!(
            next_action(&progress),
            TurnAction::Stop(Ending::Completed(CompletionReason::Deadline)),
            "calls are open"
        );
    }
}
