//! Removes queued messages that expired, or with which no turn can be started.

use crate::{
    model::{SessionKey, command::Idempotency},
    session::{queue::MessageSelection, queue_rows::Withdrawal},
    turn::{Error, engine::SessionCommands},
};

/// Sessions whose expired messages are removed in one round.
const ROUND: u32 = 32;

impl SessionCommands {
    /// Removes expired queued messages, round after round while there are more. A session in which
    /// that fails does not hold up the others. Returns the first error.
    pub async fn expire_queued_messages(&self) -> Result<(), Error> {
        let mut first = Ok(());
        while !self.capacity.draining.is_cancelled() {
            let found = self.store.sessions_with_expired_messages(ROUND).await?;
            let is_full = found.len() == ROUND as usize;
            let mut removed = 0;
            for key in found {
                let expired = self.withdraw(&key, MessageSelection::All, Withdrawal::Expired, b"").await;
                match &expired {
                    Ok(()) => removed += 1,
                    Err(error) => {
                        tracing::warn!(session.id = %key.session, %error, "failed to remove expired queued messages");
                    }
                }
                first = first.and(expired);
            }
            if !is_full || removed == 0 {
                break;
            }
        }
        first
    }

    /// Ends queued messages on the server's behalf, without a request.
    pub(in crate::turn) async fn withdraw(
        &self,
        key: &SessionKey,
        which: MessageSelection<'_>,
        why: Withdrawal,
        payload: &[u8],
    ) -> Result<(), Error> {
        let unkeyed = Idempotency::none();
        let gone = self.store.unqueue(key, which, why, payload, &unkeyed).await?;
        if let Some(seq) = gone.last_seq {
            self.live.notify_readers(key, seq);
        }
        Ok(())
    }
}
