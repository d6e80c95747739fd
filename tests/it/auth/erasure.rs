//! The deletion of a tenant: what it leaves, what it refuses, and how it continues after a process dies.

use std::collections::BTreeMap;

use contextd::{
    model::Access,
    pb::{
        self, admin_service_client::AdminServiceClient, blob_service_client::BlobServiceClient, put_blob_request::Data,
        queue_service_client::QueueServiceClient, session_service_client::SessionServiceClient,
        turn_service_client::TurnServiceClient,
    },
    store::erasure::tables,
};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio_postgres::Client;
use tonic::{Code, Status, Streaming, service::interceptor::InterceptedService};

use super::{Key, Keyed, KeysFile, connect};
use crate::harness::{
    Options, Replica, TestDatabase,
    errors::refusal,
    events::{next, until_written},
    host::{MODEL, call, script, until},
    process::{Place, Served},
    requests::{enqueue, tools, turn},
    survivor::SHORT_LEASE,
};

/// The tables without tenants: the versions of keys and limits, the replicas, and the history of migrations.
const GLOBAL: [&str; 4] = ["api_keys_version", "refinery_schema_history", "replicas", "tenant_limits_version"];
/// The table whose row of a deleted tenant remains.
const STUB: &str = "tenant_deletions";

/// The tables with a tenant column, from the catalog.
async fn tables_of_tenants(client: &Client) -> Vec<String> {
    let sql = "select t.table_name::text,
                      exists (select from information_schema.columns c where c.table_schema = 'public'
                                 and c.table_name = t.table_name and c.column_name = 'tenant_id')
                 from information_schema.tables t where t.table_schema = 'public' and t.table_type = 'BASE TABLE'";
    let rows = client.query(sql, &[]).await.unwrap();
    let tables = rows.iter().map(|row| (row.get::<_, String>(0), row.get::<_, bool>(1)));
    let (owned, global): (Vec<_>, Vec<_>) = tables.partition(|(_, has_tenant)| *has_tenant);
    for (table, _) in global {
        assert!(GLOBAL.contains(&table.as_str()), "{table} does not say whose its rows are");
    }
    owned.into_iter().map(|(table, _)| table).collect()
}

/// The number of rows of a tenant in each table that has any.
async fn rows_of(client: &Client, tenant: &str) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for table in tables_of_tenants(client).await {
        let sql = format!("select count(*) from {table} where tenant_id = $1");
        let count: i64 = client.query_one(&sql, &[&tenant]).await.unwrap().get(0);
        if count > 0 {
            counts.insert(table, count);
        }
    }
    counts
}

/// Advances time: every replica has refused the tenant for long enough, and no reader follows deleted data.
async fn time_passes(client: &Client) {
    let sql = "update tenant_deletions set asked_at = asked_at - interval '1 minute' where done_at is null
                  and asked_at > now() - interval '30 seconds';
               update session_run set version = version + 1, lease_until = '-infinity' where state = 3";
    client.batch_execute(sql).await.unwrap();
}

struct Tenant {
    admin: AdminServiceClient<Keyed>,
    blobs: BlobServiceClient<Keyed>,
    queue: QueueServiceClient<Keyed>,
    sessions: SessionServiceClient<Keyed>,
    turns: TurnServiceClient<Keyed>,
}

impl Tenant {
    async fn of(replica: &Replica, key: &super::Key) -> Self {
        let channel = connect(replica, key).await;
        Self {
            admin: AdminServiceClient::new(channel.clone()),
            blobs: BlobServiceClient::new(channel.clone()),
            queue: QueueServiceClient::new(channel.clone()),
            sessions: SessionServiceClient::new(channel.clone()),
            turns: TurnServiceClient::new(channel),
        }
    }

    async fn list(&self) -> Result<Vec<pb::Session>, Status> {
        let request = pb::ListSessionsRequest::default();
        let listed = self.sessions.clone().list_sessions(request).await?;
        Ok(listed.into_inner().sessions)
    }

    /// Sets limits that the tenant does not reach.
    async fn limit(&self, tenant: &str) {
        let request = pb::SetTenantLimitsRequest {
            tenant_id: tenant.to_owned(),
            limits: Some(pb::TenantLimits {
                tokens_per_minute: Some(1_000_000),
                running_turns: Some(5),
                stored_bytes: Some(1_000_000_000),
                ..pb::TenantLimits::default()
            }),
        };
        self.admin.clone().set_tenant_limits(request).await.unwrap();
    }

