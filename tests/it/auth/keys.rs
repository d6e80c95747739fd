//! API keys: created, used, listed, expired and revoked, on all replicas.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use contextd::{
    clock::{Clock as _, ManualClock, SystemClock},
    model::Access,
    pb::{
        self, admin_service_client::AdminServiceClient, blob_service_client::BlobServiceClient,
        session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient,
    },
    store::admitted::{LastRead, MAX_READ_AGE, Read},
};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::Code;

use super::{Key, Keyed, KeysFile, connect};
use crate::harness::{Options, Replica, TestDatabase, as_worker, errors::refusal, events::TEST_TIMEOUT};

/// The documented time within which a change of a key takes effect on every replica.
const PROMISED: Duration = Duration::from_secs(5);

pub(super) async fn admin(replica: &Replica, key: &Key) -> AdminServiceClient<Keyed> {
    AdminServiceClient::new(connect(replica, key).await)
}

pub(super) fn wanted(access: pb::Access) -> pb::CreateKeyRequest {
    pb::CreateKeyRequest { access: access.into(), name: "a host".to_owned(), ..pb::CreateKeyRequest::default() }
}

/// Whether a replica accepts the key.
async fn accepts(replica: &Replica, key: &Key) -> bool {
    let mut sessions = SessionServiceClient::new(connect(replica, key).await);
    let answer = sessions.list_sessions(pb::ListSessionsRequest::default()).await;
    match answer {
        Ok(_) => true,
        Err(status) => {
            assert_eq!(status.code(), Code::Unauthenticated, "{status}");
            false
        }
    }
}

/// Waits until the replica accepts or refuses the key, as expected.
pub(super) async fn until(replica: &Replica, key: &Key, expected: bool) {
    let seen = async {
        while accepts(replica, key).await != expected {
            tokio::task::yield_now().await;
        }
    };
    timeout(PROMISED, seen).await.expect("a change takes effect within 5 s");
}

#[tokio::test]
async fn a_created_key_works_on_every_replica_and_a_revoked_one_on_none() {
    let mut file = KeysFile::new();
    let root = file.add("acme", Access::Admin);
    let database = TestDatabase::new().await;
    let here = Replica::start(&database, file.required()).await;
    let there = Replica::start(&database, file.required()).await;
    let mut admin = admin(&here, &root).await;

    let first = admin.create_key(wanted(pb::Access::Write)).await.unwrap().into_inner();
    let second = admin.create_key(wanted(pb::Access::Write)).await.unwrap().into_inner();
    let (old, new) = (Key(first.secret), Key(second.secret));
    assert!(accepts(&here, &old).await && accepts(&here, &new).await, "at once");
    until(&there, &old, true).await;
    until(&there, &new, true).await;

    let id = first.key.unwrap().key_id;
    let revoke = pb::RevokeKeyRequest { key_id: id.clone(), tenant_id: String::new() };
    let revoked = admin.revoke_key(revoke.clone()).await.unwrap().into_inner().key.unwrap();
    assert!(!accepts(&here, &old).await, "at once");
    until(&there, &old, false).await;
    assert!(accepts(&here, &new).await && accepts(&there, &new).await);
    let again = admin.revoke_key(revoke).await.unwrap().into_inner().key.unwrap();
    assert_eq!(again, revoked);

    let keys = admin.list_keys(pb::ListKeysRequest::default()).await.unwrap().into_inner().keys;
    let listed: Vec<_> = keys.iter().map(|key| (key.key_id.as_str(), key.revoke_time.is_some())).collect();
    let newest = second.key.unwrap().key_id;
    assert_eq!(listed, [(newest.as_str(), false), (id.as_str(), true)]);
}

#[tokio::test]
async fn the_database_holds_no_secret() {
    let mut file = KeysFile::new();
    let root = file.add("acme", Access::Admin);
    let (database, replica) = Replica::alone(file.required()).await;
    let created = admin(&replica, &root).await.create_key(wanted(pb::Access::Read)).await;
    let secret = created.unwrap().into_inner().secret;
    let rows = database.client().await.query("select k::text from api_keys k", &[]).await.unwrap();
    let row: String = rows[0].get(0);
    assert_eq!(rows.len(), 1);
    assert!(!row.contains(&secret[5..69]), "{row}");
}

