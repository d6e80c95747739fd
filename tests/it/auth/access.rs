//! Credentials, and the access that each RPC requires.

use contextd::{
    model::Access,
    pb::{self, admin_service_client::AdminServiceClient},
};
use serde_json::json;
use tokio::time::timeout;
use tonic::{Code, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tonic_types::StatusExt as _;

use super::{Key, KeysFile, call, rpcs};
use crate::harness::{Options, Replica, events::TEST_TIMEOUT, log::Logged, raw};

/// The parts of a refusal that the caller sees.
fn shown(status: &tonic::Status) -> (Code, String, Vec<u8>) {
    let details = status.details().to_vec();
    (status.code(), status.message().to_owned(), details)
}

#[tokio::test]
async fn every_rpc_refuses_missing_and_invalid_credentials_in_the_same_words() {
    let mut file = KeysFile::new();
    file.add("acme", Access::Operator);
    let (_database, replica) = Replica::alone(file.required()).await;
    let channel = replica.channel().await;
    let unknown = KeysFile::new().add("acme", Access::Operator);
    let mut refusals = Vec::new();
    for (rpc, _) in rpcs() {
        let headers = [
            None,
            Some(unknown.header()),
            Some("Bearer ctxd_0000".to_owned()),
            Some("Basic YTpi".to_owned()),
            Some("Bearer a.b.c".to_owned()),
        ];
        for header in headers {
            let refused = raw::call_as(channel.clone(), header.as_deref(), &rpc, Vec::new()).await;
            refusals.push(shown(&refused.unwrap_err()));
        }
    }
    assert!(refusals.len() > 150);
    assert_eq!(refusals[0].0, Code::Unauthenticated);
    assert!(refusals.iter().all(|refusal| refusal == &refusals[0]), "{refusals:?}");
}

/// Whether authorization lets an empty request through, so that the error is about the request.
async fn is_let_through(channel: &Channel, key: &Key, rpc: &str) -> bool {
    match call(channel, Some(key), rpc, json!({})).await {
        Err(status) if status.code() == Code::PermissionDenied => {
            let details = status.get_error_details();
            let info = details.error_info().unwrap();
            assert_eq!(info.reason, "PERMISSION_DENIED");
            assert!(Access::from_name(&info.metadata["access"]).is_some());
            false
        }
        Err(status) => {
            assert_ne!(status.code(), Code::Unauthenticated, "{rpc}");
            true
        }
        Ok(_) => true,
    }
}

#[tokio::test]
async fn each_access_level_may_call_its_rpcs_and_no_others() {
    let mut file = KeysFile::new();
    let keys = Access::ALL.map(|access| (access, file.add("acme", access)));
    let (_database, replica) = Replica::alone(file.required()).await;
    let channel = replica.channel().await;
    let admin = ["CreateKey", "ListKeys", "RevokeKey", "GetTenantLimits", "GetTenantDeletion"];
    let operator = ["SetTenantLimits", "DeleteTenant"];
    let reads = ["Get", "List", "Watch", "Count", "Render", "Export"];
    for (rpc, _) in rpcs() {
        let name = rpc.rsplit_once('/').unwrap().1;
        let needed = if operator.contains(&name) {
            Access::Operator
        } else if admin.contains(&name) {
            Access::Admin
        } else if reads.iter().any(|prefix| name.starts_with(prefix)) {
            Access::Read
        } else {
            Access::Write
        };
        for (access, key) in &keys {
            let through = is_let_through(&channel, key, &rpc).await;
            assert_eq!(through, *access >= needed, "{rpc} with {access}");
        }
    }
}

#[tokio::test]
async fn health_answers_everybody_and_reflection_takes_a_credential() {
    let mut file = KeysFile::new();
    let key = file.add("acme", Access::Read);
    let (_database, replica) = Replica::alone(file.required()).await;
    let channel = replica.channel().await;
    let mut health = HealthClient::new(channel.clone());
    for service in ["", "liveness", "contextd.v1.AdminService"] {
        let check = HealthCheckRequest { service: service.to_owned() };
        let mut watched = health.watch(check.clone()).await.unwrap().into_inner();
        let serves = async { while watched.message().await.unwrap().unwrap().status() != ServingStatus::Serving {} };
        timeout(TEST_TIMEOUT, serves).await.unwrap();
        let status = health.check(check).await.unwrap().into_inner();
        assert_eq!(status.status(), ServingStatus::Serving, "{service}");
    }
    // ServerReflectionRequest { list_services: "*" }
    let list = vec![0x3a, 1, b'*'];
    for version in ["v1", "v1alpha"] {
        let rpc = format!("grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let refused = raw::call(channel.clone(), &rpc, list.clone()).await;
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
        let header = key.header();
        let listed = raw::call_as(channel.clone(), Some(&header), &rpc, list.clone()).await;
        assert!(!listed.unwrap().is_empty());
    }
}

/// The request ID in the response.
async fn answered_id(channel: &Channel, id: Option<&str>) -> String {
    let mut client = AdminServiceClient::new(channel.clone());
    let mut request = tonic::Request::new(pb::GetServerInfoRequest {});
    if let Some(id) = id {
        let value = id.parse().unwrap();
        request.metadata_mut().insert("x-request-id", value);
    }
    let answer = client.get_server_info(request).await.unwrap();
    let id = answer.metadata().get("x-request-id").unwrap();
    id.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_request_id_is_sent_back_and_made_where_the_client_sent_none_to_show() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    let channel = replica.channel().await;
    assert_eq!(answered_id(&channel, Some("mine-1")).await, "mine-1");
    let made = answered_id(&channel, None).await;
    assert!(uuid::Uuid::parse_str(&made).is_ok(), "{made}");
    for unfit in ["a b", &"x".repeat(129)] {
        assert_ne!(answered_id(&channel, Some(unfit)).await, unfit);
    }
}

#[tokio::test]
async fn without_authentication_every_caller_is_an_operator_of_the_default_tenant() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    let mut client = AdminServiceClient::new(replica.channel().await);
    let info = client.get_server_info(pb::GetServerInfoRequest {}).await;
    let info = info.unwrap().into_inner();
    assert_eq!(
        (info.tenant_id.as_str(), info.access(), info.subject.as_str(), info.auth_required),
        ("default", pb::Access::Operator, "anonymous", false)
    );
    assert_eq!(info.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(info.schema_version, contextd::store::migrate::newest());
    assert_eq!(info.max_request_bytes, 4 << 20);
}

#[tokio::test]
async fn the_log_has_one_line_per_call_and_no_content() {
    const CANARY: &str = "canary-of-the-log";
    let logged = Logged::default();
    let _guard = logged.begin();
    let mut file = KeysFile::new();
    let key = file.add("acme", Access::Write);
    let (_database, replica) = Replica::alone(file.required()).await;
    let channel = replica.channel().await;
    let create = json!({"session": {"session_id": "s-1", "system_prompt": CANARY}, "request_id": CANARY});
    let rpc = "contextd.v1.SessionService/CreateSession";
    call(&channel, Some(&key), rpc, create.clone()).await.unwrap();
    let refused = call(&channel, None, rpc, create).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let read = json!({"session_id": "s-1", "turn_id": "t-1"});
    let rpc = "contextd.v1.TurnService/GetTurn";
    let absent = call(&channel, Some(&key), rpc, read).await.unwrap_err();
    assert_eq!(absent.code(), Code::NotFound);
    let lines = logged.lines("call");
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            let field = |name: &str| line["fields"][name].as_str().unwrap_or_default().to_owned();
            assert!(line["fields"]["duration_ms"].as_f64().unwrap() > 0.0);
            assert!(!field("request.id").is_empty() && !field("client.address").is_empty());
            let audit = line["fields"]["audit"].as_bool().unwrap();
            (
                field("rpc.code"),
                field("tenant"),
                field("subject"),
                field("session.id"),
                field("turn.id"),
                field("reason"),
                audit,
            )
        })
        .collect();
    let expected = [
        ("OK", "acme", "file:acme-write", "s-1", "", "", true),
        ("UNAUTHENTICATED", "", "", "", "", "no credential", true),
        ("NOT_FOUND", "acme", "file:acme-write", "s-1", "t-1", "", false),
    ];
    let expected = expected.map(|(code, tenant, subject, session, turn, reason, audit)| {
        let own = |text: &str| text.to_owned();
        (own(code), own(tenant), own(subject), own(session), own(turn), own(reason), audit)
    });
    assert_eq!(seen, expected);
    let all = logged.text();
    assert!(!all.contains(CANARY) && !all.contains(&key.header()[7..]), "{all}");
}
