//! A simulation of the decisions of a turn: owners, stale owners, cancels, submissions and clients that disconnect, in
//! random order. One transaction is the unit, with possible crashes before and after each. The decision function is the
//! real one, the row is a model of the stored row, and invariants are checked after every step. A seed reproduces a run
//! exactly.

mod invariants;
mod row;

use std::{collections::BTreeSet, time::Duration};

use contextd::{
    model::{CallId, CancelCause, Ending, Fence, FinishReason, Limits, Message, Role, Transcript, UsageTotals},
    turn::run::decide::{LastMessage, TurnAction, TurnProgress, ending_of, next_action},
};

use crate::harness::dice::{Dice, SEED, seed};
use row::{Ended, Row, State, Unguarded};

/// Number of runs per test.
const RUNS: u64 = 400;
/// Number of steps of a run with crashes.
const STEPS: usize = 160;
/// Number of further steps, without crashes, within which the turn must end.
const REST: usize = 400;
/// Maximum number of concurrent owners.
const TASKS: usize = 3;

const LIMITS: Limits = Limits {
    max_steps: 4,
    max_output_tokens: None,
    max_total_tokens: None,
    turn_timeout: Duration::from_secs(60),
    tool_timeout: Duration::from_secs(60),
    grace: Duration::ZERO,
};

/// A task that runs a turn, or assumes so.
#[derive(Debug, Clone)]
struct Task {
    fence: Fence,
    phase: Phase,
}

/// The next operation of a task. Anything may happen between two phases.
#[derive(Debug, Clone)]
enum Phase {
    /// Read what is committed, and decide.
    Look,
    /// Wait for the response of the model.
    Ask,
    Write(Write),
}

#[derive(Debug, Clone, Copy)]
enum Write {
    Calls(usize),
    CallsThatCannotRun,
    Retry,
    Begin,
    Finish(Option<FinishReason>),
    Stop(Option<FinishReason>, Ended),
}

struct World {
    row: Row,
    tasks: Vec<Task>,
    dice: Dice,
    decide: fn(&TurnProgress) -> TurnAction,
    asked_to_cancel: BTreeSet<u32>,
    /// Calls that a client has seen and may submit results for late.
    seen: Vec<CallId>,
    crashes: bool,
    /// The row that was checked last. Most steps do not change it.
    checked: Option<Row>,
}

impl World {
    fn new(seed: u64, unguarded: Unguarded, decide: fn(&TurnProgress) -> TurnAction) -> Self {
        Self {
            row: Row::new(unguarded),
            tasks: Vec::new(),
            dice: Dice::new(seed, 0),
            decide,
            asked_to_cancel: BTreeSet::new(),
            seen: Vec::new(),
            crashes: true,
            checked: None,
        }
    }

