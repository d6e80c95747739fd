//! The calls that a model made, and what becomes of each.

use std::{collections::BTreeSet, time::Duration};

use crate::model::{CallId, MessageId, Payload, ToolExecutor, event::WaitsFor};

/// A call that the model made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCall {
    /// Its id.
    pub id: CallId,
    /// The tool.
    pub name: String,
    /// Where it stands in the assistant message.
    pub part: usize,
    /// What becomes of it.
    pub fate: CallFate,
    /// How long a result or an approval is awaited.
    pub timeout: Duration,
    /// Who runs it.
    pub executor: ToolExecutor,
}

/// What becomes of a call that the model made.
#[derive(Debug, Clone, PartialEq)]
pub enum CallFate {
    /// The host is asked at once, for a result or an approval.
    Asked(WaitsFor),
    /// The host is asked in its turn.
    Later {
        /// For what.
        waits_for: WaitsFor,
        /// The event that asks.
        request: Box<Payload>,
    },
    /// It is closed without being run.
    NotRun,
}

impl CallFate {
    /// Whether it waits for something.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Asked(_) | Self::Later { .. } => true,
            Self::NotRun => false,
        }
    }

    /// Whether somebody is asked now: its time begins.
    pub fn is_asked(&self) -> bool {
        match self {
            Self::Asked(_) => true,
            Self::Later { .. } | Self::NotRun => false,
        }
    }
}

/// The calls of one assistant message, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The assistant message.
    pub message: MessageId,
    /// The tool message that will hold their results.
    pub results: MessageId,
    /// The calls.
    pub calls: Vec<NewCall>,
}

impl Batch {
    /// The calls that are to be run at once on MCP servers.
    pub fn requested(&self) -> BTreeSet<CallId> {
        let runs = |call: &&NewCall| {
            call.executor == ToolExecutor::Mcp
                && matches!(call.fate, CallFate::Asked(WaitsFor::Result { .. }))
        };
        let calls = self.calls.iter().filter(runs);
        calls.map(|call| call.id.clone()).collect()
    }

    /// How many wait for something.
    pub fn open(&self) -> u32 {
        let open = self.calls.iter().filter(|call| call.fate.is_open());
        u32::try_from(open.count()).unwrap_or(u32::MAX)
    }

    /// When the first of those that somebody is asked about is overdue.
    pub fn first_timeout(&self) -> Option<Duration> {
        let asked = self.calls.iter().filter(|call| call.fate.is_asked());
        asked.map(|call| call.timeout).min()
    }
}
