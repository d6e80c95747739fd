//! Other activity in a session while its client runs turns: messages are enqueued, withdrawn and left to expire; turns
//! are interrupted, cancelled and rolled back; old results are cleared and restored; contexts are compacted and the
//! compactions reverted.

use contextd::pb::{
    self, CancelMode, Delivery, IdleAction, QueuedMessageState, context_service_client::ContextServiceClient,
    queue_service_client::QueueServiceClient, turn_service_client::TurnServiceClient,
};
use tokio_util::sync::CancellationToken;

use crate::{
    client::{Clients, fresh_id, pause},
    harness::requests::enqueue,
    random::Random,
};

/// Interferes with a session until its client has finished.
pub(crate) async fn meddle(clients: Clients, session: String, random: Random, over: CancellationToken) {
    let mut meddler = Meddler { clients, session, random, said: 0 };
    while !over.is_cancelled() {
        match meddler.random.below(100) {
            0..50 => meddler.say().await,
            50..54 => meddler.clear().await,
            54..60 => meddler.cancel().await,
            60..75 => meddler.prune().await,
            75..88 => meddler.compact().await,
            88..95 => meddler.revert().await,
            _ => {}
        }
        pause(&mut meddler.random, 20, 300).await;
    }
}

/// A second user of a session.
pub(crate) struct Meddler {
    pub(crate) clients: Clients,
    pub(crate) session: String,
    pub(crate) random: Random,
    said: usize,
}

impl Meddler {
    /// Enqueues a message of any kind; sometimes it is withdrawn or expires soon.
    async fn say(&mut self) {
        self.said += 1;
        let words = format!("{}/said-{};", self.session, self.said);
        let deliveries = [Delivery::Asap, Delivery::Asap, Delivery::Asap, Delivery::WhenIdle, Delivery::WhenIdle];
        let interrupts = self.random.happens(10);
        let delivery = if interrupts { Delivery::Interrupt } else { *self.random.of(&deliveries) };
        let on_idle = *self.random.of(&[IdleAction::Hold, IdleAction::StartTurn]);
        let nanos = i32::try_from(1_000_000 * (1 + self.random.below(300))).unwrap_or(1);
        let ttl = self.random.happens(25).then_some(prost_types::Duration { seconds: 0, nanos });
        let request = pb::EnqueueMessageRequest {
            delivery: delivery.into(),
            on_idle: on_idle.into(),
            ttl,
            ..enqueue(&self.session, &format!("{words} words=4 pace=10"))
        };
        let answer = self
            .clients
            .insist(&words, &mut self.random, |channel| {
                let request = request.clone();
                async move { QueueServiceClient::new(channel).enqueue_message(request).await }
            })
            .await;
        let Some(message) = answer.and_then(|answer| answer.queued_message) else {
            return;
        };
        let id = message.queued_message_id;
        self.clients.note(&self.session, |session| drop(session.queued.insert(id.clone(), words)));
        if self.random.happens(20) {
            pause(&mut self.random, 0, 60).await;
            self.withdraw(id).await;
        }
    }

    async fn withdraw(&mut self, id: String) {
        let request = pb::CancelQueuedMessageRequest {
            session_id: self.session.clone(),
            queued_message_id: id.clone(),
            ..pb::CancelQueuedMessageRequest::default()
        };
        let answer = self
            .clients
            .insist(&id, &mut self.random, |channel| {
                let request = request.clone();
                async move { QueueServiceClient::new(channel).cancel_queued_message(request).await }
            })
            .await;
        if let Some(message) = answer.and_then(|answer| answer.queued_message)
            && message.state() == QueuedMessageState::Pending
        {
            self.clients.complain(format!("{}: {id} is still queued although it was withdrawn", self.session));
        }
    }

    async fn clear(&mut self) {
        let request = pb::ClearQueueRequest { session_id: self.session.clone(), request_id: fresh_id() };
        self.clients
            .insist(&self.session, &mut self.random, |channel| {
                let request = request.clone();
                async move { QueueServiceClient::new(channel).clear_queue(request).await }
            })
            .await;
    }

    /// Cancels the live turn, with or without a rollback.
    async fn cancel(&mut self) {
        let mode = *self.random.of(&[CancelMode::Stop, CancelMode::Rollback]);
        let request = pb::CancelTurnRequest {
            session_id: self.session.clone(),
            request_id: fresh_id(),
            mode: mode.into(),
            ..pb::CancelTurnRequest::default()
        };
        self.clients
            .insist(&self.session, &mut self.random, |channel| {
                let request = request.clone();
                async move { TurnServiceClient::new(channel).cancel_turn(request).await }
            })
            .await;
    }

    /// Clears all results; sometimes they are restored, with the request sent twice.
    pub(crate) async fn prune(&mut self) {
        let request = pb::PruneToolOutputsRequest {
            session_id: self.session.clone(),
            request_id: fresh_id(),
            minimum_tokens: Some(1),
            protect_tokens: Some(0),
            protect_turns: Some(0),
            validate_only: false,
        };
        let answer = self
            .clients
            .insist(&self.session, &mut self.random, |channel| {
                let request = request.clone();
                async move { ContextServiceClient::new(channel).prune_tool_outputs(request).await }
            })
            .await;
        let pruned_at_seq = answer.and_then(|answer| answer.report).map_or(0, |report| report.pruned_at_seq);
        if pruned_at_seq == 0 || self.random.happens(30) {
            return;
        }
        pause(&mut self.random, 0, 100).await;
        let request = pb::RestoreToolOutputsRequest {
            session_id: self.session.clone(),
            pruned_at_seq,
            ..pb::RestoreToolOutputsRequest::default()
        };
        for _ in 0..=usize::from(self.random.happens(30)) {
            self.clients
                .insist(&self.session, &mut self.random, |channel| {
                    let request = request.clone();
                    async move { ContextServiceClient::new(channel).restore_tool_outputs(request).await }
                })
                .await;
        }
    }
}
