//! The complete published API: implemented RPCs respond, unimplemented RPCs and fields are refused by name, and the
//! lists cover everything.

use std::collections::BTreeSet;

use contextd::pb::{self, DESCRIPTOR_SET};
use prost::Message;
use prost_types::{Duration, FileDescriptorSet};
use tonic::{Code, Request, Status};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tonic_reflection::pb::{v1, v1alpha};

use crate::harness::{
    Options, Replica, as_worker,
    errors::{Refusal, refusal},
    events::TEST_TIMEOUT,
    raw,
    requests::{text, turn},
};

const COUNT_TOKENS: &str = "contextd.v1.ContextService/CountTokens";
const PREPARE_CONTEXT: &str = "contextd.v1.ContextService/PrepareContext";
const RENDER_CONTEXT: &str = "contextd.v1.ContextService/RenderContext";
const CREATE_SESSION: &str = "contextd.v1.SessionService/CreateSession";
const UPDATE_SESSION: &str = "contextd.v1.SessionService/UpdateSession";
const APPEND_MESSAGES: &str = "contextd.v1.SessionService/AppendMessages";
const FORK_SESSION: &str = "contextd.v1.SessionService/ForkSession";
const EXECUTE_TURN: &str = "contextd.v1.TurnService/ExecuteTurn";
const SUBMIT_TOOL_RESULTS: &str = "contextd.v1.TurnService/SubmitToolResults";

/// RPCs that are implemented.
const BUILT: [&str; 42] = [
    "contextd.v1.AdminService/GetServerInfo",
    "contextd.v1.AdminService/CreateKey",
    "contextd.v1.AdminService/ListKeys",
    "contextd.v1.AdminService/RevokeKey",
    "contextd.v1.AdminService/GetTenantLimits",
    "contextd.v1.AdminService/SetTenantLimits",
    "contextd.v1.AdminService/DeleteTenant",
    "contextd.v1.AdminService/GetTenantDeletion",
    "contextd.v1.ModelService/ListModels",
    "contextd.v1.ModelService/GetModel",
    COUNT_TOKENS,
    "contextd.v1.BlobService/GetBlob",
    "contextd.v1.BlobService/PutBlob",
    CREATE_SESSION,
    "contextd.v1.SessionService/GetSession",
    "contextd.v1.SessionService/ListSessions",
    UPDATE_SESSION,
    "contextd.v1.SessionService/DeleteSession",
    "contextd.v1.SessionService/ListMessages",
    "contextd.v1.SessionService/ExportMessages",
    FORK_SESSION,
    APPEND_MESSAGES,
    EXECUTE_TURN,
    "contextd.v1.TurnService/WatchEvents",
    "contextd.v1.TurnService/ListEvents",
    "contextd.v1.TurnService/GetTurn",
    "contextd.v1.TurnService/ListTurns",
    SUBMIT_TOOL_RESULTS,
    "contextd.v1.TurnService/CancelTurn",
    "contextd.v1.ContextService/GetContextStats",
    "contextd.v1.ContextService/PruneToolOutputs",
    "contextd.v1.ContextService/Compact",
    "contextd.v1.ContextService/ListCompactions",
    "contextd.v1.ContextService/RevertCompaction",
    "contextd.v1.ContextService/RestoreToolOutputs",
    PREPARE_CONTEXT,
    RENDER_CONTEXT,
    "contextd.v1.ContextService/RecordUsage",
    "contextd.v1.QueueService/EnqueueMessage",
    "contextd.v1.QueueService/ListQueuedMessages",
    "contextd.v1.QueueService/CancelQueuedMessage",
    "contextd.v1.QueueService/ClearQueue",
];

fn files() -> FileDescriptorSet {
    FileDescriptorSet::decode(DESCRIPTOR_SET).unwrap()
}

/// The full names of the services in the proto files.
fn services() -> BTreeSet<String> {
    let files = files().file.into_iter().filter(|file| file.package() == "contextd.v1");
    files.flat_map(|file| file.service).map(|service| format!("contextd.v1.{}", service.name())).collect()
}

/// The full names of the RPCs in the proto files.
fn rpcs() -> BTreeSet<String> {
    let services = files().file.into_iter().flat_map(|file| file.service);
    let named = |service: prost_types::ServiceDescriptorProto| {
        let rpcs: Vec<String> =
            service.method.iter().map(|rpc| format!("contextd.v1.{}/{}", service.name(), rpc.name())).collect();
        rpcs
    };
    services.flat_map(named).collect()
}

