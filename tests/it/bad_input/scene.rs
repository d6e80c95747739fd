//! The contents of the database against which mistakes are tried, and valid requests with one modification.

use std::pin::Pin;

use contextd::pb::{
    self, blob_service_client::BlobServiceClient, context_service_client::ContextServiceClient,
    model_service_client::ModelServiceClient, put_blob_request::Data, queue_service_client::QueueServiceClient,
    session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient,
};
use tonic::{Status, transport::Channel};

use crate::harness::{
    Options, Replica, TestDatabase,
    errors::refusal,
    events::{all, requested, until},
    raw,
    requests::{enqueue, result, submit, tool, tools, turn},
    transcripts::{append, calls, fork, message, results, says},
};

/// A model that calls two tools, and one that only returns text.
const SCRIPTS: [(&str, &str); 2] = [
    (
        "calls",
        r#"{"steps": [
            {"when": {"call": 0}, "say": [{"tool_call": {"name": "look"}}, {"tool_call": {"name": "feel"}}]},
            {"when": {"otherwise": true}, "say": [{"text": "Done."}]}
        ]}"#,
    ),
    ("talks", r#"{"steps": [{"say": [{"text": "Fine."}]}]}"#),
];

/// A request to be sent.
pub(super) type Call = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// The contents of the database against which mistakes are tried: a session with three finished turns, and two sessions
/// that wait for tools.
pub(super) struct Scene {
    channel: Channel,
    sessions: SessionServiceClient<Channel>,
    turns: TurnServiceClient<Channel>,
    models: ModelServiceClient<Channel>,
    queue: QueueServiceClient<Channel>,
    /// The first turn of `talked`, and the request that started it.
    pub(super) first: pb::ExecuteTurnRequest,
    /// The last seq of `talked`.
    pub(super) last_seq: i64,
    /// The turn of `waits`.
    pub(super) waiting: String,
    /// The last seq of `waits`.
    pub(super) waiting_seq: i64,
    /// The open call of `waits`. Its other call has a result.
    pub(super) open: String,
    /// The calls of `waits`, in the order and format of a refusal.
    pub(super) calls: String,
    /// The version of the transcript of `talked`.
    pub(super) version: i64,
    /// An open call of `waits-too`.
    pub(super) elsewhere: String,
    /// Page tokens of ListSessions, ListTurns and ListMessages.
    pub(super) tokens: [String; 3],
}

impl Scene {
    /// Creates the scene in a new database.
    pub(super) async fn set() -> (TestDatabase, Replica, Self) {
        let options = SCRIPTS.iter().fold(Options::default(), |options, (name, json)| options.script(name, *json));
        let (database, replica) = Replica::alone(Options { workers: false, ..options }).await;
        let scene = Box::pin(Self::new(&replica)).await;
        (database, replica, scene)
    }

