//! The connection to a server, with retries when it breaks.

use std::time::{Duration, Instant};

use tonic::{Code, Response, Status};
use tonic_types::StatusExt;

use contextd_client::{Connection, Server as Place};
use contextd_proto::{
    self as pb, context_service_client::ContextServiceClient, queue_service_client::QueueServiceClient,
    session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient,
};

/// The first and the longest retry delay.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// How long an unavailable server is retried.
const RETRY_TIMEOUT: Duration = Duration::from_mins(5);

/// A client of a server, which reconnects automatically.
#[derive(Debug, Clone)]
pub(super) struct Server {
    pub turns: TurnServiceClient<Connection>,
    pub sessions: SessionServiceClient<Connection>,
    pub contexts: ContextServiceClient<Connection>,
    pub queue: QueueServiceClient<Connection>,
}

impl Server {
    /// Connects to the server. Returns an error if it is unreachable.
    pub(super) async fn connect(place: &Place) -> anyhow::Result<Self> {
        let channel = place.connect().await?;
        Ok(Self {
            turns: TurnServiceClient::new(channel.clone()),
            sessions: SessionServiceClient::new(channel.clone()),
            contexts: ContextServiceClient::new(channel.clone()),
            queue: QueueServiceClient::new(channel),
        })
    }

    /// Submits tool results or approvals, with retries. Repeating is harmless, because the server accepts one
    /// result per call.
    pub(super) async fn submit(self, answer: pb::SubmitToolResultsRequest) -> Result<(), Status> {
        retry(|| {
            let mut turns = self.turns.clone();
            let answer = answer.clone();
            async move { turns.submit_tool_results(answer).await }
        })
        .await
        .map(drop)
    }

    /// Queues a message, with retries. The request id makes the request idempotent.
    pub(super) async fn enqueue(self, request: pb::EnqueueMessageRequest) -> Result<pb::QueuedMessage, Status> {
        let answer = retry(|| {
            let mut queue = self.queue.clone();
            let request = request.clone();
            async move { queue.enqueue_message(request).await }
        });
        Ok(answer.await?.queued_message.unwrap_or_default())
    }

    /// Cancels a turn and keeps its messages, with retries. Cancelling twice has no effect.
    pub(super) async fn cancel(self, session_id: String, turn_id: String) -> Result<(), Status> {
        let mode = pb::CancelMode::Stop.into();
        let request = pb::CancelTurnRequest { session_id, turn_id, mode, ..pb::CancelTurnRequest::default() };
        retry(|| {
            let mut turns = self.turns.clone();
            let request = request.clone();
            async move { turns.cancel_turn(request).await }
        })
        .await
        .map(drop)
    }
}

/// Retries an idempotent call until the server responds or the retries are exhausted.
async fn retry<T, F: Future<Output = Result<Response<T>, Status>>>(call: impl Fn() -> F) -> Result<T, Status> {
    let mut backoff = Backoff::new();
    loop {
        match call().await {
            Ok(response) => return Ok(response.into_inner()),
            Err(status) => backoff.wait(status).await?,
        }
    }
}

/// Exponential backoff for an unavailable server.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    since: Instant,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: FIRST_WAIT, since: Instant::now() }
    }

    /// Waits before the next attempt. Returns the status if a retry cannot help.
    pub(super) async fn wait(&mut self, status: Status) -> Result<(), Status> {
        if !is_retryable(&status) || self.since.elapsed() > RETRY_TIMEOUT {
            return Err(status);
        }
        let asked = status.get_details_retry_info().and_then(|info| info.retry_delay).unwrap_or_default();
        tokio::time::sleep(self.next.max(asked).min(MAX_BACKOFF)).await;
        self.next = (self.next * 2).min(MAX_BACKOFF);
        Ok(())
    }
}

/// Whether the connection broke or the server asks for a retry. Errors from contextd carry a reason; a status
/// without one was generated where the connection broke, with varying codes.
pub(super) fn is_retryable(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded => true,
        Code::Unknown | Code::Internal | Code::Cancelled => status.get_details_error_info().is_none(),
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss
        | Code::Unauthenticated => false,
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn chat_client_retries_only_errors_of_a_lost_connection() {
        fn check(code: Code, of_the_server: bool, expected: bool) {
            let details = ErrorDetails::with_error_info("INTERNAL", "contextd.dev", std::collections::HashMap::new());
            let status =
                if of_the_server { Status::with_error_details(code, "", details) } else { Status::new(code, "") };
            assert_eq!(is_retryable(&status), expected, "{status:?}");
        }
        for of_the_server in [true, false] {
            check(Code::Unavailable, of_the_server, true);
            check(Code::DeadlineExceeded, of_the_server, true);
            check(Code::InvalidArgument, of_the_server, false);
            check(Code::Unimplemented, of_the_server, false);
            check(Code::Internal, of_the_server, !of_the_server);
            check(Code::Unknown, of_the_server, !of_the_server);
            check(Code::Cancelled, of_the_server, !of_the_server);
        }
    }
}
