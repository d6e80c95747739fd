//! Moves queued messages into the transcript of an idle session, for a host that calls the model
//! itself.

use crate::{
    model::{AppliedMessage, SessionKey, derive, event::StepPosition},
    provider::registry::ResolvedModel,
    session::{SessionState, queue::MessageSelection, queue_rows::Withdrawal, rows::Rows},
    turn::{
        Error,
        context::{estimators::estimator, session_view::SessionView, window::known_window},
        engine::SessionCommands,
        queue::take::{choose, fits, take_rows, taken_message},
    },
};

/// The outcome of taking queued messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::turn) enum TakeOutcome {
    /// No queued message can be taken now, and nothing was written.
    Nothing,
    /// These messages are in the transcript, in this order. May be empty, if all of them were
    /// dropped because they can never be taken.
    Taken(Vec<AppliedMessage>),
    /// The session changed concurrently.
    Moved,
}

impl SessionCommands {
    /// Takes the queued messages according to the session's policy and in one statement, as a turn
    /// does between two steps. Takes nothing while calls have no results, and no input of an
    /// ExecuteTurn, whose client waits for a turn.
    pub(in crate::turn) async fn take_queued_messages(
        &self,
        key: &SessionKey,
        view: &SessionView,
        model: &ResolvedModel,
    ) -> Result<TakeOutcome, Error> {
        let look = self.store.queue_snapshot(key).await?;
        let mut look = look.ok_or_else(|| Error::SessionNotFound(key.session.clone()))?;
        if look.state != SessionState::Idle {
            return Ok(TakeOutcome::Moved);
        }
        let mut waiting = std::mem::take(&mut look.waiting);
        waiting.retain(|queued| queued.execute.is_none());
        if look.open_calls > 0 || waiting.is_empty() {
            return Ok(TakeOutcome::Nothing);
        }
        let policy = self.prompts.policy(&view.session.config)?;
        let window = known_window(&policy.context, model);
        let non_transcript_tokens = view.size(model).non_transcript_tokens();
        let choice = choose(waiting, policy.take, |message| fits(message, model, window, non_transcript_tokens));
        if !choice.expired.is_empty() {
            self.withdraw(key, MessageSelection::These(&choice.expired), Withdrawal::Expired, b"").await?;
            return Ok(TakeOutcome::Moved);
        }
        let estimator = estimator(model);
        let message = taken_message(choice.taken, derive::taken_while_idle, estimator);
        let applied = message.as_ref().map_or_else(Vec::new, |(applied, _)| applied.clone());
        let rows = Rows::new(&estimator.name(), 0);
        let (rows, ends) = take_rows(rows, StepPosition::default(), choice.dropped, None, message);
        let revision = view.session.revision;
        let Some(last) = self.store.take_idle(key, &look, revision, &rows, &ends.taken()).await? else {
            return Ok(TakeOutcome::Moved);
        };
        self.live.notify_readers(key, last);
        Ok(TakeOutcome::Taken(applied))
    }
}