    /// Creates data of every kind: a turn that waits for tools, a live turn with a message queued after it, a blob and
    /// a key. Returns the stream of the live turn.
    async fn settle(&self) -> Streaming<pb::ExecuteTurnResponse> {
        let header = pb::BlobHeader { media_type: "text/plain".to_owned(), ..pb::BlobHeader::default() };
        let pieces = [Data::Header(header), Data::Chunk(vec![7; 1000])];
        let pieces = pieces.map(|data| pb::PutBlobRequest { data: Some(data) });
        let mut blobs = self.blobs.clone();
        blobs.put_blob(tokio_stream::iter(pieces)).await.unwrap();
        let request = pb::CreateKeyRequest { access: pb::Access::Read.into(), ..pb::CreateKeyRequest::default() };
        self.admin.clone().create_key(request).await.unwrap();
        let waiting = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("waits", "scripted/tool", "Go") };
        let mut stream = self.execute(waiting).await;
        while let Ok(Some(event)) = next(&mut stream).await {
            if matches!(event.payload, Some(pb::event::Payload::ActionRequired(_))) {
                break;
            }
        }
        let mut live = self.execute(turn("live", MODEL, "Go")).await;
        until_written(&mut live, "Held").await;
        let queued = enqueue("live", "and then?");
        self.queue.clone().enqueue_message(queued).await.unwrap();
        live
    }

    async fn execute(&self, request: pb::ExecuteTurnRequest) -> Streaming<pb::ExecuteTurnResponse> {
        let stream = self.turns.clone().execute_turn(request).await;
        stream.unwrap().into_inner()
    }
}

async fn delete<C>(admin: &AdminServiceClient<C>, tenant: &str) -> pb::TenantDeletion
where
    AdminServiceClient<C>: Clone,
    C: tonic::client::GrpcService<tonic::body::Body>,
    C::Error: Into<tonic::codegen::StdError>,
    C::ResponseBody: tonic::codegen::Body<Data = tonic::codegen::Bytes> + Send + 'static,
    <C::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError> + Send,
{
    let request = pb::DeleteTenantRequest { tenant_id: tenant.to_owned() };
    let begun = admin.clone().delete_tenant(request).await.unwrap();
    begun.into_inner().deletion.unwrap()
}

async fn deletion<C>(admin: &AdminServiceClient<C>, tenant: &str) -> Option<pb::TenantDeletion>
where
    AdminServiceClient<C>: Clone,
    C: tonic::client::GrpcService<tonic::body::Body>,
    C::Error: Into<tonic::codegen::StdError>,
    C::ResponseBody: tonic::codegen::Body<Data = tonic::codegen::Bytes> + Send + 'static,
    <C::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError> + Send,
{
    let request = pb::GetTenantDeletionRequest { tenant_id: tenant.to_owned() };
    let read = admin.clone().get_tenant_deletion(request).await.unwrap();
    read.into_inner().deletion
}

