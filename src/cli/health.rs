//! `contextd health`: checks a server's health, for probes and scripts.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use contextd_client::Server;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::output::print_line;
use crate::settings::parse_duration;

/// The header with the reason why a server is not ready.
const NOT_READY: &str = "contextd-not-ready";

/// Check a server's health: exit code 0 if it is serving, 1 if not.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    server: Server,
    /// Full name of the gRPC service to check [no default: the server as a whole]
    #[arg(long, value_name = "NAME", env = "CONTEXTD_SERVICE", hide_env_values = true)]
    service: Option<String>,
    /// Timeout of the request.
    #[arg(long, value_name = "DURATION", env = "CONTEXTD_TIMEOUT", hide_env_values = true, default_value = "5s", value_parser = parse_duration)]
    timeout: Duration,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { server, service, timeout } = args;
    let address = server.address();
    let (status, reason) = tokio::time::timeout(timeout, status_of(&server, service.unwrap_or_default()))
        .await
        .with_context(|| format!("{address} did not respond within {timeout:?}"))??;
    print_line(status.as_str_name())?;
    if let Some(reason) = reason.filter(|_| status != ServingStatus::Serving) {
        eprintln!("contextd: {reason}");
    }
    Ok(if status == ServingStatus::Serving { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The server's health status, and the reason why it is not ready if it sent one.
async fn status_of(server: &Server, service: String) -> anyhow::Result<(ServingStatus, Option<String>)> {
    let address = server.address();
    let endpoint = server.endpoint()?;
    let channel = endpoint.connect().await.with_context(|| format!("cannot reach {address}"))?;
    let answer = HealthClient::new(channel).check(HealthCheckRequest { service }).await;
    let answer = answer.with_context(|| format!("no health response from {address}"))?;
    let reason = answer.metadata().get(NOT_READY).and_then(|reason| reason.to_str().ok()).map(str::to_owned);
    Ok((answer.into_inner().status(), reason))
}
