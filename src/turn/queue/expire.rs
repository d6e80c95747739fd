//! Removes queued messages that expired, or with which no turn can be started.

use crate::{
    codec,
    model::{DropReason, MessageId, Payload, SessionKey, command::Idempotency},
    session::{queue::MessageSelection, queue_rows::Withdrawal},
    turn::{Error, engine::Engine},
};

/// Sessions whose expired messages are removed in one round.
const ROUND: u32 = 32;

impl Engine {
    /// Removes expired queued messages, round after round while there are more. A session in which
    /// that fails does not hold up the others. Returns the first error.
    pub async fn expire_queued_messages(&self) -> Result<(), Error> {
        let mut first = Ok(());
        while !self.draining.is_cancelled() {
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

    /// Drops a queued message.
    pub(in crate::turn) async fn drop_queued_message(
        &self,
        key: &SessionKey,
        message: &MessageId,
        why: DropReason,
    ) -> Result<(), Error> {
        let payload = codec::event::encode(&Payload::QueuedMessageDropped { message: message.clone(), reason: why });
        let which = MessageSelection::These(std::slice::from_ref(message));
        self.withdraw(key, which, Withdrawal::Dropped(why), &payload.payload).await
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
            self.notify_readers(key, seq);
        }
        Ok(())
    }
}