fn options(file: &KeysFile) -> Options {
    let held = json!([{"text": "Held"}, {"wait_for": "go"}, {"text": " up."}]);
    file.required().script("it", script(&[held])).script("tool", script(&[json!([call("look")])]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_tenant_leaves_no_row_but_that_of_its_deletion_and_can_begin_anew() {
    let mut file = KeysFile::new();
    let operator = file.add("ops", Access::Operator);
    let keys = ["acme", "other"].map(|tenant| file.add(tenant, Access::Admin));
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let here = Replica::start(&database, options(&file)).await;
    let there = Replica::start(&database, options(&file)).await;
    let operator = Tenant::of(&here, &operator).await;
    let acme = Tenant::of(&here, &keys[0]).await;
    let acme_there = Tenant::of(&there, &keys[0]).await;
    let other = Tenant::of(&here, &keys[1]).await;
    for tenant in ["acme", "other"] {
        operator.limit(tenant).await;
    }
    let mut live = acme.settle().await;
    let _live = other.settle().await;
    let had = rows_of(&client, "acme").await;
    assert!(had.len() > 12, "{had:?}");
    assert_eq!(deletion(&operator.admin, "acme").await, None);

    let begun = delete(&operator.admin, "acme").await;
    assert_eq!(begun.requested_by, "file:ops-operator");
    assert_eq!(begun.done_time, None);
    assert_eq!(delete(&operator.admin, "acme").await.request_time, begun.request_time);
    let refused = refusal(&acme.list().await.unwrap_err());
    assert_eq!((refused.code, refused.reason.as_str()), (Code::FailedPrecondition, "TENANT_BEING_DELETED"));
    let key = pb::CreateKeyRequest {
        tenant_id: "acme".to_owned(),
        access: pb::Access::Read.into(),
        ..pb::CreateKeyRequest::default()
    };
    let refused = operator.admin.clone().create_key(key).await.unwrap_err();
    assert_eq!(refusal(&refused).reason, "TENANT_BEING_DELETED");
    until("the other replica to refuse the tenant", || async { acme_there.list().await.is_err() }).await;
    let mut ends = Vec::new();
    while let Ok(Some(event)) = next(&mut live).await {
        ends.extend(event.payload);
    }
    let cancelled = ends.iter().any(|payload| matches!(payload, pb::event::Payload::TurnCancelled(_)));
    assert!(cancelled, "{ends:?}");

    until("the deletion to be done", || async {
        time_passes(&client).await;
        let read = deletion(&operator.admin, "acme").await.unwrap();
        read.done_time.is_some()
    })
    .await;
    let done = deletion(&operator.admin, "acme").await.unwrap();
    let counts = [done.sessions, done.blobs, done.blob_bytes, done.keys];
    assert_eq!(counts, [2, 1, 1000, 1]);
    let left = rows_of(&client, "acme").await;
    assert_eq!(left, BTreeMap::from([(STUB.to_owned(), 1)]));
    let others = rows_of(&client, "other").await;
    assert!(others["sessions"] == 2 && others.len() > 12, "{others:?}");

    until("the tenant to be let in again, empty", || async {
        matches!(acme_there.list().await, Ok(sessions) if sessions.is_empty())
    })
    .await;
    assert_eq!(acme.list().await.unwrap(), []);
    assert_eq!(other.list().await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn once_a_deletion_is_done_every_replica_takes_calls_of_the_tenant_at_once() {
    let mut file = KeysFile::new();
    let operator = file.add("ops", Access::Operator);
    let key = file.add("acme", Access::Admin);
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let here = Replica::start(&database, options(&file)).await;
    // It reads the deletions only when the test requests it, like a replica whose next round has not come yet.
    let idle = Options { workers: false, ..options(&file) };
    let there = Replica::start(&database, idle).await;
    let operator = Tenant::of(&here, &operator).await;
    let acme_there = Tenant::of(&there, &key).await;
    delete(&operator.admin, "acme").await;
    let quotas = &there.engine.capacity.quotas;
    crate::harness::as_worker(quotas.read_limits()).await.unwrap();
    assert!(acme_there.list().await.is_err());
    until("the deletion to be done", || async {
        time_passes(&client).await;
        let read = deletion(&operator.admin, "acme").await.unwrap();
        read.done_time.is_some()
    })
    .await;
    assert_eq!(acme_there.list().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_stood_still_during_a_deletion_creates_nothing_of_the_tenant() {
    const CALLS: usize = 15;
    let mut file = KeysFile::new();
    let operator = file.add("ops", Access::Operator);
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let here = Replica::start(&database, options(&file)).await;
    let settings = format!("{SHORT_LEASE}[auth]\nrequired = true\nkeys_file = '{}'\n", file.0.path().display());
    let place = Place::new(&settings);
    let there = place.serve_over(&database).await;
    let operator = Tenant::of(&here, &operator).await;
    let key = pb::CreateKeyRequest {
        tenant_id: "acme".to_owned(),
        access: pb::Access::Write.into(),
        ..pb::CreateKeyRequest::default()
    };
    let created = operator.admin.clone().create_key(key).await.unwrap();
    let key = Key(created.into_inner().secret);
    let channel = InterceptedService::new(there.channel().await, key);
    let acme = SessionServiceClient::new(channel);
    let create = |acme: &SessionServiceClient<Keyed>| {
        let mut acme = acme.clone();
        async move { acme.create_session(pb::CreateSessionRequest::default()).await }
    };
    until("the other replica to know the key", || async { create(&acme).await.is_ok() }).await;

    there.signal(Signal::SIGSTOP);
    let calls: Vec<_> = (0..CALLS).map(|_| tokio::spawn(create(&acme))).collect();
    delete(&operator.admin, "acme").await;
    until("the deletion to be done", || async {
        time_passes(&client).await;
        let read = deletion(&operator.admin, "acme").await.unwrap();
        read.done_time.is_some()
    })
    .await;
    there.signal(Signal::SIGCONT);
    let mut made = 0;
    for call in calls {
        made += usize::from(call.await.unwrap().is_ok());
    }
    let left = rows_of(&client, "acme").await;
    assert_eq!(made, 0, "{left:?}");
    assert_eq!(left, BTreeMap::from([(STUB.to_owned(), 1)]));
    until("the other replica to answer again", || async {
        refusal(&create(&acme).await.unwrap_err()).reason == "UNAUTHENTICATED"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_fails_does_not_hold_up_those_of_other_tenants() {
    let mut file = KeysFile::new();
    let operator = file.add("ops", Access::Operator);
    let keys = ["a-stuck", "b"].map(|tenant| file.add(tenant, Access::Admin));
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let replica = Replica::start(&database, options(&file)).await;
    let operator = Tenant::of(&replica, &operator).await;
    for key in &keys {
        let tenant = Tenant::of(&replica, key).await;
        let request = pb::CreateSessionRequest::default();
        tenant.sessions.clone().create_session(request).await.unwrap();
    }
    let stuck = "create function fail() returns trigger language plpgsql as
                     $$ begin raise exception 'stuck'; end $$;
                 create trigger fail before delete or update on sessions for each row
                     when (old.tenant_id = 'a-stuck') execute function fail()";
    client.batch_execute(stuck).await.unwrap();

    for tenant in ["a-stuck", "b"] {
        delete(&operator.admin, tenant).await;
    }
    until("the other deletion to be done", || async {
        time_passes(&client).await;
        let read = deletion(&operator.admin, "b").await.unwrap();
        read.done_time.is_some()
    })
    .await;
    let read = deletion(&operator.admin, "a-stuck").await.unwrap();
    assert_eq!(read.done_time, None);
    assert_eq!(rows_of(&client, "a-stuck").await["sessions"], 1);
    client.batch_execute("drop trigger fail on sessions").await.unwrap();
    until("the deletion to go on", || async {
        time_passes(&client).await;
        let read = deletion(&operator.admin, "a-stuck").await.unwrap();
        read.done_time.is_some()
    })
    .await;
}

#[tokio::test]
async fn a_deletion_empties_every_table_that_has_a_tenant() {
    let client = TestDatabase::new().await.client().await;
    let mut emptied = tables();
    emptied.push(STUB);
    emptied.sort_unstable();
    let mut owned = tables_of_tenants(&client).await;
    owned.sort_unstable();
    assert_eq!(emptied, owned);
}

async fn sessions_left(client: &Client) -> i64 {
    let sql = "select count(*) from sessions where tenant_id = 'default'";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn admin(served: &Served) -> AdminServiceClient<tonic::transport::Channel> {
    AdminServiceClient::new(served.channel().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_goes_on_in_another_process_when_its_own_is_killed() {
    const SESSIONS: usize = 40;
    let database = TestDatabase::new().await;
    let mut client = database.client().await;
    let place = Place::new(SHORT_LEASE);
    let first = place.serve_over(&database).await;
    let sessions = first.sessions().await;
    for n in 0..SESSIONS {
        let request = pb::CreateSessionRequest {
            session: Some(pb::Session { session_id: format!("s-{n:02}"), ..pb::Session::default() }),
            ..pb::CreateSessionRequest::default()
        };
        sessions.clone().create_session(request).await.unwrap();
    }
    let watching = database.client().await;
    // One session cannot be deleted yet, which blocks the process in the middle.
    let held = client.transaction().await.unwrap();
    let lock = "select 1 from sessions where session_id = 's-20' for key share";
    held.execute(lock, &[]).await.unwrap();
    let begun = delete(&admin(&first).await, "default").await;
    until("the first process to be in the middle", || async { sessions_left(&watching).await <= 20 }).await;
    let second = place.serve_over(&database).await;
    first.kill_9().await;
    held.rollback().await.unwrap();

    let admin = admin(&second).await;
    until("the deletion to be done", || async {
        time_passes(&watching).await;
        let read = deletion(&admin, "default").await.unwrap();
        read.done_time.is_some()
    })
    .await;
    let done = deletion(&admin, "default").await.unwrap();
    assert_eq!(done.sessions, i64::try_from(SESSIONS).unwrap());
    let left = rows_of(&watching, "default").await;
    assert_eq!(left, BTreeMap::from([(STUB.to_owned(), 1)]));
    assert!(begun.request_time.is_some());
    second.stop().await;
}
