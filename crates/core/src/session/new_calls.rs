//! The calls that a model made, and how each is handled.

use std::{collections::BTreeSet, time::Duration};

use crate::model::{CallId, MessageId, Payload, ToolExecutor, event::WaitsFor};

/// A call that the model made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCall {
    pub id: CallId,
    /// Name of the tool.
    pub name: String,
    /// Index of the call in the assistant message.
    pub part: usize,
    pub handling: CallHandling,
    /// How long to wait for a result or an approval.
    pub timeout: Duration,
    pub executor: ToolExecutor,
}

/// How a new call is handled.
#[derive(Debug, Clone, PartialEq)]
pub enum CallHandling {
    /// Handed out immediately, for a result or an approval.
    Requested(WaitsFor),
    /// Handed out after earlier calls.
    Later {
        waits_for: WaitsFor,
        /// The event that hands it out.
        request: Box<Payload>,
    },
    /// Closed without being run.
    NotRun,
}

impl CallHandling {
    /// Whether the call has no result yet.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Requested(_) | Self::Later { .. } => true,
            Self::NotRun => false,
        }
    }

    /// Whether the call is handed out now, which starts its timeout.
    pub fn is_requested(&self) -> bool {
        match self {
            Self::Requested(_) => true,
            Self::Later { .. } | Self::NotRun => false,
        }
    }
}

/// The calls of one assistant message, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The assistant message.
    pub message: MessageId,
    /// The tool message that will contain their results.
    pub results: MessageId,
    pub calls: Vec<NewCall>,
}

impl Batch {
    /// The calls to be run immediately on MCP servers.
    pub fn requested(&self) -> BTreeSet<CallId> {
        let runs = |call: &&NewCall| {
            call.executor == ToolExecutor::Mcp
                && matches!(call.handling, CallHandling::Requested(WaitsFor::Result { .. }))
        };
        let calls = self.calls.iter().filter(runs);
        calls.map(|call| call.id.clone()).collect()
    }

    /// The number of calls without a result.
    pub fn open(&self) -> u32 {
        let open = self.calls.iter().filter(|call| call.handling.is_open());
        u32::try_from(open.count()).unwrap_or(u32::MAX)
    }

    /// The shortest timeout of the calls that are handed out immediately. Returns `None` if there are none.
    pub fn first_timeout(&self) -> Option<Duration> {
        let asked = self.calls.iter().filter(|call| call.handling.is_requested());
        asked.map(|call| call.timeout).min()
    }
}
