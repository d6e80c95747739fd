//! EnqueueMessage: queues a message, and starts its turn or interrupts the running one.

use std::sync::Arc;

use crate::{
    model::{Delivery, SessionKey, TenantId, command::EnqueueMessage},
    session::SessionState,
    store::{queue::EnqueuedMessage, session::Session},
    turn::{
        Error,
        engine::{Engine, supervised},
        live::wakeups::Wakeup,
        queue::enqueue::{EnqueueOutcome, Incoming},
        run::cause::Cause,
    },
};

impl Engine {
    /// Queues a message. If the message asks for it, starts a turn or interrupts the running one.
    pub async fn enqueue(
        self: &Arc<Self>,
        tenant: TenantId,
        command: EnqueueMessage,
    ) -> Result<EnqueuedMessage, Error> {
        supervised(&self.capacity, self, async move |engine| {
            let EnqueueMessage { session, idempotency, message, contents, delivery, starts_turn, ttl } = command;
            let key = SessionKey::new(tenant, session);
            let session = engine.prompts.session(&key).await?;
            engine.sessions.keep(&key.tenant, &contents).await?;
            let incoming = Incoming {
                message: &message,
                delivery,
                starts_turn: starts_turn || delivery == Delivery::Interrupt,
                execute: None,
                ttl,
                idempotency: &idempotency,
            };
            match engine.put_and_start(&key, incoming, &session).await? {
                EnqueueOutcome::New(place, _) | EnqueueOutcome::QueuedBefore(place) => Ok(place),
                EnqueueOutcome::NotQueued => Err(Error::Internal(
                    "the result stored for an enqueue belongs to another kind of request".to_owned(),
                )),
            }
        })
        .await
    }

    /// Puts a message into the queue of a session that was just read. Starts the turn that it begins,
    /// and ends the one that it interrupts.
    pub(super) async fn put_and_start(
        self: &Arc<Self>,
        key: &SessionKey,
        incoming: Incoming<'_>,
        session: &Session,
    ) -> Result<EnqueueOutcome, Error> {
        let (delivery, starts_turn) = (incoming.delivery, incoming.starts_turn);
        let put = self.sessions.put(key, incoming, session).await?;
        let EnqueueOutcome::New(place, request) = &put else {
            return Ok(put);
        };
        let interrupts = place.interrupts.as_ref().map(|(turn, fence)| (turn, *fence));
        if interrupts.is_some() || delivery == Delivery::Interrupt && place.session_state.is_live() {
            self.end_cancelled(key, interrupts, request);
        }
        match &place.grant {
            Some(grant) => self.start(key.clone(), grant.clone(), request.sent(), Cause::Queued),
            // The configuration changed concurrently.
            None if starts_turn && place.session_state == SessionState::Idle => {
                self.live.wake(Wakeup::Start(key.clone()));
                self.start_waiting_soon(key);
            }
            None => {}
        }
        Ok(put)
    }
}
