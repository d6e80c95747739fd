//! Every RPC that changes state, in one table: sent once, repeated, concurrently, rolled back and abandoned, it takes
//! effect once and returns the same response to every caller.

mod abandoned;
mod once;

use contextd::{
    auth::anonymous,
    grpc::{context::Contexts, queue::Queue, session::Sessions, turn::Turns},
    pb::{
        self, blob_service_client::BlobServiceClient, context_service_server::ContextService as _,
        put_blob_request::Data, queue_service_server::QueueService as _, session_service_server::SessionService as _,
        turn_service_server::TurnService as _,
    },
};
use prost_types::FieldMask;
use serde_json::json;
use tokio_postgres::Client;
use tokio_stream::StreamExt as _;
use tonic::{Request, Status};

use crate::harness::{
    Host, Options,
    events::{Carrier as _, requested, until},
    host::{MODEL, call},
    requests::{enqueue, result, submit, tools, turn},
    transcripts::{append, fork, says},
};

/// The RPCs, in the order of the proto files.
const ALL: [Rpc; 18] = [
    Rpc::CreateSession,
    Rpc::UpdateSession,
    Rpc::DeleteSession,
    Rpc::ForkSession,
    Rpc::AppendMessages,
    Rpc::ExecuteTurn,
    Rpc::SubmitToolResults,
    Rpc::CancelTurn,
    Rpc::Compact,
    Rpc::PruneToolOutputs,
    Rpc::RestoreToolOutputs,
    Rpc::PrepareContext,
    Rpc::RevertCompaction,
    Rpc::RecordUsage,
    Rpc::EnqueueMessage,
    Rpc::CancelQueuedMessage,
    Rpc::ClearQueue,
    Rpc::PutBlob,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rpc {
    CreateSession,
    UpdateSession,
    DeleteSession,
    ForkSession,
    AppendMessages,
    ExecuteTurn,
    SubmitToolResults,
    CancelTurn,
    Compact,
    PruneToolOutputs,
    RestoreToolOutputs,
    PrepareContext,
    RevertCompaction,
    RecordUsage,
    EnqueueMessage,
    CancelQueuedMessage,
    ClearQueue,
    PutBlob,
}

impl Rpc {
    fn name(self) -> String {
        let service = match self {
            Self::CreateSession
            | Self::UpdateSession
            | Self::DeleteSession
            | Self::ForkSession
            | Self::AppendMessages => "SessionService",
            Self::ExecuteTurn | Self::SubmitToolResults | Self::CancelTurn => "TurnService",
            Self::PruneToolOutputs
            | Self::RestoreToolOutputs
            | Self::Compact
            | Self::RevertCompaction
            | Self::PrepareContext
            | Self::RecordUsage => "ContextService",
            Self::EnqueueMessage | Self::CancelQueuedMessage | Self::ClearQueue => "QueueService",
            Self::PutBlob => "BlobService",
        };
        format!("contextd.v1.{service}/{self:?}")
    }

    /// A query that counts its effects in a session.
    fn effects(self) -> &'static str {
        match self {
            Self::CreateSession => "select count(*) from session_revisions where session_id = $1",
            Self::UpdateSession => "select count(*) from events where session_id = $1 and kind = 'session_updated'",
            Self::DeleteSession => "select count(*) from session_run where session_id = $1 and state = 3",
            Self::ForkSession => "select count(*) from sessions where forked_from = $1",
            Self::AppendMessages => "select count(*) from messages where session_id = $1 and turn_id is null",
            Self::ExecuteTurn => "select count(*) from turns where session_id = $1",
            Self::SubmitToolResults => {
                "select count(*) from events where session_id = $1 and kind = 'tool_call_completed'"
            }
            Self::CancelTurn => "select count(*) from events where session_id = $1 and kind = 'turn_cancelled'",
            Self::PruneToolOutputs | Self::PrepareContext => {
                "select count(*) from events where session_id = $1 and kind = 'context_pruned'"
            }
            Self::RestoreToolOutputs => {
                "select count(*) from events where session_id = $1 and kind = 'context_restored'"
            }
            Self::Compact => "select count(*) from events where session_id = $1 and kind = 'compaction_started'",
            Self::RevertCompaction => {
                "select count(*) from events where session_id = $1 and kind = 'compaction_reverted'"
            }
            Self::RecordUsage => {
                "select coalesce(sum(calls), 0)::bigint from usage_totals where session_id = $1 and purpose = 2"
            }
            Self::EnqueueMessage => "select count(*) from queue where session_id = $1",
            Self::CancelQueuedMessage | Self::ClearQueue => {
                "select count(*) from events where session_id = $1 and kind = 'queued_message_cancelled'"
            }
            Self::PutBlob => "select count(*) from blobs where media_type = 'application/' || $1",
        }
    }
}

