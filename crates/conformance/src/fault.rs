//! The faults and actions of a run, and when they happen.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::record::Call;
use contextd_proto::{self as pb, event::Payload};

/// The retry delay that a draining server requests.
pub(super) const DRAIN_RETRY_DELAY: Duration = Duration::from_millis(400);

/// How a call is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureMode {
    /// With the status UNAVAILABLE, after all earlier messages were delivered.
    Unavailable,
    /// With the status UNAVAILABLE and a RetryInfo.
    Drain,
    /// By a reset of the TCP connection.
    Reset,
    /// With the status INVALID_ARGUMENT.
    Invalid,
    /// With the status PERMISSION_DENIED.
    Denied,
}

impl FailureMode {
    /// The gRPC status; UNAVAILABLE for a reset.
    pub(super) fn status(self) -> Status {
        let reason = |code, reason: &str, message| {
            let details = ErrorDetails::with_error_info(reason, "contextd.dev", []);
            Status::with_error_details(code, message, details)
        };
        match self {
            Self::Unavailable | Self::Reset => Status::unavailable("the server is unavailable"),
            Self::Drain => {
                let details = ErrorDetails::with_retry_info(Some(DRAIN_RETRY_DELAY));
                Status::with_error_details(Code::Unavailable, "the server is stopping", details)
            }
            Self::Invalid => reason(Code::InvalidArgument, "INVALID_REQUEST", "the request is invalid"),
            Self::Denied => reason(Code::PermissionDenied, "PERMISSION_DENIED", "the key lacks permission"),
        }
    }

    /// A description that is printed after the word "after".
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Unavailable => "UNAVAILABLE",
            Self::Drain => "UNAVAILABLE with a RetryInfo",
            Self::Reset => "a connection reset",
            Self::Invalid => "INVALID_ARGUMENT",
            Self::Denied => "PERMISSION_DENIED",
        }
    }
}

/// The event at which a fault or action fires.
#[derive(Debug, Clone, Copy)]
pub(super) enum FaultTrigger {
    /// The message with this number in the run.
    Message(usize),
    /// A delta with this text.
    Text(&'static str),
    /// A payload for which this returns true.
    Payload(fn(&Payload) -> bool),
}

/// An action that the kit performs during a turn, in the role of another client or of an operator.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    /// Enqueues a user message.
    Enqueue(&'static str, pb::Delivery),
    /// Changes the model of the session.
    Switch(&'static str),
    /// Kills the replica that runs the turn; another one is available.
    Kill,
}

/// The RPC that a host calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rpc {
    Execute,
    Submit,
}

/// A fault. Faults at an event fire once, except `CutEach`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The stream is cut after an event.
    Cut(FaultTrigger, FailureMode),
    /// Each stream is cut after its first new durable event.
    CutEach(FailureMode),
    /// This number of calls is executed, but their responses are lost.
    Lose(Rpc, FailureMode, usize),
    /// This number of calls is refused. If `later` is set, the first ExecuteTurn is not refused.
    Refuse { rpc: Rpc, how: FailureMode, times: usize, later: bool },
    /// The stream stays open after an event but sends nothing.
    Silence(FaultTrigger),
    /// Events contain fields, values and kinds that hosts do not know.
    Unknown,
    /// An action before an event is sent to the host.
    At(FaultTrigger, Action),
    /// An action while the host runs a tool.
    WhenRuns(&'static str, Action),
}

impl Fault {
    /// The effect on a call and how often it applies. `executes` is the number of ExecuteTurn calls so far.
    fn at_call(self, called: Rpc, executes: usize) -> Option<(Verdict, usize)> {
        match self {
            Self::Lose(rpc, how, times) => (rpc == called).then_some((Verdict::Lose(how), times)),
            Self::Refuse { rpc, how, times, later } => {
                let comes = rpc == called && (!later || executes > 1);
                comes.then_some((Verdict::Refuse(how), times))
            }
            Self::Cut(..) | Self::CutEach(_) | Self::Silence(_) | Self::Unknown | Self::At(..) | Self::WhenRuns(..) => {
                None
            }
        }
    }
}

/// The proxy's decision about a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Forward,
    Refuse(FailureMode),
    Lose(FailureMode),
}

/// What happens to a stream after an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamAction {
    Continue,
    Cut(FailureMode),
    Silence,
}

/// The faults of a run and their progress.
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
    /// Ids of calls whose tool has a [`Fault::WhenRuns`].
    held: BTreeSet<String>,
}

impl Plan {
    pub(super) fn new(faults: Vec<Fault>) -> Self {
        let progress =
            Progress { fired: vec![0; faults.len()], executes: 0, messages: 0, seq: 0, held: BTreeSet::new() };
        Self { faults, progress: Mutex::new(progress) }
    }

    /// Whether events are altered.
    pub(super) fn alters(&self) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|fault| matches!(fault, Fault::Unknown))
    }

    /// Decides about a call.
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

    /// The actions before this event is sent to the host, and what happens to the stream afterwards.
    pub(super) fn on_event(&self, event: &pb::Event) -> (Vec<Action>, StreamAction) {
        let mut progress = self.progress();
        progress.messages += 1;
        let new = event.seq > progress.seq;
        progress.seq = progress.seq.max(event.seq);
        if let Some(Payload::ToolCallRequested(pending)) = &event.payload
            && let Some(call) = pending.call.as_ref().filter(|call| self.acts_on(&call.tool_name))
        {
            progress.held.insert(call.call_id.clone());
        }
        let mut actions = Vec::new();
        let mut after = StreamAction::Continue;
        for (index, fault) in self.faults.iter().enumerate() {
            let comes = |on: FaultTrigger| progress.fired[index] == 0 && met(on, event, progress.messages);
            let fires = match *fault {
                Fault::Cut(on, _) | Fault::Silence(on) | Fault::At(on, _) => comes(on),
                Fault::CutEach(_) => new,
                Fault::Lose(..) | Fault::Refuse { .. } | Fault::Unknown | Fault::WhenRuns(..) => false,
            };
            if !fires {
                continue;
            }
            progress.fired[index] += 1;
            match *fault {
                Fault::Cut(_, how) | Fault::CutEach(how) => after = StreamAction::Cut(how),
                Fault::Silence(_) => after = StreamAction::Silence,
                Fault::At(_, action) => actions.push(action),
                Fault::Lose(..) | Fault::Refuse { .. } | Fault::Unknown | Fault::WhenRuns(..) => {}
            }
        }
        (actions, after)
    }

    /// Whether the call submits the result of a tool that has a [`Fault::WhenRuns`]. The proxy holds such a call back.
    pub(super) fn holds(&self, call: &Call) -> bool {
        let results = match call {
            Call::Submit(request) => &request.results,
            Call::Execute(_) | Call::Watch(_) | Call::Other => return false,
        };
        let progress = self.progress();
        results.iter().any(|result| progress.held.contains(&result.call_id))
    }

    fn acts_on(&self, tool_name: &str) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::WhenRuns(tool, _) if *tool == tool_name))
    }

    /// The actions to perform when the host starts to run this tool.
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

fn met(on: FaultTrigger, event: &pb::Event, messages: usize) -> bool {
    match (on, &event.payload) {
        (FaultTrigger::Message(number), _) => messages >= number,
        (FaultTrigger::Text(text), Some(Payload::TextDelta(delta))) => delta.text.contains(text),
        (FaultTrigger::Payload(kind), Some(payload)) => kind(payload),
        (FaultTrigger::Text(_) | FaultTrigger::Payload(_), _) => false,
    }
}
