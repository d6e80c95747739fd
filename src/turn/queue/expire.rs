//! Messages that no longer wait: their time passed, or no turn can be started with them.

use crate::{
    codec,
    model::{DropReason, MessageId, Payload, SessionKey, command::Idempotency},
    store::queue::{Which, Withdrawal},
    turn::{Error, engine::Engine},
};

/// Sessions whose expired messages are removed in one round.
const ROUND: u32 = 32;

impl Engine {
    /// Removes messages that waited until their time passed.
    pub async fn expire_queued_messages(&self) -> Result<(), Error> {
        for key in self.store.expiring(ROUND).await? {
            self.withdraw(&key, Which::All, Withdrawal::Expired, b"")
                .await?;
        }
        Ok(())
    }

    /// Drops a message that waits.
    pub(in crate::turn) async fn give_up(
        &self,
        key: &SessionKey,
        message: &MessageId,
        why: DropReason,
    ) -> Result<(), Error> {
        let payload = codec::event::encode(&Payload::QueuedMessageDropped {
            message: message.clone(),
            reason: why,
        });
        let which = Which::These(std::slice::from_ref(message));
        self.withdraw(key, which, Withdrawal::Dropped(why), &payload.payload)
            .await
    }

    /// Ends messages that wait, without a request.
    pub(in crate::turn) async fn withdraw(
        &self,
        key: &SessionKey,
        which: Which<'_>,
        why: Withdrawal,
        payload: &[u8],
    ) -> Result<(), Error> {
        let unkeyed = Idempotency::none();
        let gone = self
            .store
            .unqueue(key, which, why, payload, &unkeyed)
            .await?;
        if let Some(seq) = gone.last_seq {
            self.nudge(key, seq);
        }
        Ok(())
    }
}
