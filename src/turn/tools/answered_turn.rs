//! The turn whose calls a submission answers, from this replica's memory or read from the database.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    model::{
        CallId, SessionConfig, SessionKey, TurnId, UsageTotals,
        command::{SubmitToolResults, TurnRequest},
    },
    store::{
        import::NO_TURN,
        known_call::StoredCall,
        session_memory::{PrepareInput, WaitingTurn},
    },
    turn::{Error, engine::Prompts, idempotency::check_same},
};

/// Calls by their position in a request.
type Positions = Vec<(usize, CallId)>;

/// The turn whose calls are answered, and what its next step is built from.
pub(super) struct AnsweredTurn {
    pub(super) request: TurnRequest,
    /// Time since the turn's start.
    pub(super) elapsed: Duration,
    pub(super) totals: UsageTotals,
    /// The configuration of the step with the calls, if it may differ from the one in force.
    made_for: Option<SessionConfig>,
    pub(super) basis: PrepareInput,
}

impl AnsweredTurn {
    /// From the memory that this replica has of a turn that it ran.
    fn of(waiting: WaitingTurn) -> (Self, BTreeMap<CallId, StoredCall>) {
        let WaitingTurn { basis, request, elapsed, totals, calls } = waiting;
        let parties = Self { request, elapsed, totals, made_for: None, basis };
        (parties, calls)
    }

    /// The configuration of the next step.
    pub(super) fn in_force(&self) -> &SessionConfig {
        &self.basis.revision.config
    }

    /// The configuration of the step with the calls.
    pub(super) fn made_for(&self) -> &SessionConfig {
        self.made_for.as_ref().unwrap_or(self.in_force())
    }
}

impl Prompts {
    /// The turn that waits for the results of all these calls, and the calls, from this replica's
    /// memory.
    pub(super) fn remembered_answered_turn(
        &self,
        key: &SessionKey,
        command: &SubmitToolResults,
    ) -> Option<(AnsweredTurn, BTreeMap<CallId, StoredCall>)> {
        let is_simple = command.decisions.is_empty() && !command.results.is_empty();
        let waiting = is_simple.then(|| self.store.cached_waiting_turn(key, &named(command)))??;
        Some(AnsweredTurn::of(waiting))
    }

    /// The turn and the calls, read from the database. The turn is returned if one of the calls is
    /// open.
    pub(super) async fn read_answered_turn(
        &self,
        key: &SessionKey,
        command: &SubmitToolResults,
    ) -> Result<(Option<AnsweredTurn>, BTreeMap<CallId, StoredCall>), Error> {
        let request = command.idempotency.request.as_ref();
        let head = self.store.head(key, request).await?;
        let head = head.ok_or_else(|| Error::SessionNotFound(key.session.clone()))?;
        if let Some(first) = &head.stored_request {
            check_same(&first.hash, &command.idempotency)?;
        }
        let known = self.store.calls(key, &named(command)).await?;
        check_named(command, &known)?;
        let open = known.values().find(|call| call.state.is_open());
        let parties = match open {
            Some(call) => Some(self.answered_turn(key, &call.turn).await?),
            None => None,
        };
        Ok((parties, known))
    }

    /// The turn that made calls, and what its next step is built from.
    pub(super) async fn answered_turn(&self, key: &SessionKey, turn: &TurnId) -> Result<AnsweredTurn, Error> {
        let turn = self.store.turn(key, turn).await?.ok_or_else(|| Error::TurnNotFound(turn.clone()))?;
        Ok(AnsweredTurn {
            request: turn.request,
            elapsed: turn.so_far.elapsed,
            totals: turn.so_far.total_usage,
            made_for: Some(turn.config),
            basis: self.session(key).await?.into(),
        })
    }
}

/// The calls that a submission names, results first.
fn named(command: &SubmitToolResults) -> Vec<CallId> {
    let results = command.results.iter().map(|result| result.call.clone());
    results.chain(command.decisions.iter().map(|decision| decision.call.clone())).collect()
}

/// Refuses a submission that names unknown calls, or calls that the host appended and that belong
/// to no turn.
fn check_named(command: &SubmitToolResults, known: &BTreeMap<CallId, StoredCall>) -> Result<(), Error> {
    let (results, approvals) = where_named(command, |call| !known.contains_key(call));
    if !results.is_empty() || !approvals.is_empty() {
        return Err(Error::UnknownCalls { results, approvals });
    }
    let appended = |call: &CallId| known.get(call).is_some_and(|call| call.turn.as_str() == NO_TURN);
    let (results, approvals) = where_named(command, appended);
    if results.is_empty() && approvals.is_empty() { Ok(()) } else { Err(Error::AppendedCalls { results, approvals }) }
}

/// The named calls that match, with their positions among the results and among the decisions.
fn where_named(command: &SubmitToolResults, such: impl Fn(&CallId) -> bool) -> (Positions, Positions) {
    let results = command.results.iter().map(|result| &result.call).enumerate();
    let decisions = command.decisions.iter().map(|decision| &decision.call).enumerate();
    let results = results.filter(|(_, call)| such(call)).map(|(i, call)| (i, call.clone()));
    let decisions = decisions.filter(|(_, call)| such(call)).map(|(i, call)| (i, call.clone()));
    (results.collect(), decisions.collect())
}