/// A model that responds, or first calls a tool.
fn options() -> Options {
    let script = json!({"steps": [
        {"when": {"user_contains": "tools", "call": 0}, "say": [call("look")]},
        {"say": [{"text": "Hello."}]},
    ]});
    Options::default().script("it", script.to_string())
}

/// Clears every result that the model has seen in a prompt.
fn clears_all(session_id: String) -> pb::PruneToolOutputsRequest {
    let none = Some(0);
    pb::PruneToolOutputsRequest {
        session_id,
        minimum_tokens: none,
        protect_tokens: none,
        protect_turns: none,
        ..pb::PruneToolOutputsRequest::default()
    }
}

/// Keeps only the newest turn of a session, without calling a model.
fn cuts(session_id: String, request_id: String) -> pb::CompactRequest {
    pb::CompactRequest {
        session_id,
        request_id,
        strategy: pb::CompactionStrategy::Truncation.into(),
        target_tokens: 400,
        ..pb::CompactRequest::default()
    }
}

/// A policy that clears every result that the model has seen in a prompt.
fn prunes_all(session_id: String) -> pb::UpdateSessionRequest {
    let none = Some(0);
    let prune =
        pb::PrunePolicy { minimum_tokens: none, protect_tokens: none, protect_turns: none, ..Default::default() };
    let policy_overrides = Some(pb::Policy { prune: Some(prune), ..Default::default() });
    let session = Some(pb::Session { session_id, policy_overrides, ..Default::default() });
    let update_mask = Some(FieldMask { paths: vec!["policy_overrides.prune".to_owned()] });
    pb::UpdateSessionRequest { session, update_mask, request_id: String::new() }
}

/// A request of an authorized caller, because the services are also called directly.
fn asked<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(anonymous());
    request
}

