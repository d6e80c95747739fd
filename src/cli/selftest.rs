//! `contextd selftest`: uses a session from creation to deletion, to test an installation.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use contextd_client::{Connection, Server, describe};
use uuid::Uuid;

use super::output::print_line;
use crate::pb::{
    self, event::Payload, session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient,
};
use crate::settings::parse_duration;

/// Create a session, run a turn, read the messages and delete the session: exit code 0 if all of it works.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Model of the session, e.g. scripted/demo, which is free of charge [default: the server's]
    #[arg(long, value_name = "PROVIDER/MODEL", env = "CONTEXTD_MODEL", hide_env_values = true)]
    model: Option<String>,
    #[command(flatten)]
    server: Server,
    /// Timeout of the whole test.
    #[arg(long, value_name = "DURATION", env = "CONTEXTD_TIMEOUT", hide_env_values = true, default_value = "1m", value_parser = parse_duration)]
    timeout: Duration,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { model, server, timeout } = args;
    tokio::time::timeout(timeout, check(&server, model.unwrap_or_default()))
        .await
        .with_context(|| format!("the test of {} did not finish within {timeout:?}", server.address()))??;
    Ok(ExitCode::SUCCESS)
}

async fn check(server: &Server, model: String) -> anyhow::Result<()> {
    let channel = server.connect().await?;
    let session_id = format!("selftest-{}", Uuid::now_v7());
    let mut sessions = SessionServiceClient::new(channel.clone());

    let start = Instant::now();
    let request = pb::CreateSessionRequest {
        session: Some(pb::Session { session_id: session_id.clone(), model, ..pb::Session::default() }),
        request_id: String::new(),
    };
    sessions.create_session(request).await.map_err(refused)?;
    done(&format!("created session {session_id}"), start)?;

    let used = use_session(channel, &session_id).await;

    // Delete the session even after a failure.
    let start = Instant::now();
    let request = pb::DeleteSessionRequest { session_id: session_id.clone(), ..pb::DeleteSessionRequest::default() };
    let deleted = sessions.delete_session(request).await.map_err(refused);
    used?;
    deleted?;
    done("deleted the session", start)
}

/// Runs a turn, then reads its messages.
async fn use_session(channel: Connection, session_id: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    let request = pb::ExecuteTurnRequest {
        session_id: session_id.to_owned(),
        request_id: Uuid::now_v7().to_string(),
        input: Some(pb::InputMessage {
            parts: vec![pb::Part { content: Some(pb::part::Content::Text("Hello".to_owned())), ..pb::Part::default() }],
            ..pb::InputMessage::default()
        }),
        ..pb::ExecuteTurnRequest::default()
    };
    let mut turns = TurnServiceClient::new(channel.clone());
    let stream = turns.execute_turn(request).await.map_err(refused)?;
    turn_completed(stream.into_inner()).await?;
    done("ran a turn", start)?;

    let start = Instant::now();
    let request = pb::ListMessagesRequest { session_id: session_id.to_owned(), ..pb::ListMessagesRequest::default() };
    let listed = SessionServiceClient::new(channel).list_messages(request).await.map_err(refused)?;
    let count = listed.into_inner().messages.len();
    if count < 2 {
        bail!("the session has {count} messages; expected at least 2");
    }
    done(&format!("read {count} messages"), start)
}

/// Reads the events of the turn until the turn ends. Returns an error unless the turn completed.
async fn turn_completed(mut stream: tonic::Streaming<pb::ExecuteTurnResponse>) -> anyhow::Result<()> {
    while let Some(response) = stream.message().await.map_err(refused)? {
        let payload = response.event.and_then(|event| event.payload);
        if let Some(Payload::TurnCompleted(_)) = payload {
            return Ok(());
        }
        if let Some(Payload::TurnFailed(failed)) = payload {
            let error = failed.failure.unwrap_or_default();
            bail!("the turn failed: {} ({})", error.message, error.reason().as_str_name());
        }
        if let Some(Payload::TurnCancelled(_)) = payload {
            bail!("the turn was cancelled");
        }
    }
    bail!("the stream ended before the turn ended")
}

fn done(what: &str, start: Instant) -> anyhow::Result<()> {
    print_line(format_args!("ok: {what} ({} ms)", start.elapsed().as_millis()))
}

fn refused(status: tonic::Status) -> anyhow::Error {
    anyhow::anyhow!("{}", describe(&status))
}