#[tokio::test]
async fn an_expired_key_is_refused() {
    let mut file = KeysFile::new();
    let root = file.add("acme", Access::Admin);
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let options = Options { clock: Arc::<ManualClock>::clone(&clock), ..file.required() };
    let (_database, replica) = Replica::alone(options).await;
    let request = pb::CreateKeyRequest {
        ttl: Some(prost_types::Duration { seconds: 3600, nanos: 0 }),
        ..wanted(pb::Access::Read)
    };
    let created = admin(&replica, &root).await.create_key(request).await;
    let key = Key(created.unwrap().into_inner().secret);
    assert!(accepts(&replica, &key).await);
    clock.advance(jiff::SignedDuration::from_secs(3700));
    assert!(!accepts(&replica, &key).await);
}

/// Sets the time of the last read to one that is too long ago.
fn age(last: &LastRead) {
    let too_old = MAX_READ_AGE + Duration::from_secs(1);
    last.note(Read { at: last.at().expect("it was read"), sent_at: Instant::now().checked_sub(too_old).unwrap() });
}

#[tokio::test]
async fn a_replica_that_has_not_read_keys_or_limits_for_their_period_refuses_calls() {
    for table in ["api_keys_version", "tenant_limits_version"] {
        let mut file = KeysFile::new();
        let key = file.add("acme", Access::Read);
        let (database, replica) = Replica::alone(file.required()).await;
        let client = database.client().await;
        let sessions = SessionServiceClient::new(connect(&replica, &key).await);
        let list = || {
            let mut sessions = sessions.clone();
            async move {
                let request = pb::ListSessionsRequest::default();
                sessions.list_sessions(request).await.map(drop)
            }
        };
        // Reads in progress complete before the next read of the same kind.
        let read = || async {
            let keys = as_worker(replica.auth.refresh_keys()).await.is_ok();
            let limits = as_worker(replica.engine.capacity.quotas.read_limits()).await;
            keys && limits.is_ok()
        };
        list().await.unwrap();
        let hide = format!("alter table {table} rename to hidden");
        client.batch_execute(&hide).await.unwrap();
        assert!(!read().await, "{table}");
        list().await.expect("what was read is recent");
        if table == "api_keys_version" {
            age(replica.auth.last_read().unwrap());
        } else {
            age(replica.engine.capacity.quotas.last_read());
        }
        let refused = list().await.unwrap_err();
        assert_eq!(
            (refused.code(), refusal(&refused).reason.as_str()),
            (Code::Unavailable, "DATABASE_UNAVAILABLE"),
            "{table}"
        );
        assert!(refused.message().contains("10 s"), "{refused}");
        let show = format!("alter table hidden rename to {table}");
        client.batch_execute(&show).await.unwrap();
        assert!(read().await, "{table}");
        list().await.unwrap();
    }
}

/// A stream of events and an unfinished upload that use a key.
async fn open_calls(
    replica: &Replica,
    key: &Key,
) -> (tonic::Streaming<pb::WatchEventsResponse>, tokio::task::JoinHandle<Code>) {
    let channel = connect(replica, key).await;
    let session = pb::CreateSessionRequest {
        session: Some(pb::Session { session_id: "watched".to_owned(), ..pb::Session::default() }),
        ..pb::CreateSessionRequest::default()
    };
    let mut sessions = SessionServiceClient::new(channel.clone());
    // The second caller finds that it exists.
    let _ = sessions.create_session(session).await;
    let watch =
        pb::WatchEventsRequest { session_id: "watched".to_owned(), follow: true, ..pb::WatchEventsRequest::default() };
    let mut client = TurnServiceClient::new(channel.clone());
    let events = client.watch_events(watch).await.unwrap().into_inner();
    let header = pb::PutBlobRequest {
        data: Some(pb::put_blob_request::Data::Header(pb::BlobHeader {
            media_type: "image/png".to_owned(),
            size_bytes: 1_000,
            ..pb::BlobHeader::default()
        })),
    };
    let pieces = tokio_stream::once(header).chain(tokio_stream::pending());
    let mut blobs = BlobServiceClient::new(channel);
    let upload = tokio::spawn(async move { blobs.put_blob(pieces).await.unwrap_err().code() });
    (events, upload)
}

