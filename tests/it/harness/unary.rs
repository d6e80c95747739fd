//! Unary calls without retries to any replica that is ready, as a load balancer sends them.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use contextd::pb::{self, session_service_client::SessionServiceClient};
use tokio::time::{MissedTickBehavior, interval};
use tonic::transport::Channel;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use super::process::try_channel;

/// Creates sessions and reads them, one call after another and not faster than `pace`, until `enough` holds. Fails with
/// the first call that fails. Returns the number of calls that each replica has answered, without health checks.
pub async fn unary_calls(name: &str, addresses: [SocketAddr; 2], pace: Duration, enough: &AtomicBool) -> [usize; 2] {
    let mut answered = [0; 2];
    let mut channels = [None, None];
    let mut pace = interval(pace);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for n in (0..2).cycle() {
        if enough.load(Ordering::Relaxed) {
            break;
        }
        pace.tick().await;
        channels[n] = ready(channels[n].take(), addresses[n]).await;
        if let Some(channel) = &channels[n] {
            unary_call(channel, &format!("{name}-{n}-{}", answered[n] / 2), answered[n]).await;
            answered[n] += 1;
        }
    }
    answered
}

/// A connection to a replica that reports it is ready.
async fn ready(channel: Option<Channel>, address: SocketAddr) -> Option<Channel> {
    let channel = match channel {
        Some(channel) => channel,
        None => try_channel(address).await.ok()?,
    };
    let service = "readiness".to_owned();
    let health = HealthClient::new(channel.clone()).check(HealthCheckRequest { service }).await;
    let ready = i32::from(ServingStatus::Serving);
    health.is_ok_and(|health| health.get_ref().status == ready).then_some(channel)
}

/// Creates a session, or reads the one created before.
async fn unary_call(channel: &Channel, session_id: &str, number: usize) {
    let mut sessions = SessionServiceClient::new(channel.clone());
    let session_id = session_id.to_owned();
    let answer = if number.is_multiple_of(2) {
        let session = pb::Session { session_id: session_id.clone(), ..Default::default() };
        sessions
            .create_session(pb::CreateSessionRequest { session: Some(session), request_id: String::new() })
            .await
            .map(drop)
    } else {
        let session_id = session_id.clone();
        sessions.get_session(pb::GetSessionRequest { session_id }).await.map(drop)
    };
    answer.unwrap_or_else(|status| panic!("call {number}, of {session_id}: {status}"));
}
