//! `contextd context`: shows what occupies a session's context window. The server formats the text
//! (`grpc/stats_text.rs`).

use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use contextd_client::{Server, describe};

use super::output::print_line;
use crate::pb::{self, context_service_client::ContextServiceClient};
use crate::settings::parse_duration;

/// Show what occupies a session's context window, and how far it is from compaction.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session.
    session: String,
    /// Compute the statistics for this model [no default: the session's model]
    #[arg(long, value_name = "PROVIDER/MODEL", env = "CONTEXTD_MODEL", hide_env_values = true)]
    model: Option<String>,
    #[command(flatten)]
    server: Server,
    /// Timeout of the request.
    #[arg(long, value_name = "DURATION", env = "CONTEXTD_TIMEOUT", hide_env_values = true, default_value = "5s", value_parser = parse_duration)]
    timeout: Duration,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { session, model, server, timeout } = args;
    let request = pb::GetContextStatsRequest {
        session_id: session,
        model: model.unwrap_or_default(),
        format: pb::StatsFormat::Text.into(),
    };
    let answer = tokio::time::timeout(timeout, stats(&server, request))
        .await
        .with_context(|| format!("{} did not respond within {timeout:?}", server.address()))??;
    let colours = stdout().is_terminal();
    for line in answer.text.lines() {
        print_line(if colours { coloured(line) } else { line.to_owned() })?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn stats(server: &Server, request: pb::GetContextStatsRequest) -> anyhow::Result<pb::GetContextStatsResponse> {
    let channel = server.connect().await?;
    let answer = ContextServiceClient::new(channel).get_context_stats(request).await;
    answer.map(tonic::Response::into_inner).map_err(|status| anyhow::anyhow!("{}", describe(&status)))
}

/// Colours the used, free and reserved parts of the bar. Other lines are not changed.
fn coloured(line: &str) -> String {
    let Some(inside) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) else {
        return line.to_owned();
    };
    let used = inside.trim_end_matches(['.', 'x']);
    let rest = inside.strip_prefix(used).unwrap_or_default();
    let free = rest.trim_end_matches('x');
    let buffer = rest.strip_prefix(free).unwrap_or_default();
    // Green, yellow or red, by how full the window is.
    let hue = match used.len() * 100 / inside.len().max(1) {
        0..60 => 32,
        60..80 => 33,
        _ => 31,
    };
    format!("[\x1b[{hue}m{used}\x1b[0m\x1b[2m{free}\x1b[0m\x1b[35m{buffer}\x1b[0m]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_context_bar_is_coloured() {
        assert_eq!(coloured("[##..xx]"), "[\x1b[32m##\x1b[0m\x1b[2m..\x1b[0m\x1b[35mxx\x1b[0m]");
        assert_eq!(coloured("[#######x]"), "[\x1b[31m#######\x1b[0m\x1b[2m\x1b[0m\x1b[35mx\x1b[0m]");
        assert_eq!(coloured("  Free  1"), "  Free  1");
    }
}
