//! The admin port: health checks for probes, and metrics. Plain text and without credentials, even if the API
//! uses TLS. Health is available over gRPC, as on the API port, and over HTTP as `/livez` and `/readyz`.
//! Metrics are at `/metrics`.

use std::{future::Future, time::Duration};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use http::{HeaderName, header::CONTENT_TYPE};
use tokio::net::TcpListener;
use tonic::{service::Routes, transport::Server};
use tonic_health::pb::health_server::{Health, HealthServer};

use super::{connection, gate::Gate, middleware::With, readiness::Readiness};
use crate::{config::ServerConfig, telemetry::Telemetry};

/// Longer than a process runs.
const NO_TIMEOUT: Duration = Duration::from_hours(24 * 365);

/// Enough for probes. At the limit, a new connection displaces the oldest one, of the same peer or of all
/// peers, so that connections left open cannot lock probes out.
fn connections() -> ServerConfig {
    ServerConfig {
        max_connections: 100,
        handshake_timeout: Duration::from_secs(10),
        // HTTP/1 has no frames, and calls are not counted on this port.
        max_control_frames_per_second: u32::MAX,
        max_connection_idle: NO_TIMEOUT,
        // Callers are not identified on this port.
        unauthenticated_connection_timeout: NO_TIMEOUT,
        max_unauthenticated_connections_per_peer: 25,
        ..ServerConfig::default()
    }
}
/// State of the HTTP pages.
#[derive(Debug)]
pub struct Pages {
    pub gate: Gate,
    pub telemetry: Telemetry,
}

/// Serves until `stop` fires. An error is logged and ends it early; the caller then ends the process, because
/// probes get no response.
pub async fn serve(
    listener: TcpListener,
    health: HealthServer<impl Health>,
    pages: Pages,
    stop: impl Future<Output = ()>,
) {
    let Pages { gate, telemetry } = pages;
    let explains = gate.clone();
    let incoming = connection::accept(listener, None, connections(), telemetry.metrics().clone());
    let pages = Router::new()
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readyz))
        .with_state(gate)
        .route("/metrics", get(metrics).with_state(telemetry));
    let served = Server::builder()
        .accept_http1(true)
        // Health checks are answered with the reason for not being ready, as on the API port.
        .layer(With(explains))
        .add_routes(Routes::from(pages).add_service(health))
        .serve_with_incoming_shutdown(incoming, stop)
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the admin port stopped serving");
    }
}

/// Whether the server takes requests. If not, the body has the reason.
async fn readyz(State(gate): State<Gate>) -> (StatusCode, String) {
    let why = match gate.readiness() {
        Readiness::Ready => return (StatusCode::OK, "ready\n".to_owned()),
        Readiness::Unready(why) => why,
        Readiness::Closed(closed) => closed.to_string(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
}

/// All metrics in the Prometheus text format.
async fn metrics(State(telemetry): State<Telemetry>) -> ([(HeaderName, &'static str); 1], String) {
    let format = (CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    ([format], telemetry.scrape())
}
