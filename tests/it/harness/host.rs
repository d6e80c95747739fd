//! A host with one replica: each kind of request in one call.

use std::{future::Future, time::Duration};

use contextd::pb::{
    self, context_service_client::ContextServiceClient, queue_service_client::QueueServiceClient,
    session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::{Code, Status, Streaming, transport::Channel};
use tonic_types::StatusExt as _;

use super::{
    Options, Replica, TestDatabase,
    events::{self, TEST_TIMEOUT},
    requests::{decide, submit, turn},
};

/// The model that [`Host::scripted`] serves.
pub const MODEL: &str = "scripted/it";

/// A replica with open connections to it.
pub struct Host {
    /// The database, which other replicas may share.
    pub database: TestDatabase,
    pub replica: Replica,
    turns: TurnServiceClient<Channel>,
    sessions: SessionServiceClient<Channel>,
    contexts: ContextServiceClient<Channel>,
    queue: QueueServiceClient<Channel>,
}

/// Options with one script for [`MODEL`]. It selects the response by the number of model calls since the last user
/// message.
pub fn answering(answers: &[Value]) -> Options {
    Options::default().script("it", script(answers))
}

/// A script that answers the first model call after a user message with the first of these, the second with the second,
/// and so on.
pub fn script(answers: &[Value]) -> String {
    let step = |(call, say): (usize, &Value)| json!({"when": {"call": call}, "say": say});
    json!({"steps": answers.iter().enumerate().map(step).collect::<Vec<_>>()}).to_string()
}

/// A tool call without arguments, in a script.
pub fn call(tool: &str) -> Value {
    json!({"tool_call": {"name": tool, "arguments": {}}})
}

/// The end of a response, in a script.
pub fn finish(reason: &str) -> Value {
    json!({"finish": {"reason": reason}})
}

impl Host {
    /// A replica on a new database.
    pub async fn with(options: Options) -> Self {
        let database = TestDatabase::new().await;
        Self::over(database, options).await
    }

    /// A replica on an existing database.
    pub async fn over(database: TestDatabase, options: Options) -> Self {
        let replica = Replica::start(&database, options).await;
        let turns = replica.turns().await;
        let sessions = replica.sessions().await;
        let contexts = ContextServiceClient::new(replica.channel().await);
        let queue = QueueServiceClient::new(replica.channel().await);
        Self { database, replica, turns, sessions, contexts, queue }
    }

    /// A replica whose [`MODEL`] responds with these, in order.
    pub async fn scripted(answers: &[Value]) -> Self {
        Self::with(answering(answers)).await
    }

    /// Another replica on the same database, with separate connections.
    pub async fn beside(&self, options: Options) -> Self {
        Self::over(TestDatabase { config: self.database.config.clone() }, options).await
    }

    /// Releases a signal for which scripts wait.
    pub fn release(&self, signal: &str) {
        self.replica.scripted.release(signal);
    }

    pub fn turns(&self) -> TurnServiceClient<Channel> {
        self.turns.clone()
    }

    pub fn sessions(&self) -> SessionServiceClient<Channel> {
        self.sessions.clone()
    }

    pub fn queue(&self) -> QueueServiceClient<Channel> {
        self.queue.clone()
    }

    /// Enqueues a message.
    pub async fn enqueue(&self, request: pb::EnqueueMessageRequest) -> pb::EnqueueMessageResponse {
        self.queue().enqueue_message(request).await.unwrap().into_inner()
    }

    /// The pending messages of a session's queue, page by page.
    pub async fn queued(&self, session: &str) -> Vec<pb::QueuedMessage> {
        let mut queued = Vec::new();
        let mut token = String::new();
        loop {
            let request = pb::ListQueuedMessagesRequest {
                session_id: session.to_owned(),
                page_size: 2,
                page_token: std::mem::take(&mut token),
            };
            let page = self.queue().list_queued_messages(request).await.unwrap().into_inner();
            queued.extend(page.queued_messages);
            if page.next_page_token.is_empty() {
                return queued;
            }
            token = page.next_page_token;
        }
    }

    /// Withdraws a queued message. Returns the message with its outcome.
    pub async fn cancel_queued(&self, session: &str, message: &str) -> pb::QueuedMessage {
        let request = pb::CancelQueuedMessageRequest {
            session_id: session.to_owned(),
            queued_message_id: message.to_owned(),
            request_id: String::new(),
        };
        self.queue().cancel_queued_message(request).await.unwrap().into_inner().queued_message.unwrap()
    }

    /// Withdraws all queued messages. Returns their ids.
    pub async fn clear(&self, session: &str) -> Vec<String> {
        let request = pb::ClearQueueRequest { session_id: session.to_owned(), request_id: String::new() };
        self.queue().clear_queue(request).await.unwrap().into_inner().cancelled_message_ids
    }

    /// Opens the stream of a turn. Returns an error if the call fails.
    pub async fn try_execute(
        &self,
        request: pb::ExecuteTurnRequest,
    ) -> Result<Streaming<pb::ExecuteTurnResponse>, Status> {
        Ok(Box::pin(self.turns().execute_turn(request)).await?.into_inner())
    }

    /// Opens the stream of a turn. Fails the test if the call fails.
    pub async fn execute(&self, request: pb::ExecuteTurnRequest) -> Streaming<pb::ExecuteTurnResponse> {
        self.try_execute(request).await.unwrap()
    }

    /// Runs a turn without tools to its end.
    pub async fn run(&self, request: pb::ExecuteTurnRequest) -> Vec<pb::Event> {
        events::all(&mut self.execute(request).await).await
    }

    /// Runs a turn of [`MODEL`] without tools to its end.
    pub async fn ask(&self, session: &str, words: &str) -> Vec<pb::Event> {
        self.run(turn(session, MODEL, words)).await
    }

    /// Runs a turn to its end and answers each batch of calls immediately.
    pub async fn run_with(
        &self,
        request: pb::ExecuteTurnRequest,
        answer: impl Fn(&pb::ToolCall) -> pb::ToolResult,
    ) -> Vec<pb::Event> {
        let session = request.session_id.clone();
        let mut stream = self.execute(request).await;
        let mut seen = Vec::new();
        let mut calls = Vec::new();
        while let Some(event) = events::next(&mut stream).await.unwrap() {
            match &event.payload {
                Some(pb::event::Payload::ToolCallRequested(pending)) => calls.extend(pending.call.clone()),
                Some(pb::event::Payload::ActionRequired(_)) => {
                    self.submit(&session, calls.drain(..).map(|call| answer(&call)).collect()).await;
                }
                _ => {}
            }
            seen.push(event);
        }
        seen
    }

    /// Watches the events of a session.
    pub async fn watch(&self, session: &str, turn: &str, after: i64) -> Streaming<pb::WatchEventsResponse> {
        let request = pb::WatchEventsRequest {
            session_id: session.to_owned(),
            turn_id: turn.to_owned(),
            after_seq: after,
            follow: true,
            stream: None,
        };
        self.turns().watch_events(request).await.unwrap().into_inner()
    }

    /// Submits results. Returns the status of each.
    pub async fn submit(&self, session: &str, results: Vec<pb::ToolResult>) -> Vec<pb::AnswerStatus> {
        statuses(&self.try_submit(submit(session, results)).await.unwrap())
    }

    /// Submits results. Returns an error if the call fails.
    pub async fn try_submit(
        &self,
        request: pb::SubmitToolResultsRequest,
    ) -> Result<pb::SubmitToolResultsResponse, Status> {
        Ok(self.turns().submit_tool_results(request).await?.into_inner())
    }

    /// Cancels the turn with this id, or the live turn of the session if the id is empty.
    pub async fn cancel(&self, session: &str, turn: &str) -> pb::CancelTurnResponse {
        let request = pb::CancelTurnRequest {
            session_id: session.to_owned(),
            turn_id: turn.to_owned(),
            ..pb::CancelTurnRequest::default()
        };
        self.turns().cancel_turn(request).await.unwrap().into_inner()
    }

    /// The calls that wait for a result, in order.
    pub async fn pending(&self, session: &str) -> Vec<String> {
        let turn = self.session(session).await.current_turn_id;
        let turn = self.turn(session, &turn).await;
        turn.pending_calls.into_iter().map(|pending| pending.call.unwrap().call_id).collect()
    }

    pub async fn turn(&self, session: &str, turn: &str) -> pb::Turn {
        let request = pb::GetTurnRequest { session_id: session.to_owned(), turn_id: turn.to_owned() };
        self.turns().get_turn(request).await.unwrap().into_inner().turn.unwrap()
    }

    pub async fn session(&self, session: &str) -> pb::Session {
        let request = pb::GetSessionRequest { session_id: session.to_owned() };
        self.sessions.clone().get_session(request).await.unwrap().into_inner().session.unwrap()
    }

    pub fn contexts(&self) -> ContextServiceClient<Channel> {
        self.contexts.clone()
    }

    /// The context statistics of a session.
    pub async fn stats(&self, session: &str) -> pb::ContextStats {
        let request = pb::GetContextStatsRequest { session_id: session.to_owned(), ..Default::default() };
        self.contexts().get_context_stats(request).await.unwrap().into_inner().stats.unwrap()
    }

    /// All messages of a session, page by page.
    pub async fn messages(&self, session: &str) -> Vec<pb::Message> {
        let mut messages = Vec::new();
        let mut token = String::new();
        loop {
            let request = pb::ListMessagesRequest {
                session_id: session.to_owned(),
                page_token: token,
                ..pb::ListMessagesRequest::default()
            };
            let page = self.sessions.clone().list_messages(request).await.unwrap().into_inner();
            messages.extend(page.messages);
            if page.next_page_token.is_empty() {
                return messages;
            }
            token = page.next_page_token;
        }
    }

    /// All durable events after a seq, of one turn or of the session, read in pages of a given size.
    pub async fn events(&self, session: &str, turn: &str, after: i64, page_size: i32) -> Vec<pb::Event> {
        let mut events = Vec::new();
        let mut after_seq = after;
        loop {
            let request = pb::ListEventsRequest {
                session_id: session.to_owned(),
                turn_id: turn.to_owned(),
                after_seq,
                page_size,
            };
            let page = self.turns().list_events(request).await.unwrap().into_inner();
            assert!(page.events.len() <= usize::try_from(page_size).unwrap(), "a page of {}", page.events.len());
            events.extend(page.events);
            if page.next_after_seq == page.last_seq {
                return events;
            }
            assert!(page.next_after_seq > after_seq, "a page that leads nowhere");
            after_seq = page.next_after_seq;
        }
    }

    /// Submits approvals and denials. Returns the status of each.
    pub async fn decide(&self, session: &str, approvals: Vec<pb::Approval>) -> Vec<pb::AnswerStatus> {
        statuses(&self.try_submit(decide(session, approvals)).await.unwrap())
    }

    /// Checks that the session row counts the open calls correctly.
    pub async fn assert_counted(&self, session: &str) {
        let sql = "select r.open_calls::bigint, (select count(*) from tool_calls c where c.session_id = $1 and c.closed_at is null)
                     from session_run r where r.session_id = $1";
        let row = self.database.client().await.query_one(sql, &[&session]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), row.get::<_, i64>(1), "open calls of {session}, as counted and as they are");
    }

    /// Stops the workers of this replica and lets its leases expire, like a process that was killed some time ago. A
    /// short lease would have the same effect, but one that is short enough to wait for would also be lost on a busy
    /// machine.
    pub async fn simulate_crash(&self) {
        let owner = self.replica.engine.store().replica();
        self.replica.stop_workers();
        self.database.owner_died(&format!("owner = '{owner}'")).await;
    }

    /// Waits until no turn runs on this replica.
    pub async fn at_rest(&self) {
        until("the replica to come to rest", || async { self.replica.engine.capacity.leases.count() == 0 }).await;
    }
}

/// The status of each receipt, in order.
pub fn statuses(response: &pb::SubmitToolResultsResponse) -> Vec<pb::AnswerStatus> {
    response.receipts.iter().map(pb::AnswerReceipt::status).collect()
}

/// Polls until `holds` returns true, for conditions without a notification.
pub async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < TEST_TIMEOUT, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A summary of a refusal: its code, its reason, and one value of its metadata.
pub fn refusal(status: &Status, key: &str) -> (Code, String, String) {
    let info = status.get_details_error_info().expect("an error without ErrorInfo");
    assert_eq!(info.domain, "contextd.dev");
    (status.code(), info.reason, info.metadata.get(key).cloned().unwrap_or_default())
}
