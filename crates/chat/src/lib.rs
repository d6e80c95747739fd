//! `contextd chat`: a conversation in a terminal, over the public API only, with any contextd.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::bail;
use tokio::signal::unix::{SignalKind, signal};

use self::client::Server;
use self::context::Context;
use self::conversation::{ChatOptions, Conversation};
use self::queue::PendingMessages;
use self::talk::piped;
use self::terminal::{Keyboard, Printer};
use self::typing::Typing;

mod approval;
mod client;
mod command;
mod context;
mod conversation;
mod lines;
mod queue;
mod talk;
mod tape;
mod terminal;
mod tools;
mod turn;
mod typing;
mod view;

/// Talk to a server in the terminal.
///
/// Responses are streamed. The model is offered two tools, get_weather and get_time, which the chat runs
/// itself; their results are made up. If the server becomes unavailable, the chat waits for it and resumes
/// the same turn. What you type while a turn is running is queued: the model gets it with its next step.
///
/// For scripts: with --once, or with a message piped in, there is one turn. The response goes to stdout,
/// everything else to stderr; the exit code is 0 if the turn completed, otherwise 1.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: contextd_client::Server,
    /// Continue this session; it is created if it does not exist [default: a new one]
    #[arg(long, value_name = "ID", env = "CONTEXTD_SESSION", hide_env_values = true)]
    session: Option<String>,
    /// Model reference, e.g. openai/gpt-5 [default: the session's, else the server's]
    #[arg(long, value_name = "PROVIDER/MODEL", env = "CONTEXTD_MODEL", hide_env_values = true)]
    model: Option<String>,
    /// System prompt of a new session [default: none]
    #[arg(long, value_name = "TEXT", env = "CONTEXTD_SYSTEM", hide_env_values = true)]
    system: Option<String>,
    /// Send this message, print the response and exit [default: chat until Ctrl-D]
    #[arg(long, value_name = "TEXT", env = "CONTEXTD_ONCE", hide_env_values = true)]
    once: Option<String>,
    /// Ask before each tool call; without a terminal it is denied
    #[arg(
        long,
        value_name = "BOOL",
        env = "CONTEXTD_APPROVE_TOOLS",
        hide_env_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    approve_tools: bool,
}

/// Runs the chat until the user leaves or, with a single message, until its turn has ended.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { server, session, model, system, once, approve_tools } = args;
    let keyboard = Keyboard::of_process()?;
    let text = match (once, &keyboard) {
        (None, None) => Some(piped().await?),
        (once, _) => once,
    };
    if text.as_ref().is_some_and(|text| text.trim().is_empty()) {
        bail!("the message is empty: pass a text to --once, or pipe one in");
    }
    let conversation = Conversation {
        server: Server::connect(&server).await?,
        printer: Printer::of_process(),
        keyboard,
        interrupts: signal(SignalKind::interrupt())?,
        session_id: session.unwrap_or_default(),
        options: ChatOptions { model, system, tools: tools::offered(approve_tools) },
        context: Context::default(),
        begun: BTreeSet::new(),
        decided: BTreeSet::new(),
        talks: false,
        typing: Typing::default(),
        waiting: PendingMessages::default(),
    };
    match text {
        Some(text) => conversation.once(text).await,
        None => conversation.talk().await,
    }
}