/// The refusal of an unimplemented RPC, or of one of its fields.
fn not_built(rpc: &str, field: Option<&str>) -> Refusal {
    let metadata = [("rpc", Some(rpc)), ("field", field)];
    Refusal {
        code: Code::Unimplemented,
        reason: "NOT_IMPLEMENTED".to_owned(),
        metadata: metadata.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect(),
        fields: Vec::new(),
    }
}

/// A request that uses an unimplemented field, and the path of that field.
struct Ask {
    rpc: &'static str,
    request: Vec<u8>,
    field: String,
}

fn ask(rpc: &'static str, request: &impl Message, field: impl Into<String>) -> Ask {
    Ask { rpc, request: request.encode_to_vec(), field: field.into() }
}

/// An ExecuteTurn request with a modification.
fn execute(field: &str, change: impl FnOnce(&mut pb::ExecuteTurnRequest)) -> Ask {
    let mut request = turn("new", "scripted/demo", "Hello");
    change(&mut request);
    ask(EXECUTE_TURN, &request, field)
}

/// The requests that set a session: creating it alone, creating it with a turn, and updating it.
fn sessions(field: &str, session: pb::Session) -> [Ask; 3] {
    let create = pb::CreateSessionRequest { session: Some(session.clone()), request_id: String::new() };
    let changed = pb::Session { session_id: "s".to_owned(), ..session.clone() };
    let update = pb::UpdateSessionRequest { session: Some(changed), ..pb::UpdateSessionRequest::default() };
    let field = format!("session.{field}");
    [
        ask(CREATE_SESSION, &create, field.as_str()),
        ask(UPDATE_SESSION, &update, field.as_str()),
        execute(&field, |it| it.session = Some(session)),
    ]
}

