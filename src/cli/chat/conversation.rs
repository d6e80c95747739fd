//! What a conversation holds between its turns, and each of them works with.

use std::collections::BTreeSet;
use std::io;

use tokio::signal::unix::Signal;

use super::client::Server;
use super::context::Context;
use super::queue::Waiting;
use super::terminal::{Keyboard, Printer};
use super::typing::Typing;
use crate::pb::{self, part::Content};

/// What the request ids of the chat begin with: calls of such turns are for its tools.
pub(super) const OURS: &str = "chat-";

/// A conversation with a server.
#[derive(Debug)]
pub(super) struct Conversation {
    pub server: Server,
    pub printer: Printer,
    /// The person, if there is one.
    pub keyboard: Option<Keyboard>,
    /// Ctrl-C.
    pub interrupts: Signal,
    /// The session; empty until the server chose one.
    pub session_id: String,
    /// What its turns are to be answered by and with.
    pub wishes: Wishes,
    pub context: Context,
    /// Calls that were run.
    pub begun: BTreeSet<String>,
    /// Calls that were decided about.
    pub decided: BTreeSet<String>,
    /// The person may speak while a turn runs.
    pub talks: bool,
    /// What they do then.
    pub typing: Typing,
    /// What they said that no turn took so far.
    pub waiting: Waiting,
}

/// What was asked for on the command line.
#[derive(Debug)]
pub(super) struct Wishes {
    pub model: Option<String>,
    pub system: Option<String>,
    pub tools: pb::ToolSet,
}

impl Conversation {
    /// Listens to the person where nothing is asked of them, if they may speak then.
    pub(super) fn listen_meanwhile(&mut self) -> io::Result<()> {
        if let (true, Typing::Unheard, Some(keyboard)) = (self.talks, &self.typing, &self.keyboard)
        {
            self.typing = keyboard.watch()?;
        }
        Ok(())
    }
}

/// A message of the person's.
pub(super) fn input(text: String) -> pb::InputMessage {
    let parts = vec![pb::Part {
        content: Some(Content::Text(text)),
        ..pb::Part::default()
    }];
    pb::InputMessage {
        parts,
        ..pb::InputMessage::default()
    }
}
