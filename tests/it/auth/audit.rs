//! The audit log lines that record who changed what, as the built program writes them.

use std::time::Instant;

use contextd::{
    model::Access,
    pb::{self, admin_service_client::AdminServiceClient},
};
use serde_json::Value;
use tonic::{Code, service::interceptor::InterceptedService, transport::Channel};

use super::{Key, Keyed, KeysFile};
use crate::harness::{
    TestDatabase,
    process::{Place, Served},
};

/// A server with keys and this log level.
async fn serve(keys: &KeysFile, level: &str) -> (Place, Served) {
    let settings = format!(
        "[auth]\nrequired = true\nkeys_file = '{}'\n\
         [telemetry]\nlog_format = 'json'\nlog = '{level}'\n",
        keys.0.path().display(),
    );
    let place = Place::new(&settings);
    let served = place.serve_over(&TestDatabase::new().await).await;
    (place, served)
}

fn admin(channel: &Channel, key: &Key) -> AdminServiceClient<Keyed> {
    AdminServiceClient::new(InterceptedService::new(channel.clone(), key.clone()))
}

/// Stops the server and returns its log lines in order.
async fn all_lines(mut served: Served) -> Vec<Value> {
    served.terminate();
    served.ended().await;
    let said = served.log_text();
    let lines =
        said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    lines.collect()
}

/// Like [`all_lines`], only the lines about calls.
async fn lines(served: Served) -> Vec<Value> {
    let mut lines = all_lines(served).await;
    lines.retain(|line| line["message"] == "call");
    lines
}

fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line[field].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_administrative_call_is_audited_with_its_target_at_any_level_of_the_log() {
    let mut keys = KeysFile::new();
    let operator = keys.add("ops", Access::Operator);
    let reader = keys.add("acme", Access::Read);
    let (_place, served) = serve(&keys, "error").await;
    let channel = served.channel().await;
    let mut operating = admin(&channel, &operator);
    let tenant_id = || "acme".to_owned();
    let create = pb::CreateKeyRequest {
        tenant_id: tenant_id(),
        access: pb::Access::Read.into(),
        ..pb::CreateKeyRequest::default()
    };
    let created = operating.create_key(create).await.unwrap().into_inner();
    let key_id = created.key.unwrap().key_id;
    let list = pb::ListKeysRequest::default();
    operating.list_keys(list).await.unwrap();
    let limits = pb::GetTenantLimitsRequest { tenant_id: tenant_id() };
    operating.get_tenant_limits(limits).await.unwrap();
    let limits = pb::SetTenantLimitsRequest { tenant_id: tenant_id(), limits: None };
    operating.set_tenant_limits(limits.clone()).await.unwrap();
    let refused = admin(&channel, &reader).set_tenant_limits(limits).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    let revoke = pb::RevokeKeyRequest { key_id: key_id.clone(), tenant_id: tenant_id() };
    operating.revoke_key(revoke).await.unwrap();
    let deletion = pb::DeleteTenantRequest { tenant_id: tenant_id() };
    operating.delete_tenant(deletion).await.unwrap();
    let deletion = pb::GetTenantDeletionRequest { tenant_id: tenant_id() };
    operating.get_tenant_deletion(deletion).await.unwrap();

    let lines = lines(served).await;
    let mut seen: Vec<_> = lines
        .iter()
        .map(|line| {
            assert_eq!((&line["target"], &line["audit"]), (&"contextd::audit".into(), &true.into()), "{line}");
            let rpc = text(line, "rpc.method").rsplit('/').next().unwrap();
            let field = |name: &str| text(line, name).to_owned();
            (rpc.to_owned(), field("rpc.code"), field("tenant"), field("target.tenant"), field("target.key"))
        })
        .collect();
    let expected = [
        ("CreateKey", "OK", "ops", "acme", key_id.as_str()),
        ("ListKeys", "OK", "ops", "ops", ""),
        ("GetTenantLimits", "OK", "ops", "acme", ""),
        ("SetTenantLimits", "OK", "ops", "acme", ""),
        // Refused before the request was read.
        ("SetTenantLimits", "PERMISSION_DENIED", "acme", "", ""),
        ("RevokeKey", "OK", "ops", "acme", key_id.as_str()),
        ("DeleteTenant", "OK", "ops", "acme", ""),
        ("GetTenantDeletion", "OK", "ops", "acme", ""),
    ];
    let mut expected = expected.map(|(rpc, code, tenant, managed, key)| {
        let own = |text: &str| text.to_owned();
        (own(rpc), own(code), own(tenant), own(managed), own(key))
    });
    // A line is written when the response was read; the next call does not wait for that.
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_json_line_of_a_call_has_every_field_also_without_a_collector() {
    let mut keys = KeysFile::new();
    let key = keys.add("acme", Access::Read);
    let (_place, served) = serve(&keys, "info").await;
    let channel = served.channel().await;
    let mut reading = admin(&channel, &key);
    for _ in 0..2 {
        let asked = pb::GetServerInfoRequest {};
        reading.get_server_info(asked).await.unwrap();
    }
    let lines = lines(served).await;
    assert_eq!(lines.len(), 2);
    for line in &lines {
        for field in [
            "timestamp",
            "level",
            "message",
            "target",
            "rpc.method",
            "rpc.code",
            "request.id",
            "tenant",
            "subject",
            "client.address",
        ] {
            assert!(!text(line, field).is_empty(), "{field}: {line}");
        }
        assert_eq!(text(line, "target"), "contextd::calls");
        assert!(line["duration_ms"].as_f64().unwrap() > 0.0);
        assert_eq!(line["audit"], false);
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (trace, span) = (text(line, "trace_id"), text(line, "span_id"));
        assert_eq!((trace.len(), span.len()), (32, 16), "{line}");
        assert!(is_hex(trace) && is_hex(span), "{line}");
    }
    assert_ne!(lines[0]["trace_id"], lines[1]["trace_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_a_credential_get_ten_lines_a_second_and_one_with_the_number_of_the_others() {
    const CALLS: u64 = 200;
    const LINES_PER_SECOND: u64 = 10;
    let mut keys = KeysFile::new();
    keys.add("acme", Access::Read);
    let (_place, served) = serve(&keys, "info").await;
    let channel = served.channel().await;
    let begun = Instant::now();
    for _ in 0..CALLS {
        let mut admin = AdminServiceClient::new(channel.clone());
        let refused = admin.get_server_info(pb::GetServerInfoRequest {}).await;
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    }
    let seconds = begun.elapsed().as_secs() + 2;
    let lines = all_lines(served).await;
    let of_calls: Vec<_> = lines.iter().filter(|it| it["message"] == "call").collect();
    let each = u64::try_from(of_calls.len()).unwrap();
    assert!(each >= LINES_PER_SECOND, "{of_calls:?}");
    assert!(each <= LINES_PER_SECOND * seconds && each < CALLS, "{each} lines in {seconds} s");
    let others = lines.iter().filter(|it| it["message"] == "calls refused");
    let mut number = 0;
    for line in others {
        assert_eq!((&line["reason"], &line["audit"]), (&"unauthenticated".into(), &true.into()), "{line}");
        number += line["calls"].as_u64().unwrap();
    }
    assert_eq!(each + number, CALLS);
}
