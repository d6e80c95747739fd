//! The admin port: health for probes and metrics, in plain text and without credentials, also where the
//! API itself speaks TLS. Health over gRPC as on the API's port, and over HTTP as `/livez` and `/readyz`;
//! metrics as `/metrics`.

use std::{future::Future, time::Duration};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use http::{HeaderName, header::CONTENT_TYPE};
use tokio::net::TcpListener;
use tonic::{service::Routes, transport::Server};
use tonic_health::pb::health_server::{Health, HealthServer};

use super::{
    connection::{self, Bounds},
    gate::Gate,
    readiness::Readiness,
};
use crate::telemetry::Telemetry;

/// What probes need, and not more. Beyond it a new connection takes the place of the oldest, of its peer
/// or of all, so that connections that stay open keep no probe out.
const BOUNDS: Bounds = Bounds {
    most: 100,
    patience: Duration::from_secs(10),
    // HTTP/1 has no frames, and no calls are counted here.
    control_frames: u32::MAX,
    idle: FOR_EVER,
    // No caller is known here.
    stranger: FOR_EVER,
    strangers_per_peer: 25,
};
/// Longer than a process runs.
const FOR_EVER: Duration = Duration::from_hours(24 * 365);

/// What the pages show.
#[derive(Debug)]
pub struct Pages {
    /// How the server stands.
    pub gate: Gate,
    /// What it measures.
    pub telemetry: Telemetry,
}

/// Serves until `stop` fires. An error is logged and ends it early; the caller then ends the process, since
/// probes get no answer.
pub async fn serve(
    listener: TcpListener,
    health: HealthServer<impl Health>,
    pages: Pages,
    stop: impl Future<Output = ()>,
) {
    let Pages { gate, telemetry } = pages;
    let explains = gate.clone();
    let incoming = connection::accept(listener, None, BOUNDS, telemetry.metrics().clone());
    let pages = Router::new()
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readyz))
        .with_state(gate)
        .route("/metrics", get(metrics).with_state(telemetry));
    let served = Server::builder()
        .accept_http1(true)
        // Checks of health are told why the server is not ready, as on the port of the API.
        .layer(explains)
        .add_routes(Routes::from(pages).add_service(health))
        .serve_with_incoming_shutdown(incoming, stop)
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the admin port is not served any more");
    }
}

/// Whether the server takes requests, and if not, why.
async fn readyz(State(gate): State<Gate>) -> (StatusCode, String) {
    let why = match gate.readiness() {
        Readiness::Ready => return (StatusCode::OK, "ready\n".to_owned()),
        Readiness::Unready(why) => why,
        Readiness::Closed(closed) => closed.to_string(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
}

/// All metrics, as Prometheus reads them.
async fn metrics(State(telemetry): State<Telemetry>) -> ([(HeaderName, &'static str); 1], String) {
    let format = (CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    ([format], telemetry.scrape())
}