/// The status code with which a stream ends.
pub(super) async fn end(mut events: tonic::Streaming<pb::WatchEventsResponse>) -> Code {
    let ended = async {
        loop {
            match events.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    };
    timeout(PROMISED, ended).await.expect("the stream goes on")
}

#[tokio::test]
async fn streams_and_long_calls_end_when_their_key_is_revoked_or_expires() {
    let mut file = KeysFile::new();
    let root = file.add("acme", Access::Admin);
    let database = TestDatabase::new().await;
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let options = || Options { clock: Arc::<ManualClock>::clone(&clock), ..file.required() };
    let here = Replica::start(&database, options()).await;
    let there = Replica::start(&database, options()).await;
    let mut admin = admin(&here, &root).await;
    let hour = prost_types::Duration { seconds: 3600, nanos: 0 };
    for expires in [false, true] {
        let request = pb::CreateKeyRequest { ttl: expires.then_some(hour), ..wanted(pb::Access::Write) };
        let created = admin.create_key(request).await.unwrap().into_inner();
        let key = Key(created.secret);
        until(&there, &key, true).await;
        let (events, upload) = open_calls(&there, &key).await;
        let (others, _upload) = open_calls(&there, &root).await;
        if expires {
            clock.advance(jiff::SignedDuration::from_secs(3700));
            // The keys are checked again when one of them changes.
            admin.create_key(wanted(pb::Access::Read)).await.unwrap();
        } else {
            let revoke = pb::RevokeKeyRequest { key_id: created.key.unwrap().key_id, tenant_id: String::new() };
            admin.revoke_key(revoke).await.unwrap();
        }
        assert_eq!(end(events).await, Code::Unauthenticated, "{expires}");
        let upload = timeout(PROMISED, upload).await.expect("the upload goes on");
        assert_eq!(upload.unwrap(), Code::Unauthenticated, "{expires}");
        // The calls of another key continue.
        let other = timeout(Duration::from_millis(100), end(others)).await;
        assert!(other.is_err(), "{other:?}");
    }
}

#[tokio::test]
async fn a_key_gives_no_more_than_its_maker_has_and_no_other_tenant() {
    let mut file = KeysFile::new();
    let root = file.add("acme", Access::Admin);
    let operator = file.add("ops", Access::Operator);
    let (_database, replica) = Replica::alone(file.required()).await;
    let mut acme = admin(&replica, &root).await;
    let mut ops = admin(&replica, &operator).await;
    let elsewhere = |access| pb::CreateKeyRequest { tenant_id: "other".to_owned(), ..wanted(access) };
    for request in [wanted(pb::Access::Operator), elsewhere(pb::Access::Read)] {
        let refused = acme.create_key(request).await.unwrap_err();
        assert_eq!(refusal(&refused).reason, "PERMISSION_DENIED");
    }
    let other = ops.create_key(elsewhere(pb::Access::Admin)).await.unwrap().into_inner();
    let strong = ops
        .create_key(pb::CreateKeyRequest { tenant_id: "acme".to_owned(), ..wanted(pb::Access::Operator) })
        .await
        .unwrap()
        .into_inner();
    let other_key = other.key.unwrap();
    assert_eq!(other_key.tenant_id, "other");
    // A key of another tenant, a key with more access than the caller has, and a key that does not exist are refused
    // alike.
    for key_id in [other_key.key_id, strong.key.unwrap().key_id, "absent".to_owned()] {
        let revoke = pb::RevokeKeyRequest { key_id, tenant_id: String::new() };
        let refused = acme.revoke_key(revoke).await.unwrap_err();
        assert_eq!(refusal(&refused).reason, "KEY_NOT_FOUND");
    }
    let list = pb::ListKeysRequest { tenant_id: "other".to_owned(), ..pb::ListKeysRequest::default() };
    let refused = acme.list_keys(list.clone()).await.unwrap_err();
    assert_eq!(refusal(&refused).reason, "PERMISSION_DENIED");
    assert_eq!(ops.list_keys(list).await.unwrap().into_inner().keys.len(), 1);
}

#[tokio::test]
async fn a_tenant_has_at_most_a_hundred_live_keys() {
    let mut file = KeysFile::new();
    let root = file.add("acme", Access::Admin);
    let (_database, replica) = Replica::alone(file.required()).await;
    let mut admin = admin(&replica, &root).await;
    let mut created = Vec::new();
    for _ in 0..100 {
        let key = admin.create_key(wanted(pb::Access::Read)).await.unwrap();
        created.push(key.into_inner().key.unwrap().key_id);
    }
    let refused = admin.create_key(wanted(pb::Access::Read)).await.unwrap_err();
    assert_eq!(refusal(&refused).reason, "QUOTA_EXCEEDED");
    let revoke = pb::RevokeKeyRequest { key_id: created[7].clone(), tenant_id: String::new() };
    admin.revoke_key(revoke).await.unwrap();
    admin.create_key(wanted(pb::Access::Read)).await.unwrap();
    let mut seen = Vec::new();
    let mut page_token = String::new();
    loop {
        let list = pb::ListKeysRequest { tenant_id: String::new(), page_size: 30, page_token };
        let page = admin.list_keys(list).await.unwrap().into_inner();
        seen.extend(page.keys.into_iter().map(|key| key.key_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(seen.len(), 101);
    assert!(seen.is_sorted_by(|one, next| one > next), "the newest first");
}

#[tokio::test]
async fn a_changed_keys_file_takes_effect_and_a_broken_one_changes_nothing() {
    let mut file = KeysFile::new();
    let first = file.add("acme", Access::Read);
    let (_database, replica) = Replica::alone(file.required()).await;
    let second = file.add("acme", Access::Read);
    until(&replica, &second, true).await;
    let text = std::fs::read_to_string(file.0.path()).unwrap();
    std::fs::write(file.0.path(), "[[keys]]\nname = 1").unwrap();
    let problem = replica.auth.refresh().await.unwrap_err().to_string();
    assert!(problem.contains("line 2"), "{problem}");
    assert!(accepts(&replica, &first).await && accepts(&replica, &second).await);
    // Keeps only the first entry.
    let only = text.split("[[keys]]").nth(1).unwrap();
    std::fs::write(file.0.path(), format!("[[keys]]{only}")).unwrap();
    until(&replica, &second, false).await;
    assert!(accepts(&replica, &first).await);
}

#[tokio::test]
async fn keys_are_accepted_while_the_database_is_away() {
    let mut file = KeysFile::new();
    let key = file.add("acme", Access::Read);
    let (database, replica) = Replica::alone(file.required()).await;
    let mut sessions = SessionServiceClient::new(connect(&replica, &key).await);
    database.client().await.batch_execute("alter table api_keys_version rename to hidden").await.unwrap();
    assert!(replica.auth.refresh().await.is_err());
    let listed = timeout(TEST_TIMEOUT, sessions.list_sessions(pb::ListSessionsRequest::default()));
    assert!(listed.await.unwrap().is_ok());
}

#[tokio::test]
async fn wrong_requests_for_keys_name_every_field() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    let mut admin = AdminServiceClient::new(replica.channel().await);
    let request = pb::CreateKeyRequest {
        tenant_id: "A b".to_owned(),
        access: 99,
        name: "x".repeat(201),
        ttl: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
    };
    let refused = refusal(&admin.create_key(request).await.unwrap_err());
    let mut fields: Vec<_> = refused.fields.iter().map(|(field, _)| field.as_str()).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["access", "name", "tenant_id", "ttl"]);
    let refused = admin.revoke_key(pb::RevokeKeyRequest::default()).await.unwrap_err();
    assert_eq!(refusal(&refused).reason, "INVALID_REQUEST");
}