/// Every part of a policy that is not implemented.
fn policies() -> [(&'static str, pb::Policy); 1] {
    let cancel_wait = pb::ToolPolicy { cancel_wait: Some(Duration::default()), ..Default::default() };
    [("tools.cancel_wait", pb::Policy { tools: Some(cancel_wait), ..Default::default() })]
}

/// Session fields that are not implemented.
fn session_asks() -> Vec<Ask> {
    let none = pb::Session::default;
    let mut sessions_of: Vec<(String, pb::Session)> = Vec::new();
    for (field, it) in policies() {
        sessions_of.push((format!("policy_overrides.{field}"), pb::Session { policy_overrides: Some(it), ..none() }));
    }
    sessions_of.into_iter().flat_map(|(field, session)| sessions(&field, session)).collect()
}

/// Fields of appended messages that are not implemented.
fn append_asks() -> Vec<Ask> {
    let part = |content| pb::Part { content: Some(content), ..pb::Part::default() };
    let parts = [("step_start", part(pb::part::Content::StepStart(pb::StepStart { step: 1 })))];
    let append = || pb::AppendMessagesRequest { session_id: "s".to_owned(), ..Default::default() };
    let answer = |parts| pb::InputMessage { role: pb::Role::Assistant.into(), parts, ..Default::default() };
    parts
        .into_iter()
        .flat_map(|(field, part)| {
            let messages = vec![answer(vec![text("So:"), part])];
            let field = format!("messages[0].parts[1].{field}");
            let count = pb::CountTokensRequest { messages: messages.clone(), ..Default::default() };
            [
                ask(APPEND_MESSAGES, &pb::AppendMessagesRequest { messages, ..append() }, field.as_str()),
                ask(COUNT_TOKENS, &count, field),
            ]
        })
        .collect()
}

#[test]
fn every_rpc_is_listed_as_implemented_or_unimplemented() {
    let named: Vec<&str> = BUILT.to_vec();
    let unique: BTreeSet<String> = named.iter().map(|&rpc| rpc.to_owned()).collect();
    assert_eq!(unique.len(), named.len(), "an RPC is named twice");
    assert_eq!(unique, rpcs());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_implemented_rpc_responds() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    let channel = replica.channel().await;
    for rpc in BUILT {
        if let Err(status) = raw::call(channel.clone(), rpc, Vec::new()).await {
            let reason = refusal(&status).reason;
            assert!(["INVALID_REQUEST", "NO_INPUT"].contains(&reason.as_str()), "{rpc}: {status:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_rpc_or_service_is_refused_by_name() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    let channel = replica.channel().await;
    for rpc in ["contextd.v1.TurnService/Sing", "contextd.v2.TurnService/ExecuteTurn", "nobody/knows"] {
        let status = raw::call(channel.clone(), rpc, Vec::new()).await.expect_err(rpc);
        assert_eq!(refusal(&status), not_built(rpc, None), "{status:?}");
    }
}

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn an_unimplemented_field_is_refused_by_name() {
    let (database, replica) = Replica::alone(Options::default()).await;
    let channel = replica.channel().await;
    let before = database.row_counts().await;
    for Ask { rpc, request, field } in session_asks().into_iter().chain(append_asks()) {
        let status = raw::call(channel.clone(), rpc, request).await.expect_err(&field);
        assert_eq!(refusal(&status), not_built(rpc, Some(&field)), "{status:?}");
    }
    assert_eq!(database.row_counts().await, before);
}

/// Lists the services through one version of the reflection API.
macro_rules! reflected {
    ($version:ident, $channel:expr) => {{
        use $version::{
            ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
            server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
        };
        let request = |it| ServerReflectionRequest { host: String::new(), message_request: Some(it) };
        let requests = [
            request(MessageRequest::ListServices(String::new())),
            request(MessageRequest::FileContainingSymbol("contextd.v1.TurnService".to_owned())),
            // Clients such as grpcurl request this symbol to display error details.
            request(MessageRequest::FileContainingSymbol("google.rpc.ErrorInfo".to_owned())),
            request(MessageRequest::FileContainingSymbol("google.rpc.BadRequest".to_owned())),
        ];
        let requests_count = requests.len();
        let mut client = ServerReflectionClient::new($channel);
        let mut answers = client.server_reflection_info(tokio_stream::iter(requests)).await.unwrap().into_inner();
        let Some(MessageResponse::ListServicesResponse(list)) =
            answers.message().await.unwrap().unwrap().message_response
        else {
            panic!("no list of services")
        };
        for _ in 1..requests_count {
            let answer = answers.message().await.unwrap().unwrap().message_response;
            let Some(MessageResponse::FileDescriptorResponse(file)) = answer else { panic!("no file: {answer:?}") };
            assert!(!file.file_descriptor_proto.is_empty());
        }
        list.service.into_iter().map(|service| service.name).collect::<BTreeSet<String>>()
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn both_reflection_versions_list_every_service_and_the_error_details() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    let channel = replica.channel().await;
    for listed in [reflected!(v1, channel.clone()), reflected!(v1alpha, channel)] {
        assert!(listed.is_superset(&services()), "{listed:?}");
        assert!(listed.contains("grpc.health.v1.Health"), "{listed:?}");
    }
}

/// The statuses that `Watch` returns for a service, up to the expected one.
async fn watch_until(stream: &mut tonic::Streaming<tonic_health::pb::HealthCheckResponse>, wanted: ServingStatus) {
    loop {
        let answer =
            tokio::time::timeout(TEST_TIMEOUT, stream.message()).await.expect("nothing changed").unwrap().unwrap();
        if answer.status() == wanted {
            return;
        }
    }
}

fn service(name: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: name.to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_reports_the_server_each_service_and_liveness() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    let mut health = HealthClient::new(replica.channel().await);
    let services: Vec<String> = services().into_iter().collect();
    let names = ["", "readiness", "liveness"].into_iter().chain(services.iter().map(String::as_str));
    for name in names {
        let mut stream = health.watch(service(name)).await.unwrap().into_inner();
        watch_until(&mut stream, ServingStatus::Serving).await;
        let answer = health.check(service(name)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{name}");
    }
    let unknown = || service("contextd.v1.Nothing");
    let checked: Status = health.check(unknown()).await.unwrap_err();
    let watched: Status = health.watch(unknown()).await.unwrap_err();
    assert_eq!((checked.code(), watched.code()), (Code::NotFound, Code::NotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_watch_reports_the_drain() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    let mut health = HealthClient::new(replica.channel().await);
    for name in ["", "contextd.v1.TurnService"] {
        watch_until(&mut health.watch(service(name)).await.unwrap().into_inner(), ServingStatus::Serving).await;
    }
    let mut whole = health.watch(service("")).await.unwrap().into_inner();
    let mut turns = health.watch(service("contextd.v1.TurnService")).await.unwrap().into_inner();
    replica.drain(TEST_TIMEOUT).await;
    watch_until(&mut whole, ServingStatus::NotServing).await;
    watch_until(&mut turns, ServingStatus::NotServing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_server_refuses_new_turns_with_a_retry_delay() {
    use tonic_types::StatusExt;
    let (database, replica) = Replica::alone(Options::default()).await;
    let mut turns = replica.turns().await;
    as_worker(replica.engine.drain(TEST_TIMEOUT)).await;
    let before = database.row_counts().await;
    let status = turns.execute_turn(Request::new(turn("chat", "scripted/demo", "Hello"))).await.unwrap_err();
    assert_eq!((status.code(), refusal(&status).reason.as_str()), (Code::Unavailable, "DRAINING"));
    assert!(status.get_details_retry_info().is_some_and(|retry| retry.retry_delay.is_some()));
    assert_eq!(database.row_counts().await, before);
}
