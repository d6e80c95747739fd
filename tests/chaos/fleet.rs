//! Three replicas, each a process with separate links to PostgreSQL, to its clients and to the model service.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::json;
use tokio::sync::Mutex;

use crate::{
    harness::{
        TestDatabase,
        process::{Place, Served},
        proxy::{Link, Target, Traffic},
    },
    model::{DIALECTS, SUMMARISER, Service},
};

pub(crate) const REPLICAS: usize = 3;

/// Maximum attempts to start a replica.
const STARTS: usize = 5;

const SETTINGS: &str = "
[turn]
lease_ttl = '1s'
poll_interval = '100ms'
max_takeovers = 100
max_call_attempts = 20
retry_base_delay = '20ms'
retry_max_delay = '200ms'
[database]
statement_timeout = '2s'
connect_timeout = '1s'
acquire_timeout = '2s'
";

/// A replica and its links.
pub(crate) struct Replica {
    /// Between its clients and the replica.
    pub(crate) clients: Link,
    /// Between the replica and PostgreSQL.
    pub(crate) database: Link,
    /// Between the replica and the model service.
    pub(crate) model: Link,
    place: Place,
    reached: TestDatabase,
    served: Arc<Mutex<Option<Served>>>,
    alive: AtomicBool,
}

/// All replicas.
pub(crate) struct Fleet {
    pub(crate) replicas: Vec<Arc<Replica>>,
}

impl Fleet {
    /// Starts all replicas.
    pub(crate) async fn start(database: &TestDatabase, service: &Service) -> Self {
        let mut replicas = Vec::new();
        for number in 0..REPLICAS {
            let link = Link::to_database(database).await;
            let model = Link::to(Target::Tcp(service.address)).await;
            let place = Place::new(&settings(number, model.address))
                .script("chaos", &script())
                .script(SUMMARISER, &summariser());
            let reached = link.database(database);
            let served = place.serve_over(&reached).await;
            replicas.push(Arc::new(Replica {
                clients: Link::to(Target::Tcp(served.address)).await,
                database: link,
                model,
                place,
                reached,
                served: Arc::new(Mutex::new(Some(served))),
                alive: AtomicBool::new(true),
            }));
        }
        Self { replicas }
    }

    /// The number of running replicas.
    pub(crate) fn alive(&self) -> usize {
        self.replicas.iter().filter(|replica| replica.is_alive()).count()
    }

    /// Restores every link and waits until every replica serves.
    pub(crate) async fn heal(&self) {
        for replica in &self.replicas {
            for link in [&replica.clients, &replica.database, &replica.model] {
                link.all_traffic(Traffic::Flows);
                link.open();
            }
            let served = replica.served.lock().await;
            assert!(served.is_some(), "a replica did not restart");
        }
    }
}

impl Replica {
    /// Whether the replica is running.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// Starts the replica as a supervisor does: again if it fails, for example because its database link is cut.
    async fn start(&self) -> Served {
        let mut failures = Vec::new();
        while failures.len() < STARTS {
            match self.place.try_serve_over(&self.reached).await {
                Ok(served) => return served,
                Err(failure) => failures.push(failure),
            }
        }
        panic!("{failures:#?}")
    }

    /// Kills the replica with SIGKILL and restarts it in the background.
    pub(crate) async fn kill(self: &Arc<Self>) {
        let mut served = Arc::clone(&self.served).lock_owned().await;
        self.alive.store(false, Ordering::Relaxed);
        if let Some(served) = served.take() {
            assert!(!served.log_text().contains("panicked"), "{}", served.log_text());
            served.kill_9().await;
        }
        // The network of a process that is gone closes its connections, also those that fell silent.
        self.database.cut();
        let replica = Arc::clone(self);
        tokio::spawn(async move {
            let fresh = replica.start().await;
            replica.clients.lead_to(Target::Tcp(fresh.address));
            *served = Some(fresh);
            replica.alive.store(true, Ordering::Relaxed);
        });
    }
}

fn settings(number: usize, model: SocketAddr) -> String {
    let provider = |dialect: &&str| {
        format!(
            "[providers.{dialect}]\nkind = 'openai'\ndialect = '{dialect}'\napi_key = 'k'\nbase_url = 'http://{model}/{number}/{dialect}/v1'\n\
             stall_timeout = '2s'\n"
        )
    };
    let providers: String = DIALECTS.iter().map(provider).collect();
    format!("{SETTINGS}{providers}")
}

/// A model that produces text, and calls both tools if they are offered and the user requests it.
fn script() -> serde_json::Value {
    let words = "one two three four five six seven eight nine ten eleven twelve";
    json!({ "steps": [
        { "when": { "call": 0, "user_contains": "tools=2" }, "say": [
            { "text": words, "delay_ms": 15 }, { "tool_call": { "name": "left" } }, { "tool_call": { "name": "right" } }
        ] },
        { "when": { "call": 0, "user_contains": "tools=1" }, "say": [
            { "text": words, "delay_ms": 15 }, { "tool_call": { "name": "left" } }
        ] },
        { "when": { "otherwise": true }, "say": [{ "text": words, "delay_ms": 25 }] }
    ] })
}

/// A model that writes a summary; the first call in each process fails.
fn summariser() -> serde_json::Value {
    json!({ "steps": [
        { "say": [{ "error": { "kind": "broken", "message": "once", "times": 1 } }, { "text": "they talked and looked", "delay_ms": 20 }] }
    ] })
}