    async fn new(replica: &Replica) -> Self {
        let channel = replica.channel().await;
        let mut sessions = SessionServiceClient::new(channel.clone());
        let mut turns = TurnServiceClient::new(channel.clone());
        let first = turn("talked", "scripted/talks", "Hello");
        for request in [first.clone(), turn("talked", "", "And?"), turn("talked", "", "Well?")] {
            all(&mut turns.execute_turn(request).await.unwrap().into_inner()).await;
        }
        let (waiting, waiting_calls) = wait_for_tools(&mut turns, "waits").await;
        let (_, others) = wait_for_tools(&mut turns, "waits-too").await;
        let answer = submit("waits", vec![result(&waiting_calls[0], "fine")]);
        turns.submit_tool_results(answered_once(answer)).await.unwrap();
        sessions.create_session(created_once(pb::Session::default())).await.unwrap();
        sessions
            .create_session(created(pb::Session { session_id: "imported".into(), ..Default::default() }))
            .await
            .unwrap();
        let imported = vec![says(pb::Role::User, "Look."), calls(&["c1", "c2"]), results(&["c2"])];
        let once = pb::AppendMessagesRequest { request_id: "appended".into(), ..append("imported", imported) };
        sessions.append_messages(once).await.unwrap();
        let once = pb::ForkSessionRequest { request_id: "forked".into(), ..fork("talked", 0, "forked") };
        sessions.fork_session(once).await.unwrap();
        turns.cancel_turn(cancelled_once("")).await.unwrap();
        let tokens = tokens(&mut sessions, &mut turns).await;
        let waiting_seq = last_seq(&mut sessions, "waits").await;
        let last_seq = last_seq(&mut sessions, "talked").await;
        let open = waiting_calls[1].clone();
        let elsewhere = others[0].clone();
        let calls = waiting_calls.join(",");
        let stale =
            pb::AppendMessagesRequest { context_version: 1, ..append("talked", vec![says(pb::Role::User, "?")]) };
        let changed = refusal(&sessions.append_messages(stale).await.unwrap_err());
        let version = changed.metadata["context_version"].parse().unwrap();
        let models = ModelServiceClient::new(channel.clone());
        let queue = QueueServiceClient::new(channel.clone());
        Self {
            channel,
            sessions,
            turns,
            models,
            queue,
            first,
            last_seq,
            waiting,
            waiting_seq,
            open,
            calls,
            version,
            elsewhere,
            tokens,
        }
    }
}

/// Runs a turn until it waits for its two tools. Returns its id and its calls.
async fn wait_for_tools(turns: &mut TurnServiceClient<Channel>, session: &str) -> (String, Vec<String>) {
    let request =
        pb::ExecuteTurnRequest { tools: tools(&["look", "feel"]), ..turn(session, "scripted/calls", "What is there?") };
    let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
    let events = until(&mut stream, |payload| matches!(payload, pb::event::Payload::ActionRequired(_))).await;
    (events[0].turn_id.clone(), requested(&events))
}

pub(super) fn answered_once(answer: pb::SubmitToolResultsRequest) -> pb::SubmitToolResultsRequest {
    pb::SubmitToolResultsRequest { request_id: "answered".to_owned(), ..answer }
}

pub(super) fn created_once(session: pb::Session) -> pb::CreateSessionRequest {
    pb::CreateSessionRequest { session: Some(session), request_id: "created".to_owned() }
}

pub(super) fn cancelled_once(reason: &str) -> pb::CancelTurnRequest {
    pb::CancelTurnRequest {
        session_id: "talked".to_owned(),
        request_id: "cancelled".to_owned(),
        reason: reason.to_owned(),
        ..pb::CancelTurnRequest::default()
    }
}

async fn tokens(sessions: &mut SessionServiceClient<Channel>, turns: &mut TurnServiceClient<Channel>) -> [String; 3] {
    let session_id = || "talked".to_owned();
    let page_size = 1;
    let of_sessions = pb::ListSessionsRequest { page_size, ..Default::default() };
    let of_turns = pb::ListTurnsRequest { session_id: session_id(), page_size, ..Default::default() };
    let of_messages = pb::ListMessagesRequest { session_id: session_id(), page_size, ..Default::default() };
    let tokens = [
        sessions.list_sessions(of_sessions).await.unwrap().into_inner().next_page_token,
        turns.list_turns(of_turns).await.unwrap().into_inner().next_page_token,
        sessions.list_messages(of_messages).await.unwrap().into_inner().next_page_token,
    ];
    assert!(tokens.iter().all(|token| !token.is_empty()), "{tokens:?}");
    tokens
}

async fn last_seq(sessions: &mut SessionServiceClient<Channel>, session: &str) -> i64 {
    let request = pb::GetSessionRequest { session_id: session.to_owned() };
    sessions.get_session(request).await.unwrap().into_inner().session.unwrap().last_seq
}

/// Defines for each RPC a function that sends a valid request with a modification.
macro_rules! rpcs {
    ($($name:ident: $client:ident.$rpc:ident($request:ident, $ordinary:expr);)*) => {
        impl Scene {
            $(pub(super) fn $name(&self, change: impl FnOnce(&mut pb::$request)) -> Call {
                let mut request: pb::$request = $ordinary;
                change(&mut request);
                let mut client = self.$client.clone();
                Box::pin(async move { client.$rpc(request).await.map(drop) })
            })*
        }
    };
}

