//! The state of a conversation across turns.

use std::collections::BTreeSet;
use std::io;

use tokio::signal::unix::Signal;

use super::client::Server;
use super::context::Context;
use super::queue::PendingMessages;
use super::terminal::{Keyboard, Printer};
use super::typing::Typing;
use contextd_proto::{self as pb, part::Content};

/// Prefix of the chat's request ids. It runs the tool calls of turns with such an id.
pub(super) const REQUEST_ID_PREFIX: &str = "chat-";

/// A conversation with a server.
#[derive(Debug)]
pub(super) struct Conversation {
    pub server: Server,
    pub printer: Printer,
    /// The user's keyboard. `None` without a terminal.
    pub keyboard: Option<Keyboard>,
    /// Ctrl-C.
    pub interrupts: Signal,
    /// The session id. Empty until the server has chosen one.
    pub session_id: String,
    /// The model, system prompt and tools of its turns.
    pub options: ChatOptions,
    pub context: Context,
    /// Tool calls that were started.
    pub begun: BTreeSet<String>,
    /// Tool calls that were approved or denied.
    pub decided: BTreeSet<String>,
    /// Whether the user may type while a turn is running.
    pub talks: bool,
    /// What the user is typing while a turn is running.
    pub typing: Typing,
    /// Queued messages that no turn has taken yet.
    pub waiting: PendingMessages,
}

/// The options from the command line.
#[derive(Debug)]
pub(super) struct ChatOptions {
    pub model: Option<String>,
    pub system: Option<String>,
    pub tools: pb::ToolSet,
}

impl Conversation {
    /// Starts watching the keyboard while a turn is running, if the user may type then.
    pub(super) fn listen_meanwhile(&mut self) -> io::Result<()> {
        if let (true, Typing::Unwatched, Some(keyboard)) = (self.talks, &self.typing, &self.keyboard) {
            self.typing = keyboard.watch()?;
        }
        Ok(())
    }
}

/// A user message.
pub(super) fn input(text: String) -> pb::InputMessage {
    let parts = vec![pb::Part { content: Some(Content::Text(text)), ..pb::Part::default() }];
    pb::InputMessage { parts, ..pb::InputMessage::default() }
}