    /// Runs the simulation. Returns the first violation.
    fn run(mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.anything()?;
        }
        // From here on, nothing crashes and all clients are disconnected.
        self.crashes = false;
        for _ in 0..REST {
            if self.row.state == State::Idle {
                return Ok(());
            }
            self.row.time_is_up |= self.row.state == State::Waiting;
            self.row.lease &= self.tasks.iter().any(|task| task.fence == self.row.fence);
            self.take_over();
            self.step_of_a_task()?;
            self.check()?;
        }
        Err(format!("I9: turn {} never ends: {:?} {:?}", self.row.turn, self.row.state, self.row.fence))
    }

    fn anything(&mut self) -> Result<(), String> {
        match self.dice.below(20) {
            0 => self.grant(Row::admit),
            1..=2 => self.answer(),
            3 if self.dice.chance(30) => {
                if self.row.state != State::Idle {
                    self.asked_to_cancel.insert(self.row.turn);
                }
                self.grant(Row::cancel);
            }
            4 => self.row.lease = false,
            5 if self.dice.chance(15) => self.row.time_is_up = true,
            6..=7 => self.take_over(),
            8 => self.crash(),
            9 => self.hand_over()?,
            _ => self.step_of_a_task()?,
        }
        self.check()
    }

    fn check(&mut self) -> Result<(), String> {
        let owners = self.tasks.iter().filter(|task| task.fence.epoch == self.row.fence.epoch).count();
        if owners > 1 {
            return Err(format!("I2: {owners} tasks own epoch {}", self.row.fence.epoch));
        }
        if self.checked.as_ref() == Some(&self.row) {
            return Ok(());
        }
        self.checked = Some(self.row.clone());
        invariants::broken(&self.row, &self.asked_to_cancel).map_or(Ok(()), Err)
    }

    /// A transaction that may grant the turn to a new owner, which may crash before it is notified.
    fn grant(&mut self, transaction: fn(&mut Row) -> Option<Fence>) {
        if let Some(fence) = transaction(&mut self.row) {
            self.own(fence);
        }
    }

    fn own(&mut self, fence: Fence) {
        if !self.crashes || !self.dice.chance(10) && self.tasks.len() < TASKS {
            self.tasks.push(Task { fence, phase: Phase::Look });
        }
    }

    fn take_over(&mut self) {
        if let Some(fence) = self.row.take_over(self.row.fence.epoch) {
            self.own(fence);
        }
    }

    /// Submits a result, possibly for a call that already has a result or was closed.
    fn answer(&mut self) {
        self.seen.extend(self.row.open.iter().cloned());
        let begins = self.dice.chance(80);
        if let Some(call) = self.dice.pick(&self.seen).cloned()
            && let Some(fence) = self.row.submit(&call, &LIMITS, begins)
        {
            self.own(fence);
        }
    }

    fn crash(&mut self) {
        if !self.tasks.is_empty() {
            let gone = self.dice.below(self.tasks.len());
            self.tasks.remove(gone);
        }
    }

    fn hand_over(&mut self) -> Result<(), String> {
        if self.tasks.is_empty() {
            return Ok(());
        }
        let leaving = self.dice.below(self.tasks.len());
        let Task { fence, phase: _ } = self.tasks.remove(leaving);
        self.fenced(fence, |row| row.hand_over(fence)).map(drop)
    }

    /// A write under a fence. A write of a stale owner must change nothing.
    fn fenced(&mut self, fence: Fence, write: impl FnOnce(&mut Row) -> Option<State>) -> Result<Option<State>, String> {
        let before = self.row.clone();
        let stale = fence.epoch != self.row.fence.epoch;
        let written = write(&mut self.row);
        if stale && self.row != before {
            return Err(format!("I2: {fence:?} wrote under {:?}", before.fence));
        }
        Ok(written)
    }

    fn step_of_a_task(&mut self) -> Result<(), String> {
        if self.tasks.is_empty() {
            return Ok(());
        }
        let at = self.dice.below(self.tasks.len());
        let task = self.tasks.remove(at);
        let next = match task.phase {
            Phase::Look => self.look(task.fence)?,
            Phase::Ask => Some(Phase::Write(self.asked())),
            Phase::Write(write) => return self.write(task.fence, write),
        };
        self.tasks.extend(next.map(|phase| Task { phase, ..task }));
        Ok(())
    }

    /// Reads what is committed and makes the decision. Returns `None` if another owner has the turn.
    fn look(&self, fence: Fence) -> Result<Option<Phase>, String> {
        let row = &self.row;
        if row.fence.epoch != fence.epoch || row.state != State::Running {
            return Ok(None);
        }
        let transcript = Transcript::new(row.messages.clone()).close().ok();
        let is_answer = |message: &Message| {
            message.role == Role::Assistant && message.step == row.step && message.turn.as_ref() == Some(&row.turn_id())
        };
        let facts = TurnProgress {
            step: row.step,
            is_answered: row.messages.iter().any(is_answer),
            takeovers: row.takeovers,
            max_takeovers: 3,
            open_calls: u32::try_from(row.open.len()).unwrap(),
            cancel: row.cancelled.then(|| (CancelCause::Requested, String::new())),
            time_left: if row.time_is_up { Duration::ZERO } else { Duration::from_secs(60) },
            grace_left: Duration::ZERO,
            late: false,
            waiting: false,
            has_taken: false,
            spent: UsageTotals::default(),
            limits: LIMITS,
            last: transcript.as_ref().and_then(|transcript| LastMessage::of(transcript, &row.turn_id())),
        };
        let decided = (self.decide)(&facts);
        Ok(Some(match decided {
            TurnAction::Call => match invariants::asked_in_vain(row) {
                Some(wrong) => return Err(wrong),
                None => Phase::Ask,
            },
            TurnAction::Begin => Phase::Write(Write::Begin),
            TurnAction::Take { .. } => return Err("it takes what nobody queued".to_owned()),
            TurnAction::Finish if !row.open.is_empty() => {
                return Err("I4: it finishes over open calls".to_owned());
            }
            TurnAction::Finish => Phase::Write(Write::Finish(None)),
            TurnAction::Stop(ending) => Phase::Write(Write::Stop(None, how(&ending))),
        }))
    }

    /// A random response of the model, and the write for it.
    fn asked(&mut self) -> Write {
        if self.row.cancelled && self.dice.chance(50) {
            return Write::Stop(Some(FinishReason::Cancelled), Ended::Cancelled);
        }
        match self.dice.below(10) {
            0..=3 => Write::Calls(1 + self.dice.below(3)),
            4 => Write::CallsThatCannotRun,
            5 => Write::Retry,
            said => {
                let finish = if said == 6 { FinishReason::Length } else { FinishReason::Stop };
                match ending_of(finish) {
                    TurnAction::Stop(ending) => Write::Stop(Some(finish), how(&ending)),
                    TurnAction::Call | TurnAction::Begin | TurnAction::Take { .. } | TurnAction::Finish => {
                        Write::Finish(Some(finish))
                    }
                }
            }
        }
    }

    fn write(&mut self, fence: Fence, write: Write) -> Result<(), String> {
        let deed = |row: &mut Row| match write {
            Write::Calls(count) => row.append(fence, count, true),
            Write::CallsThatCannotRun => row.append(fence, 1, false),
            Write::Retry => row.retry(fence),
            Write::Begin => row.begin(fence),
            Write::Finish(answer) => row.finish(fence, answer),
            Write::Stop(answer, how) => row.stop(fence, answer, how),
        };
        let mut written = self.fenced(fence, deed)?;
        if self.crashes && self.dice.chance(15) {
            // The response is lost: the write is repeated, and then it is checked whether the first one was applied.
            let again = self.fenced(fence, deed)?;
            let landed = self.row.fence == fence.next();
            written = again.or(landed.then_some(self.row.state));
        }
        if written == Some(State::Running) {
            self.tasks.push(Task { fence: fence.next(), phase: Phase::Look });
        }
        Ok(())
    }
}

