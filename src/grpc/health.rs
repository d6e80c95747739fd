//! Health reporting: liveness reflects this process, readiness also the database and the drain.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tonic_health::{ServingStatus, server::HealthReporter};

use super::{
    gate::Gate,
    readiness::{ClosedReason, Readiness},
};
use crate::{codec::description::DESCRIPTOR_POOL, store, turn::Engine};

/// Service names that report readiness, in addition to those of this API. The empty name means the server as a whole.
const READINESS: [&str; 2] = ["", "readiness"];
/// The package of this API.
const PACKAGE: &str = "contextd.v1";
/// Service name that reports liveness, independent of the database.
const LIVENESS: &str = "liveness";
/// How often the database is checked.
const PERIOD: Duration = Duration::from_secs(1);

/// Reports NOT_SERVING for every service name except liveness.
pub async fn report_starting(health: &HealthReporter) {
    health.set_service_status(LIVENESS, ServingStatus::Serving).await;
    report_readiness(health, false).await;
}

/// Keeps the reported readiness in line with the database, until a drain reports NOT_SERVING permanently.
pub async fn watch_database(health: HealthReporter, gate: Gate, engine: Arc<Engine>, stopping: CancellationToken) {
    let mut serving = false;
    while !stopping.is_cancelled() {
        let asked = tokio::time::timeout(PERIOD * 5, engine.store().ping(PERIOD * 2));
        let answer = tokio::select! {
            () = stopping.cancelled() => break,
            answer = asked => answer,
        };
        let now = match answer {
            Ok(Ok(())) => Readiness::Ready,
            Ok(Err(error)) => Readiness::Unready(reason(&error)),
            Err(_) => Readiness::Unready(ClosedReason::Database.to_string()),
        };
        let alive = now == Readiness::Ready;
        if alive != serving {
            let why = match &now {
                Readiness::Unready(why) => Some(why.as_str()),
                Readiness::Ready | Readiness::Closed(_) => None,
            };
            tracing::info!(ready = alive, why, "readiness changed");
            report_readiness(&health, alive).await;
            serving = alive;
        }
        if now != gate.readiness() {
            gate.set(now);
        }
        tokio::select! {
            () = stopping.cancelled() => {}
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
    gate.set(Readiness::Unready("the server is shutting down".to_owned()));
    report_readiness(&health, false).await;
}

/// The reason why the database cannot be used.
fn reason(error: &store::Error) -> String {
    match error.outage() {
        Some(outage) => outage.to_string(),
        None => ClosedReason::Database.to_string(),
    }
}

async fn report_readiness(health: &HealthReporter, serving: bool) {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    let services = DESCRIPTOR_POOL.services().filter(|service| service.package_name() == PACKAGE);
    let names = services.map(|service| service.full_name().to_owned());
    for service in READINESS.map(str::to_owned).into_iter().chain(names) {
        health.set_service_status(service, status).await;
    }
}
