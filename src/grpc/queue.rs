//! QueueService: messages that users send while a turn is running.

use std::sync::Arc;

use jiff::Timestamp;
use tonic::Status;

use super::{
    decode::ListOfSession, encode, handler::service, page_budget::READ_BYTES, pager::Pager, preview::fit_queued,
};
use crate::{
    codec::{self, field::Field as _},
    model::{
        Delivery, MessageId, Principal, SessionId, SessionKey,
        command::{CancelQueuedMessage, ClearQueue, EnqueueMessage},
    },
    pb::{self, queue_service_server::QueueService},
    store::queue::{EnqueuedMessage, QueueState, QueuedMessage},
    turn::Engine,
};

/// Messages per database read.
const MESSAGES_PER_READ: u32 = 64;

/// QueueService on top of an engine.
#[derive(Debug, Clone)]
pub struct Queue {
    engine: Arc<Engine>,
}

service! {
    QueueService for Queue {
        enqueue_message: EnqueueMessageRequest,
        list_queued_messages: ListQueuedMessagesRequest,
        cancel_queued_message: CancelQueuedMessageRequest,
        clear_queue: ClearQueueRequest,
    }
}

impl Queue {
    /// Creates the service.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    async fn enqueue_message(
        &self,
        caller: Principal,
        command: EnqueueMessage,
    ) -> Result<pb::EnqueueMessageResponse, Status> {
        let key = SessionKey::new(caller.tenant.clone(), command.session.clone());
        let delivery = command.delivery;
        let starts_turn = command.starts_turn || delivery == Delivery::Interrupt;
        let body = codec::queue::encode(&command.message);
        let place = self.engine.enqueue(caller.tenant, command).await?;
        let EnqueuedMessage { message, state, enqueued_at, expires_at, .. } = &place;
        let (enqueued_at, expires_at) = (*enqueued_at, *expires_at);
        let shown = ShownMessage { message, state, delivery, starts_turn, body: &body, enqueued_at, expires_at };
        Ok(pb::EnqueueMessageResponse {
            session_state: encode::session_state(place.session_state).into(),
            turn_id: place.turn.to_field(),
            queued_message: Some(self.show(shown, &key).await?),
        })
    }

    async fn list_queued_messages(
        &self,
        caller: Principal,
        ListOfSession { session, page }: ListOfSession,
    ) -> Result<pb::ListQueuedMessagesResponse, Status> {
        let key = SessionKey::new(caller.tenant, session);
        self.engine.prompts.session(&key).await?;
        let mut page: Pager<i64, _> =
            Pager::new("ListQueuedMessages", format!("{}/{}", key.tenant, key.session), page)?;
        while let Some(most) = page.next_read(MESSAGES_PER_READ) {
            let after = page.position.unwrap_or_default();
            let read = self.engine.store().queued(&key, after, most, READ_BYTES).await?;
            for queued in page.take(read.items, read.more) {
                if !page.push(queued.cursor, self.show(ShownMessage::from(&queued), &key).await?) {
                    break;
                }
            }
        }
        let (queued_messages, next_page_token) = page.finish();
        Ok(pb::ListQueuedMessagesResponse { queued_messages, next_page_token })
    }

    async fn cancel_queued_message(
        &self,
        caller: Principal,
        command: CancelQueuedMessage,
    ) -> Result<pb::CancelQueuedMessageResponse, Status> {
        let key = SessionKey::new(caller.tenant.clone(), command.session.clone());
        let queued = self.engine.sessions.cancel_queued(caller.tenant, command).await?;
        let queued_message = Some(self.show(ShownMessage::from(&queued), &key).await?);
        Ok(pb::CancelQueuedMessageResponse { queued_message })
    }

    async fn clear_queue(&self, caller: Principal, command: ClearQueue) -> Result<pb::ClearQueueResponse, Status> {
        let gone = self.engine.sessions.clear_queue(caller.tenant, command).await?;
        Ok(pb::ClearQueueResponse { cancelled_message_ids: gone.to_field() })
    }

    /// Encodes a queued message, cut to the size limit.
    async fn show(&self, queued: ShownMessage<'_>, key: &SessionKey) -> Result<pb::QueuedMessage, Status> {
        let mut shown = queued.to_pb(&key.session);
        fit_queued(&self.engine, key, &mut shown).await?;
        Ok(shown)
    }
}

/// What responses show of a queued message.
struct ShownMessage<'a> {
    message: &'a MessageId,
    state: &'a QueueState,
    delivery: Delivery,
    starts_turn: bool,
    body: &'a [u8],
    enqueued_at: Timestamp,
    expires_at: Option<Timestamp>,
}

impl<'a> From<&'a QueuedMessage> for ShownMessage<'a> {
    fn from(queued: &'a QueuedMessage) -> Self {
        let QueuedMessage {
            message,
            state,
            cursor: _,
            delivery,
            starts_turn,
            execute: _,
            body,
            request: _,
            enqueued_at,
            expires_at,
            expired: _,
        } = queued;
        Self {
            message,
            state,
            delivery: *delivery,
            starts_turn: *starts_turn,
            body,
            enqueued_at: *enqueued_at,
            expires_at: *expires_at,
        }
    }
}

impl ShownMessage<'_> {
    fn to_pb(&self, session: &SessionId) -> pb::QueuedMessage {
        let mut shown = pb::QueuedMessage {
            queued_message_id: self.message.to_string(),
            session_id: session.to_string(),
            // A message that cannot be decoded is shown without content until a turn drops it.
            message: codec::queue::to_pb(self.body).ok(),
            delivery: self.delivery.to_field(),
            on_idle: if self.starts_turn { pb::IdleAction::StartTurn } else { pb::IdleAction::Hold }.into(),
            enqueue_time: self.enqueued_at.to_field(),
            expire_time: self.expires_at.to_field(),
            ..pb::QueuedMessage::default()
        };
        let state = match self.state {
            QueueState::Pending { position } => {
                shown.position = position.to_field();
                pb::QueuedMessageState::Pending
            }
            QueueState::Applied(message) => {
                shown.message_id = message.to_string();
                pb::QueuedMessageState::Applied
            }
            QueueState::Cancelled => pb::QueuedMessageState::Cancelled,
            QueueState::Expired => pb::QueuedMessageState::Expired,
            QueueState::Dropped(reason) => {
                shown.drop_reason = reason.to_field();
                pb::QueuedMessageState::Dropped
            }
        };
        shown.set_state(state);
        shown
    }
}
