//! What goes wrong in a run, and when.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::record::Call;
use crate::pb::{self, event::Payload};

/// How long a server that is drained asks hosts to stay away.
pub(super) const STAY_AWAY: Duration = Duration::from_millis(400);

/// How a call breaks off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// With the status UNAVAILABLE, after everything that was sent.
    Unavailable,
    /// The same, with a RetryInfo.
    Drain,
    /// By a reset of the TCP connection.
    Reset,
    /// With the status INVALID_ARGUMENT.
    Invalid,
    /// With the status PERMISSION_DENIED.
    Denied,
}

impl How {
    /// The status, for those that have one.
    pub(super) fn status(self) -> Status {
        let reason = |code, reason: &str, message| {
            let details = ErrorDetails::with_error_info(reason, "contextd.dev", []);
            Status::with_error_details(code, message, details)
        };
        match self {
            Self::Unavailable | Self::Reset => Status::unavailable("the server is away"),
            Self::Drain => {
                let details = ErrorDetails::with_retry_info(Some(STAY_AWAY));
                Status::with_error_details(Code::Unavailable, "the server is stopping", details)
            }
            Self::Invalid => reason(
                Code::InvalidArgument,
                "INVALID_REQUEST",
                "the request cannot be understood",
            ),
            Self::Denied => reason(
                Code::PermissionDenied,
                "PERMISSION_DENIED",
                "the key may not do this",
            ),
        }
    }

    /// In words that follow on "after".
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Unavailable => "UNAVAILABLE",
            Self::Drain => "UNAVAILABLE with a RetryInfo",
            Self::Reset => "a reset of the connection",
            Self::Invalid => "INVALID_ARGUMENT",
            Self::Denied => "PERMISSION_DENIED",
        }
    }
}

/// An event that something happens at.
#[derive(Debug, Clone, Copy)]
pub(super) enum On {
    /// So many messages were sent in this run.
    Message(usize),
    /// A delta with this text.
    Text(&'static str),
    /// A payload of a kind.
    Payload(fn(&Payload) -> bool),
}

/// What the kit does meanwhile, as another client or as the operator.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    /// A message of the user is queued.
    Enqueue(&'static str, pb::Delivery),
    /// The session gets another model.
    Switch(&'static str),
    /// The replica that runs the turn is killed; another one is there.
    Kill,
}

/// A call of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rpc {
    Execute,
    Submit,
}

/// What goes wrong. Faults at an event come once.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The stream breaks off after an event.
    Cut(On, How),
    /// Each stream breaks off after the first durable event that is new.
    CutEach(How),
    /// So many calls are carried out, and their answers lost.
    Lose(Rpc, How, usize),
    /// So many calls are refused, from the second one on where `later` is set.
    Refuse {
        rpc: Rpc,
        how: How,
        times: usize,
        later: bool,
    },
    /// The stream stays open after an event, with nothing in it.
    Silence(On),
    /// Events have fields, values and kinds that no host knows.
    Unknown,
    /// Something is done at an event, before the host is sent it.
    At(On, Action),
    /// Something is done when the host runs a tool.
    WhenRuns(&'static str, Action),
}

impl Fault {
    /// What it does to a call, and how often, when so many ExecuteTurns were sent.
    fn at_call(self, called: Rpc, executes: usize) -> Option<(Verdict, usize)> {
        match self {
            Self::Lose(rpc, how, times) => (rpc == called).then_some((Verdict::Lose(how), times)),
            Self::Refuse {
                rpc,
                how,
                times,
                later,
            } => {
                let comes = rpc == called && (!later || executes > 1);
                comes.then_some((Verdict::Refuse(how), times))
            }
            Self::Cut(..)
            | Self::CutEach(_)
            | Self::Silence(_)
            | Self::Unknown
            | Self::At(..)
            | Self::WhenRuns(..) => None,
        }
    }
}

/// What happens to a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Forward,
    Refuse(How),
    Lose(How),
}

/// What happens to a stream after an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum After {
    GoOn,
    Cut(How),
    Silence,
}

/// The faults of a run, and which of them came.
#[derive(Debug)]
pub(super) struct Plan {
    faults: Vec<Fault>,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    fired: Vec<usize>,
    executes: usize,
    messages: usize,
    seq: i64,
    /// Calls of tools that something is done for while they run.
    held: BTreeSet<String>,
}