/// Sends the request of a case to clients or directly to the services, whose methods have the same names.
macro_rules! answer {
    ($case:expr, $sessions:expr, $turns:expr, $contexts:expr, $queue:expr) => {{
        // Calling a client requires a mutable reference, calling a service does not.
        #[allow(unused_mut, reason = "a service is not changed")]
        let mut sessions = $sessions;
        #[allow(unused_mut, reason = "a service is not changed")]
        let mut turns = $turns;
        #[allow(unused_mut, reason = "a service is not changed")]
        let mut contexts = $contexts;
        #[allow(unused_mut, reason = "a service is not changed")]
        let mut queue = $queue;
        let session_id = $case.session.clone();
        let request_id = $case.request();
        let name = |session: Option<pb::Session>| session.map(|it| it.session_id + &it.etag).unwrap_or_default();
        match $case.rpc {
            Rpc::CreateSession => {
                let session = Some(pb::Session { session_id, ..pb::Session::default() });
                let request = asked(pb::CreateSessionRequest { session, request_id });
                sessions.create_session(request).await.map(|answer| name(answer.into_inner().session))
            }
            Rpc::UpdateSession => {
                let session =
                    pb::Session { session_id, system_prompt: "Be kind.".to_owned(), ..pb::Session::default() };
                let update_mask = Some(FieldMask { paths: vec!["system_prompt".to_owned()] });
                let request = pb::UpdateSessionRequest { session: Some(session), update_mask, request_id };
                sessions.update_session(asked(request)).await.map(|answer| name(answer.into_inner().session))
            }
            Rpc::DeleteSession => {
                let request = pb::DeleteSessionRequest { session_id, request_id, etag: String::new() };
                sessions.delete_session(asked(request)).await.map(|_| String::new())
            }
            Rpc::ForkSession => {
                let request = pb::ForkSessionRequest { request_id, ..fork(&session_id, 0, "") };
                sessions.fork_session(asked(request)).await.map(|answer| name(answer.into_inner().session))
            }
            Rpc::AppendMessages => {
                let messages = vec![says(pb::Role::User, "By hand")];
                let request = pb::AppendMessagesRequest { request_id, ..append(&session_id, messages) };
                let answer = sessions.append_messages(asked(request)).await;
                answer.map(|answer| answer.into_inner().message_ids.join(" "))
            }
            Rpc::ExecuteTurn => {
                let request = pb::ExecuteTurnRequest { request_id, ..turn(&session_id, MODEL, "Hello") };
                match Box::pin(turns.execute_turn(asked(request))).await {
                    Ok(stream) => match stream.into_inner().next().await {
                        Some(first) => first.map(|first| first.event().turn_id),
                        None => Ok("an empty stream".to_owned()),
                    },
                    Err(status) => Err(status),
                }
            }
            Rpc::SubmitToolResults => {
                let results = vec![result(&$case.call, "seen")];
                let request = pb::SubmitToolResultsRequest { request_id, ..submit(&session_id, results) };
                let answer = turns.submit_tool_results(asked(request)).await;
                answer.map(|answer| format!("{:?}", crate::harness::host::statuses(&answer.into_inner())))
            }
            Rpc::CancelTurn => {
                let request = pb::CancelTurnRequest { session_id, request_id, ..pb::CancelTurnRequest::default() };
                let answer = turns.cancel_turn(asked(request)).await;
                answer.map(|answer| {
                    answer.into_inner().turn.map(|it| format!("{} {:?}", it.turn_id, it.state())).unwrap_or_default()
                })
            }
            Rpc::PruneToolOutputs => {
                let request = pb::PruneToolOutputsRequest { request_id, ..clears_all(session_id) };
                let answer = contexts.prune_tool_outputs(asked(request)).await;
                answer.map(|answer| format!("{:?}", answer.into_inner().report))
            }
            Rpc::RestoreToolOutputs => {
                let pruned_at_seq = $case.call.parse().unwrap();
                let request = pb::RestoreToolOutputsRequest { session_id, pruned_at_seq, request_id };
                let answer = contexts.restore_tool_outputs(asked(request)).await;
                answer.map(|answer| answer.into_inner().call_ids.join(" "))
            }
            Rpc::Compact => {
                let answer = contexts.compact(asked(cuts(session_id, request_id))).await;
                answer.map(|answer| answer.into_inner().compaction.unwrap_or_default().compaction_id)
            }
            Rpc::RevertCompaction => {
                let compaction_id = $case.call.clone();
                let request = pb::RevertCompactionRequest { session_id, compaction_id, request_id };
                let answer = contexts.revert_compaction(asked(request)).await;
                answer.map(|answer| answer.into_inner().compaction.unwrap_or_default().compaction_id)
            }
            Rpc::PrepareContext => {
                let request = pb::PrepareContextRequest { session_id, request_id, ..Default::default() };
                let answer = contexts.prepare_context(asked(request)).await;
                answer.map(|answer| {
                    let pb::PrepareContextResponse { prompt, report } = answer.into_inner();
                    format!("{report:?} {}", prompt.unwrap_or_default().messages.len())
                })
            }
            Rpc::RecordUsage => {
                let usage = Some(pb::Usage { input_tokens: 70, output_tokens: 30, ..pb::Usage::default() });
                let purpose = pb::UsagePurpose::Compaction.into();
                let request = pb::RecordUsageRequest { session_id, request_id, usage, purpose, ..Default::default() };
                let answer = contexts.record_usage(asked(request)).await;
                answer.map(|answer| format!("{:?}", answer.into_inner().context_tokens))
            }
            Rpc::EnqueueMessage => {
                let request = pb::EnqueueMessageRequest { request_id, ..enqueue(&session_id, "Later") };
                let answer = queue.enqueue_message(asked(request)).await;
                answer.map(|answer| answer.into_inner().queued_message.unwrap_or_default().queued_message_id)
            }
            Rpc::CancelQueuedMessage => {
                let queued_message_id = $case.call.clone();
                let request = pb::CancelQueuedMessageRequest { session_id, queued_message_id, request_id };
                let answer = queue.cancel_queued_message(asked(request)).await;
                answer.map(|answer| answer.into_inner().queued_message.unwrap_or_default().queued_message_id)
            }
            Rpc::ClearQueue => {
                let answer = queue.clear_queue(asked(pb::ClearQueueRequest { session_id, request_id })).await;
                answer.map(|answer| answer.into_inner().cancelled_message_ids.join(" "))
            }
            Rpc::PutBlob => unreachable!("it reads a stream"),
        }
    }};
}