fn how(ending: &Ending) -> Ended {
    match ending {
        Ending::Completed(_) => Ended::Completed,
        Ending::Cancelled { .. } => Ended::Cancelled,
        Ending::Failed(_) => Ended::Failed,
    }
}

/// The seed of the first run with a violation, and the violation.
fn first_broken(unguarded: Unguarded, decide: fn(&TurnProgress) -> TurnAction) -> Option<(u64, String)> {
    let first = seed();
    (0..RUNS).map(|n| first.wrapping_add(n)).find_map(|seed| {
        let broken = World::new(seed, unguarded, decide).run().err()?;
        Some((seed, broken))
    })
}

/// Rows I1, I2, I4, I8 and I9
#[test]
fn simulated_owners_cancellers_and_submitters_violate_no_invariant() {
    if let Some((seed, broken)) = first_broken(Unguarded::Nothing, next_action) {
        panic!("{SEED}={seed}: {broken}");
    }
}

#[test]
fn the_simulation_finds_a_weakened_fence() {
    for (unguarded, invariants) in [(Unguarded::Epoch, ["I2", "I2"]), (Unguarded::Op, ["I4", "I9"])] {
        let (_, broken) = first_broken(unguarded, next_action).expect("nothing is found");
        assert!(invariants.iter().any(|invariant| broken.starts_with(invariant)), "{unguarded:?}: {broken}");
    }
}

#[test]
fn the_simulation_finds_a_weakened_decision() {
    let forgets_the_answer: fn(&TurnProgress) -> TurnAction = |facts| {
        let last = Some(LastMessage { role: Role::User, step: 0, finish: None, is_silent: false });
        next_action(&TurnProgress { last, is_answered: false, ..facts.clone() })
    };
    let forgets_the_cancel: fn(&TurnProgress) -> TurnAction =
        |facts| next_action(&TurnProgress { cancel: None, ..facts.clone() });
    let forgets_the_time: fn(&TurnProgress) -> TurnAction =
        |facts| next_action(&TurnProgress { time_left: Duration::from_secs(1), ..facts.clone() });
    let cancels_what_nobody_watches: fn(&TurnProgress) -> TurnAction = |facts| match next_action(facts) {
        TurnAction::Begin => {
            let cancel = Some((CancelCause::Requested, String::new()));
            next_action(&TurnProgress { cancel, ..facts.clone() })
        }
        step => step,
    };
    for (decide, invariant) in [
        (forgets_the_answer, "I2"),
        (forgets_the_cancel, "I"),
        (forgets_the_time, "I"),
        (cancels_what_nobody_watches, "I8"),
    ] {
        let (_, broken) = first_broken(Unguarded::Nothing, decide).expect("nothing is found");
        assert!(broken.starts_with(invariant), "{broken}");
    }
}