impl Plan {
    pub(super) fn new(faults: Vec<Fault>) -> Self {
        let progress = Progress {
            fired: vec![0; faults.len()],
            executes: 0,
            messages: 0,
            seq: 0,
            held: BTreeSet::new(),
        };
        Self {
            faults,
            progress: Mutex::new(progress),
        }
    }

    /// Whether events are altered.
    pub(super) fn alters(&self) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|fault| matches!(fault, Fault::Unknown))
    }

    /// What happens to this call.
    pub(super) fn on_call(&self, call: &Call) -> Verdict {
        let called = match call {
            Call::Execute(_) => Rpc::Execute,
            Call::Submit(_) => Rpc::Submit,
            Call::Watch(_) | Call::Other => return Verdict::Forward,
        };
        let mut progress = self.progress();
        progress.executes += usize::from(called == Rpc::Execute);
        for (index, fault) in self.faults.iter().enumerate() {
            let Some((verdict, times)) = fault.at_call(called, progress.executes) else {
                continue;
            };
            if progress.fired[index] < times {
                progress.fired[index] += 1;
                return verdict;
            }
        }
        Verdict::Forward
    }

    /// What is done before the host is sent this event, and what happens to its stream afterwards.
    pub(super) fn on_event(&self, event: &pb::Event) -> (Vec<Action>, After) {
        let mut progress = self.progress();
        progress.messages += 1;
        let new = event.seq > progress.seq;
        progress.seq = progress.seq.max(event.seq);
        if let Some(Payload::ToolCallRequested(pending)) = &event.payload
            && let Some(call) = pending
                .call
                .as_ref()
                .filter(|call| self.acts_on(&call.tool_name))
        {
            progress.held.insert(call.call_id.clone());
        }
        let mut actions = Vec::new();
        let mut after = After::GoOn;
        for (index, fault) in self.faults.iter().enumerate() {
            let comes = |on: On| progress.fired[index] == 0 && met(on, event, progress.messages);
            let fires = match *fault {
                Fault::Cut(on, _) | Fault::Silence(on) | Fault::At(on, _) => comes(on),
                Fault::CutEach(_) => new,
                Fault::Lose(..) | Fault::Refuse { .. } | Fault::Unknown | Fault::WhenRuns(..) => {
                    false
                }
            };
            if !fires {
                continue;
            }
            progress.fired[index] += 1;
            match *fault {
                Fault::Cut(_, how) | Fault::CutEach(how) => after = After::Cut(how),
                Fault::Silence(_) => after = After::Silence,
                Fault::At(_, action) => actions.push(action),
                Fault::Lose(..) | Fault::Refuse { .. } | Fault::Unknown | Fault::WhenRuns(..) => {}
            }
        }
        (actions, after)
    }

    /// Whether the call brings the result of a tool that something is done for while it runs.
    pub(super) fn holds(&self, call: &Call) -> bool {
        let results = match call {
            Call::Submit(request) => &request.results,
            Call::Execute(_) | Call::Watch(_) | Call::Other => return false,
        };
        let progress = self.progress();
        results
            .iter()
            .any(|result| progress.held.contains(&result.call_id))
    }

    fn acts_on(&self, tool_name: &str) -> bool {
        self.faults
            .iter()
            .any(|fault| matches!(fault, Fault::WhenRuns(tool, _) if *tool == tool_name))
    }

    /// What is done now that the host runs this tool.
    pub(super) fn on_tool(&self, name: &str) -> Vec<Action> {
        let mut progress = self.progress();
        let mut actions = Vec::new();
        for (index, fault) in self.faults.iter().enumerate() {
            if let Fault::WhenRuns(tool, action) = *fault
                && tool == name
                && progress.fired[index] == 0
            {
                progress.fired[index] += 1;
                actions.push(action);
            }
        }
        actions
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn met(on: On, event: &pb::Event, messages: usize) -> bool {
    match (on, &event.payload) {
        (On::Message(number), _) => messages >= number,
        (On::Text(text), Some(Payload::TextDelta(delta))) => delta.text.contains(text),
        (On::Payload(kind), Some(payload)) => kind(payload),
        (On::Text(_) | On::Payload(_), _) => false,
    }
}
