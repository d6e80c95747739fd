//! Cancels turns that have had no reader for a while, if their request asks for that.

use std::sync::Arc;

use crate::{
    model::{CancelCause, command::Idempotency},
    session::CancelRequest,
    store::attendance::AttendedTurn,
    turn::{Error, engine::Engine},
};

/// Rounds that a replica may miss before its readers are considered gone.
const MAX_MISSED_ROUNDS: u32 = 3;

impl Engine {
    /// Reports the turns that are read here, and cancels overdue turns without any reader.
    pub async fn check_readers(self: &Arc<Self>) -> Result<(), Error> {
        let is_read_here =
            |turn: &AttendedTurn| self.live.hub.get(&turn.key).is_some_and(|channel| channel.has_readers());
        let (here, elsewhere): (Vec<_>, Vec<_>) = self.store.attended().await?.into_iter().partition(is_read_here);
        if !here.is_empty() {
            self.store.record_readers(&here, self.prompts.rules.turn.poll_interval * MAX_MISSED_ROUNDS).await?;
        }
        for turn in elsewhere.into_iter().filter(|turn| turn.overdue) {
            self.cancel_unread(turn).await?;
        }
        Ok(())
    }

    async fn cancel_unread(self: &Arc<Self>, turn: AttendedTurn) -> Result<(), Error> {
        let AttendedTurn { key, turn, overdue: _ } = turn;
        let unkeyed = Idempotency::none();
        let mut request = self.capacity.leases.request(&key);
        let cancel = CancelRequest { cause: CancelCause::Disconnected, reason: String::new(), rollback: false };
        let cancelled = self.store.cancel(&key, Some(&turn), &cancel, &unkeyed).await;
        let cancelled = request.answered(cancelled)?;
        let Some(live) = &cancelled.turn else {
            return self.store.unregister_attended_turn(&key, &turn).await.map_err(Error::from);
        };
        tracing::info!(session.id = %key.session, turn.id = %turn, "cancelling a turn that no client reads");
        self.end_cancelled(&key, cancelled.fence.map(|fence| (live, fence)), &request);
        Ok(())
    }
}