rpcs! {
    create: sessions.create_session(CreateSessionRequest, created(pb::Session::default()));
    get_session: sessions.get_session(GetSessionRequest, pb::GetSessionRequest { session_id: "talked".into() });
    list_sessions: sessions.list_sessions(ListSessionsRequest, pb::ListSessionsRequest::default());
    update: sessions.update_session(UpdateSessionRequest, change(pb::Session::default()));
    delete: sessions.delete_session(DeleteSessionRequest, in_session(|it: &mut pb::DeleteSessionRequest| &mut it.session_id));
    fork: sessions.fork_session(ForkSessionRequest, fork("talked", 0, ""));
    append: sessions.append_messages(AppendMessagesRequest, append("talked", vec![says(pb::Role::User, "Hello")]));
    list_messages: sessions.list_messages(ListMessagesRequest, in_session(|it: &mut pb::ListMessagesRequest| &mut it.session_id));
    export: sessions.export_messages(ExportMessagesRequest, pb::ExportMessagesRequest { session_id: "talked".into(), format: pb::PromptFormat::OpenaiChat.into(), ..Default::default() });
    execute: turns.execute_turn(ExecuteTurnRequest, turn("new", "scripted/talks", "Hello"));
    watch: turns.watch_events(WatchEventsRequest, in_session(|it: &mut pb::WatchEventsRequest| &mut it.session_id));
    list_events: turns.list_events(ListEventsRequest, in_session(|it: &mut pb::ListEventsRequest| &mut it.session_id));
    get_turn: turns.get_turn(GetTurnRequest, in_session(|it: &mut pb::GetTurnRequest| &mut it.session_id));
    list_turns: turns.list_turns(ListTurnsRequest, in_session(|it: &mut pb::ListTurnsRequest| &mut it.session_id));
    submit: turns.submit_tool_results(SubmitToolResultsRequest, submit("waits", Vec::new()));
    enqueue: queue.enqueue_message(EnqueueMessageRequest, enqueue("talked", "Hello"));
    list_queued: queue.list_queued_messages(ListQueuedMessagesRequest, in_session(|it: &mut pb::ListQueuedMessagesRequest| &mut it.session_id));
    cancel_queued: queue.cancel_queued_message(CancelQueuedMessageRequest, withdrawal("never"));
    clear: queue.clear_queue(ClearQueueRequest, in_session(|it: &mut pb::ClearQueueRequest| &mut it.session_id));
    get_model: models.get_model(GetModelRequest, pb::GetModelRequest { model: "scripted/talks".into() });
    list_models: models.list_models(ListModelsRequest, pb::ListModelsRequest::default());
    cancel: turns.cancel_turn(CancelTurnRequest, in_session(|it: &mut pb::CancelTurnRequest| &mut it.session_id));
}

fn created(session: pb::Session) -> pb::CreateSessionRequest {
    pb::CreateSessionRequest { session: Some(session), request_id: String::new() }
}

fn change(session: pb::Session) -> pb::UpdateSessionRequest {
    let session = pb::Session { session_id: "talked".to_owned(), ..session };
    pb::UpdateSessionRequest { session: Some(session), ..pb::UpdateSessionRequest::default() }
}

fn withdrawal(message: &str) -> pb::CancelQueuedMessageRequest {
    pb::CancelQueuedMessageRequest {
        session_id: "talked".into(),
        queued_message_id: message.into(),
        request_id: String::new(),
    }
}

/// A request about the session `talked`.
fn in_session<T: Default>(session_id: impl FnOnce(&mut T) -> &mut String) -> T {
    let mut request = T::default();
    *session_id(&mut request) = "talked".to_owned();
    request
}

impl Scene {
    pub(super) fn append_all(&self, messages: Vec<pb::InputMessage>) -> Call {
        self.append(|it| it.messages = messages)
    }