/// A request in a separate session, which is prepared for it.
struct Case {
    rpc: Rpc,
    session: String,
    /// The pending call or message, or the seq or compaction that is reverted.
    call: String,
}

impl Case {
    async fn prepare(host: &Host, rpc: Rpc, session: String) -> Self {
        let mut waiting = String::new();
        match rpc {
            Rpc::CreateSession | Rpc::ExecuteTurn | Rpc::PutBlob => {}
            Rpc::UpdateSession
            | Rpc::DeleteSession
            | Rpc::ForkSession
            | Rpc::AppendMessages
            | Rpc::EnqueueMessage
            | Rpc::RecordUsage => {
                host.ask(&session, "Hello").await;
            }
            Rpc::CancelQueuedMessage | Rpc::ClearQueue => {
                host.ask(&session, "Hello").await;
                waiting = host.enqueue(enqueue(&session, "Later")).await.queued_message.unwrap().queued_message_id;
            }
            Rpc::PruneToolOutputs | Rpc::RestoreToolOutputs | Rpc::PrepareContext => {
                host.with_turns(&session, &[300, 300]).await;
                if rpc == Rpc::PrepareContext {
                    host.sessions().update_session(prunes_all(session.clone())).await.unwrap();
                }
                if rpc == Rpc::RestoreToolOutputs {
                    let pruned = host.contexts().prune_tool_outputs(clears_all(session.clone())).await.unwrap();
                    waiting = pruned.into_inner().report.unwrap().pruned_at_seq.to_string();
                }
            }
            Rpc::Compact | Rpc::RevertCompaction => {
                host.with_turns(&session, &[300, 300, 300]).await;
                if rpc == Rpc::RevertCompaction {
                    let request = pb::CompactRequest { wait: true, ..cuts(session.clone(), String::new()) };
                    let made = host.contexts().compact(request).await.unwrap();
                    waiting = made.into_inner().compaction.unwrap().compaction_id;
                }
            }
            Rpc::SubmitToolResults | Rpc::CancelTurn => {
                let asks = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn(&session, MODEL, "Use tools") };
                let mut stream = host.execute(asks).await;
                let head = until(&mut stream, |payload| matches!(payload, pb::event::Payload::ActionRequired(_))).await;
                waiting = requested(&head).remove(0);
            }
        }
        Self { rpc, session, call: waiting }
    }

    /// Sends the request over HTTP/2. Returns a text that is equal for equal responses.
    async fn ask(&self, host: &Host) -> Result<String, Status> {
        if self.rpc == Rpc::PutBlob {
            let mut blobs = BlobServiceClient::new(host.replica.channel().await);
            let messages = tokio_stream::iter(self.upload());
            return Ok(blobs.put_blob(messages).await?.into_inner().blob.unwrap_or_default().blob_id);
        }
        answer!(self, host.sessions(), host.turns(), host.contexts(), host.queue())
    }

    /// Calls the service directly. Returns `None` if the RPC reads a stream, which requires a connection.
    async fn ask_inside(&self, host: &Host) -> Option<Result<String, Status>> {
        if self.rpc == Rpc::PutBlob {
            return None;
        }
        let engine = &host.replica.engine;
        let sessions = Sessions::new(engine.clone());
        let turns = Turns::new(engine.clone(), Options::default().stream);
        Some(answer!(self, sessions, turns, Contexts::new(engine.clone()), Queue::new(engine.clone())))
    }

    /// The request id of each attempt.
    fn request(&self) -> String {
        format!("request in {}", self.session)
    }

    async fn effects(&self, client: &Client) -> i64 {
        client.query_one(self.rpc.effects(), &[&self.session]).await.unwrap().get(0)
    }

    fn upload(&self) -> [pb::PutBlobRequest; 2] {
        let header = pb::BlobHeader {
            media_type: format!("application/{}", self.session),
            request_id: self.request(),
            ..pb::BlobHeader::default()
        };
        let content = self.session.repeat(100).into_bytes();
        [Data::Header(header), Data::Chunk(content)].map(|data| pb::PutBlobRequest { data: Some(data) })
    }
}
