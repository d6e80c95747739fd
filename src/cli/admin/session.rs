//! `contextd admin session`: lists sessions and shows which replica owns them and what they wait for.

use clap::Subcommand;
use contextd_client::{Connection, Server, response_or_error};

use crate::{
    cli::output::print_line,
    pb::{self, session_service_client::SessionServiceClient},
};

#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// List the tenant's sessions, most recently used first: id, state, queued messages, last use, and the replica
    /// that runs the session's turn, with the end of its lease.
    List {
        #[command(flatten)]
        server: Server,
        /// Only sessions in this state: idle, running or awaiting-tools; may be repeated [no default: any]
        #[arg(
            long = "state",
            value_name = "STATE",
            env = "CONTEXTD_STATE",
            hide_env_values = true,
            value_delimiter = ',',
            value_parser = state_of
        )]
        states: Vec<pb::SessionState>,
        /// Only sessions with this metadata entry; may be repeated [no default: any]
        #[arg(
            long,
            value_name = "KEY=VALUE",
            env = "CONTEXTD_METADATA",
            hide_env_values = true,
            value_parser = entry_of
        )]
        metadata: Vec<(String, String)>,
        /// Only sessions with an id or title that begins with this [no default: any]
        #[arg(long, value_name = "TEXT", env = "CONTEXTD_PREFIX", hide_env_values = true)]
        prefix: Option<String>,
        /// Maximum number of sessions to list.
        #[arg(long, value_name = "SESSIONS", env = "CONTEXTD_MOST", hide_env_values = true, default_value = "100")]
        most: usize,
    },
    /// Show a session: its state, owner and metadata.
    Show {
        #[command(flatten)]
        server: Server,
        /// The id of the session.
        session_id: String,
    },
}

fn state_of(name: &str) -> Result<pb::SessionState, String> {
    match name {
        "idle" => Ok(pb::SessionState::Idle),
        "running" => Ok(pb::SessionState::Running),
        "awaiting-tools" => Ok(pb::SessionState::AwaitingTools),
        _ => Err("must be idle, running or awaiting-tools".to_owned()),
    }
}

fn name_of(state: pb::SessionState) -> &'static str {
    match state {
        pb::SessionState::Unspecified => "unknown",
        pb::SessionState::Idle => "idle",
        pb::SessionState::Running => "running",
        pb::SessionState::AwaitingTools => "awaiting-tools",
    }
}

fn entry_of(entry: &str) -> Result<(String, String), String> {
    let (key, value) = entry.split_once('=').ok_or("must be KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

pub(super) async fn run(action: Action) -> anyhow::Result<()> {
    match action {
        Action::List { server, states, metadata, prefix, most } => {
            let filter = pb::SessionFilter {
                states: states.into_iter().map(i32::from).collect(),
                metadata: metadata.into_iter().collect(),
                text_prefix: prefix.unwrap_or_default(),
                ..Default::default()
            };
            list(&mut client(&server).await?, &filter, most).await
        }
        Action::Show { server, session_id } => show(&mut client(&server).await?, session_id).await,
    }
}

async fn client(server: &Server) -> anyhow::Result<SessionServiceClient<Connection>> {
    Ok(SessionServiceClient::new(server.connect().await?))
}

async fn list(
    client: &mut SessionServiceClient<Connection>,
    filter: &pb::SessionFilter,
    most: usize,
) -> anyhow::Result<()> {
    let mut left = most;
    let mut page_token = String::new();
    while left > 0 {
        let request = pb::ListSessionsRequest {
            page_size: i32::try_from(left.min(1000))?,
            page_token,
            filter: Some(filter.clone()),
        };
        let page = response_or_error(client.list_sessions(request).await)?;
        left -= page.sessions.len().min(left);
        for session in &page.sessions {
            print_line(line(session))?;
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    Ok(())
}

fn line(session: &pb::Session) -> String {
    let used = session.update_time.map(|at| at.to_string());
    let held = held(session).map(|held| format!("  {held}"));
    format!(
        "{}  {:<14}  {} queued  {}{}",
        session.session_id,
        name_of(session.state()),
        session.queued_count,
        used.unwrap_or_default(),
        held.unwrap_or_default()
    )
}

/// The replica that runs the turn, and when its lease expires.
fn held(session: &pb::Session) -> Option<String> {
    if session.holder.is_empty() {
        return None;
    }
    let until = session.lease_expire_time?;
    Some(format!("held by {} until {until}", session.holder))
}

async fn show(client: &mut SessionServiceClient<Connection>, session_id: String) -> anyhow::Result<()> {
    let request = pb::GetSessionRequest { session_id };
    let answer = response_or_error(client.get_session(request).await)?;
    let session = answer.session.unwrap_or_default();
    let shown = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
    let held = held(&session).unwrap_or_default();
    let used = session.update_time.map(|at| at.to_string());
    let lines = [
        ("session", session.session_id.clone()),
        ("state", name_of(session.state()).to_owned()),
        ("turn", shown(&session.current_turn_id)),
        ("lease", shown(&held)),
        ("model", session.model.clone()),
        ("policy", session.policy.clone()),
        ("last seq", session.last_seq.to_string()),
        ("queued", session.queued_count.to_string()),
        ("compactions", session.compaction_count.to_string()),
        ("updated", used.unwrap_or_default()),
    ];
    for (name, value) in lines {
        print_line(format_args!("{name:<12}{value}"))?;
    }
    for (key, value) in &session.metadata {
        print_line(format_args!("{:<12}{key} = {value}", "metadata"))?;
    }
    Ok(())
}
