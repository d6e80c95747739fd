//! Identical requests: one after another, concurrently on two replicas, and while the first one is rolled back.

use std::collections::BTreeSet;

use contextd::pb::DESCRIPTOR_SET;
use futures_util::future::join_all;
use prost::Message as _;
use prost_types::{FileDescriptorSet, method_options::IdempotencyLevel};
use tonic::Code;

use super::{ALL, Case, Rpc, options};
use crate::harness::{Host, host::until, raw};

/// These RPCs change no session and have no request_id: a key whose secret was lost is revoked, and a revocation can be
/// repeated (`auth::keys`), as can setting limits and deleting a tenant.
const ADMIN: [&str; 4] = [
    "contextd.v1.AdminService/CreateKey",
    "contextd.v1.AdminService/RevokeKey",
    "contextd.v1.AdminService/SetTenantLimits",
    "contextd.v1.AdminService/DeleteTenant",
];

/// How often a request is retried for which the database returned no response.
const TRIES: usize = 20;

async fn pair() -> (Host, Host) {
    let host = Host::with(options()).await;
    let other = host.beside(options()).await;
    (host, other)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mutating_rpc_is_in_the_idempotency_table() {
    let host = Host::with(options()).await;
    let files = FileDescriptorSet::decode(DESCRIPTOR_SET).unwrap();
    let mut changing = BTreeSet::new();
    for file in files.file.iter().filter(|file| file.package() == "contextd.v1") {
        for service in &file.service {
            for method in &service.method {
                let level = method.options.as_ref().map(prost_types::MethodOptions::idempotency_level);
                let rpc = format!("contextd.v1.{}/{}", service.name(), method.name());
                let refused = raw::call(host.replica.channel().await, &rpc, Vec::new()).await;
                let built = refused.err().is_none_or(|status| status.code() != Code::Unimplemented);
                let changes = level != Some(IdempotencyLevel::NoSideEffects);
                if changes && built && !ADMIN.contains(&rpc.as_str()) {
                    changing.insert(rpc);
                }
            }
        }
    }
    assert_eq!(changing, ALL.into_iter().map(Rpc::name).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_identical_requests_on_two_replicas_act_once_with_equal_responses() {
    let (host, other) = pair().await;
    let client = host.database.client().await;
    for rpc in ALL {
        for round in 0..3 {
            let case = Case::prepare(&host, rpc, format!("{rpc:?}-{round}")).await;
            let asked = (0..6).map(|n| Box::pin(case.ask(if n % 2 == 0 { &host } else { &other })));
            let mut answers: Vec<_> =
                join_all(asked).await.into_iter().map(|answer| answer.map_err(|it| (rpc, it))).collect();
            answers.push(Box::pin(case.ask(&other)).await.map_err(|it| (rpc, it)));
            let told: BTreeSet<String> = answers.into_iter().map(Result::unwrap).collect();
            assert_eq!(told.len(), 1, "{rpc:?}: {told:?}");
            assert_eq!(case.effects(&client).await, 1, "{rpc:?}");
        }
    }
    host.at_rest().await;
    other.at_rest().await;
    crate::protocol::assert_sound(&client).await;
}

/// Retries until the database responds.
async fn insist(case: &Case, host: &Host) -> String {
    for _ in 0..TRIES {
        match Box::pin(case.ask(host)).await {
            Ok(answer) => return answer,
            Err(status) => {
                assert!(matches!(status.code(), Code::Unavailable | Code::Unknown), "{:?}: {status:?}", case.rpc)
            }
        }
    }
    panic!("{:?} has no answer", case.rpc)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_back_request_can_be_repeated_and_acts_once() {
    let (host, other) = pair().await;
    let client = host.database.client().await;
    let mut holder = host.database.client().await;
    for rpc in ALL {
        let case = Case::prepare(&host, rpc, format!("{rpc:?}")).await;
        host.at_rest().await;
        // Every write of an idempotency record or blob waits for this lock.
        let held = holder.transaction().await.unwrap();
        held.batch_execute("lock table idempotency, blobs in share row exclusive mode").await.unwrap();
        let cut = async {
            let waits = "from pg_stat_activity where datname = current_database() and application_name = 'contextd'
                            and wait_event_type = 'Lock' and wait_event = 'relation'";
            until("a request to wait for the lock", || async {
                client.query_one(&format!("select count(*) {waits}"), &[]).await.unwrap().get::<_, i64>(0) > 0
            })
            .await;
            // Terminates its connection in the middle of the transaction.
            client.execute(&format!("select pg_terminate_backend(pid) {waits} limit 1"), &[]).await.unwrap();
            held.commit().await.unwrap();
        };
        let (one, two, ()) = tokio::join!(insist(&case, &host), insist(&case, &other), cut);
        assert_eq!(one, two, "{rpc:?}");
        assert_eq!(insist(&case, &host).await, one, "{rpc:?}");
        assert_eq!(case.effects(&client).await, 1, "{rpc:?}");
    }
    host.at_rest().await;
    other.at_rest().await;
    crate::protocol::assert_sound(&client).await;
}
