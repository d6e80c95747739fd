//! QueueService: messages that users send while a turn is running.

use std::sync::Arc;

use prost::Message as _;
use tonic::{Request, Response, Status};

use super::{
    caller::tenant,
    decode, encode,
    page_budget::{PageBudget, READ_BYTES},
    page_token,
    preview::fit_queued,
};
use crate::{
    codec::{self, field::Field as _},
    model::{Delivery, SessionKey},
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

impl Queue {
    /// Creates the service.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Encodes a queued message, cut to the size limit.
    async fn show(&self, queued: QueuedMessage, key: &SessionKey) -> Result<pb::QueuedMessage, Status> {
        let mut shown = queued_message(queued, key);
        fit_queued(&self.engine, key, &mut shown).await?;
        Ok(shown)
    }

    async fn page(
        &self,
        key: &SessionKey,
        wanted: decode::PageRequest,
    ) -> Result<pb::ListQueuedMessagesResponse, Status> {
        const LIST: &str = "ListQueuedMessages";
        let decode::PageRequest { size, token } = wanted;
        let filter = format!("{}/{}", key.tenant, key.session);
        let mut at: i64 = match token {
            Some(token) => page_token::decode(&token, LIST, &filter)?.parse().map_err(|_| page_token::BadToken)?,
            None => 0,
        };
        let mut queued_messages = Vec::new();
        let mut room = PageBudget::default();
        let batch = MESSAGES_PER_READ.min(size.saturating_add(1));
        let more = 'page: loop {
            let read = self.engine.store().queued(key, at, batch, READ_BYTES).await?;
            for queued in read.items {
                let cursor = queued.cursor;
                let shown = self.show(queued, key).await?;
                if queued_messages.len() == size as usize || !room.try_reserve(shown.encoded_len()) {
                    break 'page true;
                }
                at = cursor;
                queued_messages.push(shown);
            }
            if !read.more {
                break false;
            }
        };
        let next_page_token = page_token::next(more, LIST, &filter, &at.to_string());
        Ok(pb::ListQueuedMessagesResponse { queued_messages, next_page_token })
    }
}

#[tonic::async_trait]
impl QueueService for Queue {
    async fn enqueue_message(
        &self,
        request: Request<pb::EnqueueMessageRequest>,
    ) -> Result<Response<pb::EnqueueMessageResponse>, Status> {
        let tenant = tenant(&request)?;
        let request = request.into_inner();
        let stored = self.engine.prompts.stored(&tenant, &decode::blobs_in_messages(&request.message)).await?;
        let command = decode::enqueue_message(request, stored)?;
        let key = SessionKey::new(tenant.clone(), command.session.clone());
        let delivery = command.delivery;
        let starts_turn = command.starts_turn || delivery == Delivery::Interrupt;
        let body = codec::queue::encode(&command.message);
        let place = self.engine.enqueue(tenant, command).await?;
        let shown = QueuedMessageFields { session: key.session.as_str(), body: &body, delivery, starts_turn };
        let (met, turn) = (place.session_state, place.turn.clone());
        let mut queued_message = placed(place, &shown);
        fit_queued(&self.engine, &key, &mut queued_message).await?;
        Ok(Response::new(pb::EnqueueMessageResponse {
            session_state: encode::session_state(met).into(),
            turn_id: turn.map(|turn| turn.into_string()).unwrap_or_default(),
            queued_message: Some(queued_message),
        }))
    }

    async fn list_queued_messages(
        &self,
        request: Request<pb::ListQueuedMessagesRequest>,
    ) -> Result<Response<pb::ListQueuedMessagesResponse>, Status> {
        let tenant = tenant(&request)?;
        let decode::ListQueuedMessages { session, page } = decode::list_queued_messages(request.into_inner())?;
        let key = SessionKey::new(tenant, session);
        self.engine.prompts.session(&key).await?;
        Ok(Response::new(self.page(&key, page).await?))
    }

    async fn cancel_queued_message(
        &self,
        request: Request<pb::CancelQueuedMessageRequest>,
    ) -> Result<Response<pb::CancelQueuedMessageResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::cancel_queued_message(request.into_inner())?;
        let key = SessionKey::new(tenant.clone(), command.session.clone());
        let queued = self.engine.sessions.cancel_queued(tenant, command).await?;
        let queued_message = Some(self.show(queued, &key).await?);
        Ok(Response::new(pb::CancelQueuedMessageResponse { queued_message }))
    }

    async fn clear_queue(
        &self,
        request: Request<pb::ClearQueueRequest>,
    ) -> Result<Response<pb::ClearQueueResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::clear_queue(request.into_inner())?;
        let gone = self.engine.sessions.clear_queue(tenant, command).await?;
        let cancelled_message_ids = gone.into_iter().map(|message| message.into_string()).collect();
        Ok(Response::new(pb::ClearQueueResponse { cancelled_message_ids }))
    }
}

/// The fields of a queued message that do not depend on its state.
struct QueuedMessageFields<'a> {
    session: &'a str,
    body: &'a [u8],
    delivery: Delivery,
    starts_turn: bool,
}

impl QueuedMessageFields<'_> {
    fn message(&self, id: &str, state: &QueueState) -> pb::QueuedMessage {
        let mut shown = pb::QueuedMessage {
            queued_message_id: id.to_owned(),
            session_id: self.session.to_owned(),
            // A message that cannot be decoded is shown without content until a turn drops it.
            message: codec::queue::to_pb(self.body).ok(),
            delivery: self.delivery.to_field(),
            on_idle: if self.starts_turn { pb::IdleAction::StartTurn } else { pb::IdleAction::Hold }.into(),
            ..pb::QueuedMessage::default()
        };
        let state = match state {
            QueueState::Pending { position } => {
                shown.position = i32::try_from(*position).unwrap_or(i32::MAX);
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

fn placed(place: EnqueuedMessage, shown: &QueuedMessageFields<'_>) -> pb::QueuedMessage {
    pb::QueuedMessage {
        enqueue_time: place.enqueued_at.to_field(),
        expire_time: place.expires_at.to_field(),
        ..shown.message(place.message.as_str(), &place.state)
    }
}

fn queued_message(queued: QueuedMessage, key: &SessionKey) -> pb::QueuedMessage {
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
    let shown = QueuedMessageFields { session: key.session.as_str(), body: &body, delivery, starts_turn };
    pb::QueuedMessage {
        enqueue_time: enqueued_at.to_field(),
        expire_time: expires_at.to_field(),
        ..shown.message(message.as_str(), &state)
    }
}
