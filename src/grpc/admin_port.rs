//! The admin port: health for probes, in plain text and without credentials, also where the API
//! itself speaks TLS. Over gRPC as on the API's port, and over HTTP as `/livez` and `/readyz`.

use std::{future::Future, time::Duration};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::net::TcpListener;
use tonic::{service::Routes, transport::Server};
use tonic_health::pb::health_server::{Health, HealthServer};

use super::{
    connection::{self, Bounds},
    gate::Gate,
    readiness::Readiness,
};

/// What probes need, and not more.
const BOUNDS: Bounds = Bounds {
    most: 100,
    patience: Duration::from_secs(10),
};

/// Serves until `stop` comes. That it cannot is logged: the API goes on without it.
pub async fn serve(
    listener: TcpListener,
    health: HealthServer<impl Health>,
    gate: Gate,
    stop: impl Future<Output = ()>,
) {
    let pages = Router::new()
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readyz))
        .with_state(gate);
    let served = Server::builder()
        .accept_http1(true)
        .add_routes(Routes::from(pages).add_service(health))
        .serve_with_incoming_shutdown(connection::accept(listener, None, BOUNDS), stop)
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