    /// Appends an assistant message with one part.
    pub(super) fn append_answer(&self, part: pb::Part) -> Call {
        self.append_all(vec![message(pb::Role::Assistant, vec![part])])
    }

    /// Sends CountTokens with a modification.
    pub(super) fn count(&self, change: impl FnOnce(&mut pb::CountTokensRequest)) -> Call {
        let mut request =
            pb::CountTokensRequest { messages: vec![says(pb::Role::User, "Hello")], ..Default::default() };
        change(&mut request);
        let mut client = ContextServiceClient::new(self.channel.clone());
        Box::pin(async move { client.count_tokens(request).await.map(drop) })
    }

    /// Stores the content `hello` with a modified header.
    pub(super) fn put(&self, change: impl FnOnce(&mut pb::BlobHeader)) -> Call {
        let mut header = pb::BlobHeader { media_type: "text/plain".into(), ..Default::default() };
        change(&mut header);
        let message = |data| pb::PutBlobRequest { data: Some(data) };
        let messages = vec![message(Data::Header(header)), message(Data::Chunk(b"hello".to_vec()))];
        let mut client = BlobServiceClient::new(self.channel.clone());
        Box::pin(async move { client.put_blob(tokio_stream::iter(messages)).await.map(drop) })
    }

    /// Creates a session with a modification.
    pub(super) fn configure(&self, change: impl FnOnce(&mut pb::Session)) -> Call {
        self.create(|it| change(it.session.get_or_insert_default()))
    }

    /// Updates the listed fields of the session `talked`.
    pub(super) fn change(&self, paths: &[&str], change: impl FnOnce(&mut pb::Session)) -> Call {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        self.update(|it| {
            it.update_mask = Some(prost_types::FieldMask { paths });
            change(it.session.get_or_insert_default());
        })
    }

    /// Starts a turn with one part as input.
    pub(super) fn say(&self, part: pb::Part) -> Call {
        self.execute(|it| it.input = Some(pb::InputMessage { parts: vec![part], ..Default::default() }))
    }

    /// Starts a turn with a modified input message.
    pub(super) fn say_so(&self, change: impl FnOnce(&mut pb::InputMessage)) -> Call {
        self.execute(|it| change(it.input.get_or_insert_default()))
    }

    /// Starts a turn with a modified tool.
    pub(super) fn offer(&self, change: impl FnOnce(&mut pb::Tool)) -> Call {
        let mut offered = tool("look");
        change(&mut offered);
        self.execute(|it| it.tools = Some(pb::ToolSet { host_tools: vec![offered], ..Default::default() }))
    }

    /// Starts a turn with modified limits.
    pub(super) fn bound(&self, change: impl FnOnce(&mut pb::TurnLimits)) -> Call {
        self.execute(|it| change(it.limits.get_or_insert_default()))
    }

    /// Submits a modified result for the open call.
    pub(super) fn answer(&self, change: impl FnOnce(&mut pb::ToolResult)) -> Call {
        let mut answer = result(&self.open, "fine");
        change(&mut answer);
        self.submit(|it| it.results = vec![answer])
    }

    /// Submits results for these calls.
    pub(super) fn answers(&self, calls: &[&str]) -> Call {
        self.submit(|it| it.results = calls.iter().map(|call| result(call, "fine")).collect())
    }

    pub(super) fn contexts(&self) -> ContextServiceClient<Channel> {
        ContextServiceClient::new(self.channel.clone())
    }

    /// Sends bytes that do not decode as a message.
    pub(super) fn send(&self, rpc: &'static str, bytes: &'static [u8]) -> Call {
        let channel = self.channel.clone();
        Box::pin(async move { raw::call(channel, rpc, bytes.to_vec()).await.map(drop) })
    }

    /// Sends a body that is not gRPC.
    pub(super) fn post(&self, rpc: &'static str, body: &'static str) -> Call {
        let channel = self.channel.clone();
        Box::pin(async move { raw::post(channel, rpc, body).await })
    }
}
