//! Puts a message into the queue, and withdraws messages by request.

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{
    codec,
    model::{
        Delivery, InputMessage, Media, MessageId, Part, SessionKey, TenantId,
        command::{CancelQueuedMessage, ClearQueue, Idempotency, TurnRequest},
    },
    session::{queue::MessageSelection, queue_rows::Withdrawal},
    store::{
        queue::{Enqueued, EnqueuedMessage, NewQueued, QueueState, QueuedMessage, WithdrawalOutcome},
        session::Session,
    },
    turn::{
        Error,
        context::memory::is_large,
        engine::{Live, Prompts, SessionCommands, supervised},
        idempotency::{check_same, mismatch},
        lease::leases::GrantRequest,
        live::hub::Announcement,
        opening::StartingPoint,
        queue::plan::PlannedTurn,
    },
};

/// A message to be queued.
#[derive(Debug, Clone, Copy)]
pub(in crate::turn) struct Incoming<'a> {
    pub(in crate::turn) message: &'a InputMessage,
    pub(in crate::turn) delivery: Delivery,
    pub(in crate::turn) starts_turn: bool,
    /// The settings of its turn, if it is the input of an ExecuteTurn.
    pub(in crate::turn) execute: Option<&'a TurnRequest>,
    pub(in crate::turn) ttl: Option<Duration>,
    pub(in crate::turn) idempotency: &'a Idempotency,
}

/// The outcome of queueing a message.
#[derive(Debug)]
pub(in crate::turn) enum EnqueueOutcome {
    /// It was queued now, by a statement that may have granted a turn.
    New(EnqueuedMessage, GrantRequest),
    /// The same request queued it before.
    QueuedBefore(EnqueuedMessage),
    /// Not queued: the same request had another outcome before.
    NotQueued,
}

impl SessionCommands {
    /// Puts a message into the queue of a session that was just read. The statement begins the turn
    /// that the message starts, if it can; the caller runs it.
    pub(in crate::turn) async fn put(
        &self,
        key: &SessionKey,
        incoming: Incoming<'_>,
        session: &Session,
    ) -> Result<EnqueueOutcome, Error> {
        let Incoming { message, delivery, starts_turn, execute, ttl, idempotency } = incoming;
        // A message that the same request queued before must be found even over the quota.
        let exceeded = self.capacity.quotas.check_storage(&key.tenant).err();
        let limit = match exceeded {
            Some(_) => 0,
            None => self.prompts.policy(&session.config)?.max_pending,
        };
        let id = MessageId::new(Uuid::now_v7().to_string());
        let body = codec::queue::encode(message);
        if is_large(body.len()) {
            self.prompts.check_session_size(key).await?;
        }
        let turn_request = execute.map(codec::turn::encode_request);
        let blobs: Vec<&str> = message.parts.iter().flat_map(Part::media).filter_map(blob).collect();
        let start = StartingPoint::of(session);
        let wanted = execute.cloned().unwrap_or_default();
        let planned = (starts_turn && self.capacity.may_begin(&key.tenant))
            .then(|| self.prompts.plan(&id, idempotency.request.clone(), &wanted, start))
            .transpose()?;
        let starting = planned.and_then(|planned| Some((planned, self.capacity.request_start(key).ok()?)));
        let (planned, mut request) = match starting {
            Some((planned, request)) => (Some(planned), request),
            None => (None, self.capacity.leases.request(key)),
        };
        let admission = planned.as_ref().map(PlannedTurn::admission);
        let new = NewQueued {
            message: &id,
            body: &body,
            blobs: &blobs,
            delivery,
            starts_turn,
            execute: turn_request.as_deref(),
            ttl,
            limit,
            idempotency,
        };
        let place = match request.answered(self.store.enqueue(key, &new, admission.as_ref()).await)? {
            Enqueued::Queued(place) => place,
            Enqueued::OtherEffect(_) => return Ok(EnqueueOutcome::NotQueued),
            Enqueued::Full => {
                if let Some(exceeded) = exceeded {
                    return Err(exceeded.into());
                }
                return Err(Error::QueueFull { session: key.session.clone(), limit });
            }
            Enqueued::NoSession => return Err(Error::SessionNotFound(key.session.clone())),
            Enqueued::Mismatch => return Err(mismatch(idempotency)),
        };
        if place.message != id {
            return Ok(EnqueueOutcome::QueuedBefore(place));
        }
        self.live.announce(key, &place, delivery);
        Ok(EnqueueOutcome::New(place, request))
    }

    /// Withdraws a queued message and returns its outcome.
    pub async fn cancel_queued(
        self: &Arc<Self>,
        tenant: TenantId,
        command: CancelQueuedMessage,
    ) -> Result<QueuedMessage, Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let CancelQueuedMessage { session, message, idempotency } = command;
            let key = SessionKey::new(tenant, session);
            sessions.prompts.must_exist(&key).await?;
            let not_found = || Error::QueuedMessageNotFound(message.clone());
            sessions.store.queued_message(&key, &message).await?.ok_or_else(not_found)?;
            sessions
                .withdraw_for_request(&key, MessageSelection::These(std::slice::from_ref(&message)), &idempotency)
                .await?;
            sessions.store.queued_message(&key, &message).await?.ok_or_else(not_found)
        })
        .await
    }

    /// Withdraws all queued messages of a session and returns their ids.
    pub async fn clear_queue(self: &Arc<Self>, tenant: TenantId, command: ClearQueue) -> Result<Vec<MessageId>, Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let ClearQueue { session, idempotency } = command;
            let key = SessionKey::new(tenant, session);
            sessions.prompts.must_exist(&key).await?;
            sessions.withdraw_for_request(&key, MessageSelection::All, &idempotency).await.map(|gone| gone.messages)
        })
        .await
    }

    async fn withdraw_for_request(
        &self,
        key: &SessionKey,
        which: MessageSelection<'_>,
        idempotency: &Idempotency,
    ) -> Result<WithdrawalOutcome, Error> {
        let gone = self.store.unqueue(key, which, Withdrawal::Cancelled, b"", idempotency).await?;
        if let Some(first) = &gone.hash {
            check_same(first, idempotency)?;
        }
        if let Some(seq) = gone.last_seq {
            self.live.notify_readers(key, seq);
        }
        Ok(gone)
    }
}

impl Live {
    /// Shows the queued message to the readers that follow the session here.
    fn announce(&self, key: &SessionKey, place: &EnqueuedMessage, delivery: Delivery) {
        let (Some(channel), QueueState::Pending { position }) = (self.hub.get(key), &place.state) else {
            return;
        };
        channel.announce(Announcement {
            turn: place.turn.clone(),
            message: place.message.clone(),
            position: *position,
            delivery,
        });
    }
}

impl Prompts {
    /// Checks that a session exists.
    pub(in crate::turn) async fn must_exist(&self, key: &SessionKey) -> Result<(), Error> {
        let head = self.store.head(key, None).await?;
        head.map(drop).ok_or_else(|| Error::SessionNotFound(key.session.clone()))
    }
}

fn blob(media: &Media) -> Option<&str> {
    media.blob().map(|kept| kept.id.as_str())
}
