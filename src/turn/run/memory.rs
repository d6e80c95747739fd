//! Reads the state of a turn before each decision: from memory directly after its own commit,
//! otherwise from the database. A turn with large messages or media shares the memory of calls that
//! read whole sessions: it waits for its share before it reads them, and holds it until its model
//! responds.

use std::{pin::pin, time::Duration};

use futures_util::FutureExt as _;

use super::state::{Run, StepContext};
use crate::{
    model::Message,
    store::owned::{OwnedTurn, VisibleTranscript},
    turn::Error,
};

/// Messages and media of at least this many bytes are large. The total of smaller ones is bounded
/// by the number of running turns.
const LARGE: usize = 1 << 19;

/// The outcome of reading a turn.
pub(super) enum TurnRead {
    /// The turn has another owner, or is over.
    NotOwned,
    /// The wait for memory was interrupted: read again.
    Interrupted,
    /// The committed state. Contains no messages if the turn ends regardless of them.
    Current(Box<OwnedTurn>, VisibleTranscript),
}

impl Run<'_> {
    /// Reads the committed state. Waits for memory before it reads large messages.
    pub(super) async fn read_turn(&mut self) -> Result<TurnRead, Error> {
        let is_as_left = std::mem::take(&mut self.is_just_committed);
        if is_as_left && let Some(looked) = self.recall() {
            return Ok(looked);
        }
        if self.memory.is_none() {
            let Some((owned, seen)) = self.read(LARGE).await? else {
                return Ok(TurnRead::NotOwned);
            };
            if seen.bytes < LARGE && self.media == 0 {
                return Ok(TurnRead::Current(owned, seen));
            }
            if self.ends_now(&owned) {
                return Ok(TurnRead::Current(owned, VisibleTranscript::default()));
            }
            drop(seen);
            if self.wait_for_memory(&owned).await? {
                return Ok(TurnRead::Interrupted);
            }
        }
        let read = self.read(usize::MAX).await?;
        Ok(read.map_or(TurnRead::NotOwned, |(owned, seen)| TurnRead::Current(owned, seen)))
    }

    /// The state as this replica's last commit left it. Returns `None` if it is not in memory, or a
    /// cancel was announced since.
    fn recall(&self) -> Option<TurnRead> {
        if self.lease.cancelled().is_cancelled() {
            return None;
        }
        let most_bytes = match (&self.memory, self.media) {
            (Some(_), _) => usize::MAX,
            (None, 0) => LARGE,
            (None, _) => return None,
        };
        let store = &self.engine.store;
        let (owned, seen) = store.cached_turn(self.key, self.turn_fence(), most_bytes)?;
        Some(TurnRead::Current(Box::new(owned), seen))
    }

    async fn read(&self, most_bytes: usize) -> Result<Option<(Box<OwnedTurn>, VisibleTranscript)>, Error> {
        let store = &self.engine.store;
        // Only the owner writes messages, so that the two need not be one snapshot.
        let both = || store.owned_with_transcript(self.key, self.turn, self.fence.epoch, most_bytes);
        let (owned, seen) = self.retry_transient(both).await?;
        Ok(owned.map(|owned| (Box::new(owned), seen)))
    }

    /// Whether the turn ends regardless of its messages.
    fn ends_now(&self, owned: &OwnedTurn) -> bool {
        owned.cancel.is_some()
            || owned.takeovers > self.engine.prompts.rules.turn.max_takeovers
            || self.time_with_grace(owned).is_zero()
    }

    fn time_with_grace(&self, owned: &OwnedTurn) -> Duration {
        let limits = self.engine.prompts.limits(&owned.prepared_for.config, &owned.request);
        owned.time_with_grace(limits.grace)
    }

    /// Waits for memory. Returns `true` if the wait was interrupted and the turn has to be read
    /// again.
    async fn wait_for_memory(&mut self, owned: &OwnedTurn) -> Result<bool, Error> {
        let engine = self.engine;
        let messages = self.retry_transient(|| engine.store.live_bytes(self.key)).await?;
        let bytes = messages.saturating_add(self.media);
        let mut entering = pin!(engine.prompts.reserve_memory_without_timeout(&self.key.tenant, bytes));
        if let Some(place) = entering.as_mut().now_or_never() {
            self.memory = Some(place);
            return Ok(false);
        }
        tracing::info!(
            session.id = %self.key.session, turn.id = %self.turn, bytes,
            "the memory for prompts is exhausted; the next model call waits"
        );
        let time = self.time_with_grace(owned);
        let place = tokio::select! {
            place = &mut entering => place,
            () = self.wait(time) => return Ok(true),
        };
        self.watch.waited();
        self.memory = Some(place);
        Ok(false)
    }

    /// Whether a prompt's media exceed the memory that the turn holds. If so, the turn releases
    /// what it holds, and waits for the total at the next read: a waiting turn must not hold
    /// memory.
    pub(super) fn release_memory_for_media(&mut self, step: &StepContext<'_>, messages: &[Message]) -> bool {
        let media = self.engine.prompts.media_bytes(messages, step.model);
        let held = self.memory.as_ref().map_or(0, |_| self.media);
        if media < LARGE as u64 || media <= held {
            return false;
        }
        self.memory = None;
        self.media = media;
        true
    }
}
