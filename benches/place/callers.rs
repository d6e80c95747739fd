//! Clients of a server: tenants with API keys, their connections, and the turns that they run.

#![allow(dead_code, reason = "each benchmark has a copy of its own, and uses some of it")]

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use contextd::{
    auth::secret,
    model::derive::hex,
    pb::{self, turn_service_client::TurnServiceClient},
};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tonic::{
    Request, Status,
    metadata::MetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use crate::place::turn;

/// Number of connections over which calls are distributed.
pub(crate) const CONNECTIONS: usize = 8;

/// A connection that sends an API key.
pub(crate) type Calling = InterceptedService<Channel, Key>;

/// The API key of a tenant. With `None`, calls send no key.
#[derive(Clone, Default)]
pub(crate) struct Key(Option<String>);

impl Interceptor for Key {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(key) = &self.0 {
            let value = MetadataValue::try_from(format!("Bearer {key}")).unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

/// Writes a file with a key for each tenant. Returns its path and the keys.
pub(crate) fn keys<const N: usize>(place: &TempDir, tenants: [&str; N]) -> (PathBuf, [Key; N]) {
    let path = place.path().join("keys.toml");
    let mut entries = String::new();
    let keys = tenants.map(|tenant| {
        let (key, hash) = secret::generate().unwrap();
        let hash = hex(&hash.0);
        entries += &format!("[[keys]]\nname = '{tenant}'\ntenant = '{tenant}'\naccess = 'write'\nsha256 = '{hash}'\n");
        Key(Some(key))
    });
    fs::write(&path, entries).unwrap();
    (path, keys)
}

/// Opens connections that send a tenant's key.
pub(crate) async fn connect(endpoint: Endpoint, key: &Key) -> Vec<Calling> {
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        let channel = endpoint.connect().await.unwrap();
        channels.push(InterceptedService::new(channel, key.clone()));
    }
    channels
}

/// Runs a turn of a new session to its end. Returns the time to its first event.
pub(crate) async fn run(channel: Calling) -> Result<Duration, Status> {
    timed(channel, turn(&uuid::Uuid::now_v7().to_string())).await
}

/// Runs the given turn to its end. Returns the time to its first event.
pub(crate) async fn timed(channel: Calling, request: pb::ExecuteTurnRequest) -> Result<Duration, Status> {
    let begun = Instant::now();
    let mut turns = TurnServiceClient::new(channel);
    let mut stream = turns.execute_turn(request).await?.into_inner();
    let mut first = None;
    while let Some(message) = stream.message().await? {
        let payload = message.event.and_then(|event| event.payload);
        if matches!(payload, Some(pb::event::Payload::TextDelta(_))) {
            first.get_or_insert_with(|| begun.elapsed());
        }
    }
    Ok(first.unwrap_or_default())
}

/// Turns per second that this number of clients complete, each running one turn after another.
pub(crate) async fn closed_loop(channels: &[Calling], clients: usize, length: Duration) -> f64 {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for client in 0..clients {
        let channel = channels[client % CONNECTIONS].clone();
        tasks.spawn(async move {
            let mut turns = 0_u32;
            while begun.elapsed() < length {
                run(channel.clone()).await.unwrap();
                turns += 1;
            }
            turns
        });
    }
    let turns: u32 = tasks.join_all().await.iter().sum();
    f64::from(turns) / begun.elapsed().as_secs_f64()
}
