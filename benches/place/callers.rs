//! Callers of a server: tenants with API keys, their connections, and clients that run turns.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use contextd::{auth::secret, model::derive::hex, pb::turn_service_client::TurnServiceClient};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tonic::{
    Request, Status,
    metadata::MetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use crate::place::turn;

/// Connections that calls are spread over.
pub(crate) const CONNECTIONS: usize = 8;

/// A connection that sends a key.
pub(crate) type Calling = InterceptedService<Channel, Key>;

/// The key of a tenant; none calls without one.
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

/// A file with a key of each tenant, and the keys.
pub(crate) fn keys<const N: usize>(place: &TempDir, tenants: [&str; N]) -> (PathBuf, [Key; N]) {
    let path = place.path().join("keys.toml");
    let mut entries = String::new();
    let keys = tenants.map(|tenant| {
        let (key, hash) = secret::generate().unwrap();
        let hash = hex(&hash.0);
        entries += &format!(
            "[[keys]]\nname = '{tenant}'\ntenant = '{tenant}'\naccess = 'write'\nsha256 = '{hash}'\n"
        );
        Key(Some(key))
    });
    fs::write(&path, entries).unwrap();
    (path, keys)
}

/// Connections as a tenant.
pub(crate) async fn connect(endpoint: Endpoint, key: &Key) -> Vec<Calling> {
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        let channel = endpoint.connect().await.unwrap();
        channels.push(InterceptedService::new(channel, key.clone()));
    }
    channels
}

/// A turn of a new session, to its end. Gives how long its first event took.
pub(crate) async fn run(channel: Calling) -> Result<Duration, Status> {
    let request = turn(&uuid::Uuid::now_v7().to_string());
    let begun = Instant::now();
    let mut turns = TurnServiceClient::new(channel);
    let mut stream = turns.execute_turn(request).await?.into_inner();
    let mut first = None;
    while let Some(message) = stream.message().await? {
        let payload = message.event.and_then(|event| event.payload);
        if matches!(payload, Some(contextd::pb::event::Payload::TextDelta(_))) {
            first.get_or_insert_with(|| begun.elapsed());
        }
    }
    Ok(first.unwrap_or_default())
}

/// Turns per second that so many clients get finished, each one after another.
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
