//! The scenarios, as data.

use std::time::Duration;

use super::fault::{Action, FailureMode, Fault, FaultTrigger, Rpc};
use contextd_proto::{Delivery, event::Payload};

/// The scripts of the scripted models.
pub(super) const SCRIPTS: &[(&str, &str)] = &[
    ("turn", include_str!("scripts/turn.json")),
    ("slowly", include_str!("scripts/slowly.json")),
    ("pauses", include_str!("scripts/pauses.json")),
    ("stopped", include_str!("scripts/stopped.json")),
    ("other", include_str!("scripts/other.json")),
    ("failing", include_str!("scripts/failing.json")),
    ("again", include_str!("scripts/again.json")),
    ("approval", include_str!("scripts/approval.json")),
    ("long", include_str!("scripts/long.json")),
    ("large", include_str!("scripts/large.json")),
];

const EXPECTED_TEXT: &str = "Let me add and wait. The sum is 5. In the end it is 42, and all is done.";
/// Additional time for a run with a silent stream: hosts may wait for four heartbeats.
const SILENCE: Duration = Duration::from_secs(60);

/// The expected end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Completed,
    Cancelled,
    /// The host reports the refusal.
    Refused,
}

/// A situation that a host must handle.
#[derive(Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// The requirement on the host, in one sentence.
    pub demand: &'static str,
    pub(super) model: &'static str,
    pub(super) fallback: Option<&'static str>,
    pub(super) input: &'static str,
    pub(super) expected: Expected,
    /// The expected text of the turn. `None` if it is not known in advance.
    pub(super) says: Option<&'static str>,
    /// Must match an event of the turn; otherwise the scenario did not happen.
    pub(super) shows: fn(&Payload) -> bool,
    /// Time in addition to the time limit of a run.
    pub(super) extra: Duration,
    /// Whether there is one run for each message and each [`FailureMode`] with which the stream can be cut after it.
    pub(super) every_message: bool,
    runs: Vec<Variant>,
}

/// One run of a scenario.
#[derive(Debug, Clone, Default)]
pub(super) struct Variant {
    /// What distinguishes this run from the others.
    pub(super) name: String,
    pub(super) faults: Vec<Fault>,
}

impl Variant {
    /// Whether the run needs a replica to kill.
    pub(super) fn kills(&self) -> bool {
        let kills = |action| matches!(action, Action::Kill);
        self.faults.iter().any(|fault| match *fault {
            Fault::At(_, action) | Fault::WhenRuns(_, action) => kills(action),
            Fault::Cut(..)
            | Fault::CutEach(_)
            | Fault::Lose(..)
            | Fault::Refuse { .. }
            | Fault::Silence(_)
            | Fault::Unknown => false,
        })
    }
}

impl Scenario {
    fn new(name: &'static str, demand: &'static str, runs: &[(&str, &[Fault])]) -> Self {
        let run = |(name, faults): &(&str, &[Fault])| Variant { name: (*name).to_owned(), faults: faults.to_vec() };
        Self {
            name,
            demand,
            model: "turn",
            fallback: None,
            input: "Please add.",
            expected: Expected::Completed,
            says: Some(EXPECTED_TEXT),
            shows: |payload| matches!(payload, Payload::TurnStarted(_)),
            extra: Duration::ZERO,
            every_message: false,
            runs: runs.iter().map(run).collect(),
        }
    }

    fn says(mut self, model: &'static str, text: &'static str) -> Self {
        (self.model, self.says) = (model, Some(text));
        self
    }

    fn shows(mut self, shows: fn(&Payload) -> bool) -> Self {
        self.shows = shows;
        self
    }

    /// The runs of the scenario, for a turn of `messages` messages.
    pub(super) fn variants(&self, messages: usize) -> Vec<Variant> {
        if !self.every_message {
            return self.runs.clone();
        }
        let ways = [FailureMode::Unavailable, FailureMode::Reset];
        let cut = |number, how: FailureMode| Variant {
            name: format!("{} after message {number}", how.words()),
            faults: vec![Fault::Cut(FaultTrigger::Message(number), how)],
        };
        (1..messages).flat_map(|number| ways.map(|how| cut(number, how))).collect()
    }
}

/// All scenarios in the order of their runs.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = connections();
    all.extend(refusals());
    all.extend(events());
    all.extend(meanwhile());
    all
}

/// Whether a slow tool call is requested.
fn slow(payload: &Payload) -> bool {
    let Payload::ToolCallRequested(pending) = payload else {
        return false;
    };
    let call = pending.call.as_ref();
    call.is_some_and(|call| call.tool_name == "slow")
}

/// Interrupted connections.
fn connections() -> Vec<Scenario> {
    use FailureMode::{Reset, Unavailable};
    let lost = |rpc, times| [Unavailable, Reset].map(|how| [Fault::Lose(rpc, how, times)]);
    let [start_status, start_reset] = lost(Rpc::Execute, 1);
    let [result_status, result_reset] = lost(Rpc::Submit, 2);
    let mut every = Scenario::new(
        "disconnect",
        "If the stream breaks, after whichever message, it is reopened, and nothing is shown or run twice.",
        &[],
    );
    every.every_message = true;
    vec![
        Scenario::new("baseline", "A turn with three tool calls, without a fault.", &[("", &[])]),
        every,
        Scenario::new(
            "each-event",
            "A turn whose stream breaks after every new event still reaches its end.",
            &[("UNAVAILABLE", &[Fault::CutEach(Unavailable)]), ("resets", &[Fault::CutEach(Reset)])],
        ),
        Scenario::new(
            "lost-start",
            "If ExecuteTurn was executed and its response lost, the same request_id attaches to the turn.",
            &[("UNAVAILABLE", &start_status), ("reset", &start_reset)],
        ),
        Scenario::new(
            "lost-results",
            "If SubmitToolResults was executed and its response lost, the same results are sent again and no tool runs again.",
            &[("UNAVAILABLE", &result_status), ("reset", &result_reset)],
        ),
        Scenario::new(
            "cut-while-tools-run",
            "A tool call that is running when the stream breaks is not started again.",
            &[
                ("UNAVAILABLE", &[Fault::Cut(FaultTrigger::Payload(slow), Unavailable)]),
                ("reset", &[Fault::Cut(FaultTrigger::Payload(slow), Reset)]),
            ],
        )
        .says("slowly", EXPECTED_TEXT),
        Scenario::new(
            "cut-while-model-writes",
            "Text that was shown before the stream breaks is not shown again, and the rest is shown.",
            &[
                ("UNAVAILABLE", &[Fault::Cut(FaultTrigger::Text("end"), Unavailable)]),
                ("reset", &[Fault::Cut(FaultTrigger::Text("end"), Reset)]),
            ],
        )
        .says("slowly", EXPECTED_TEXT),
    ]
}

/// Servers that do not respond, or that reject requests.
fn refusals() -> Vec<Scenario> {
    use FailureMode::{Denied, Drain, Invalid, Unavailable};
    let refuse = |rpc, how, times, later| Fault::Refuse { rpc, how, times, later };
    let sum = Fault::Cut(FaultTrigger::Text("sum"), Drain);
    let mut refused = Scenario::new(
        "refused",
        "A request that is rejected permanently is reported and not sent again.",
        &[
            ("INVALID_ARGUMENT", &[refuse(Rpc::Execute, Invalid, usize::MAX, false)]),
            ("PERMISSION_DENIED", &[refuse(Rpc::Execute, Denied, usize::MAX, false)]),
        ],
    );
    refused.expected = Expected::Refused;
    let mut silence = Scenario::new(
        "silence",
        "A stream in which nothing arrives for four heartbeat intervals is closed and reopened.",
        &[("", &[Fault::Silence(FaultTrigger::Text("sum"))])],
    );
    silence.extra = SILENCE;
    vec![
        Scenario::new(
            "drain",
            "A server that shuts down is not called again until the delay in its RetryInfo has passed.",
            &[("", &[sum, refuse(Rpc::Execute, Drain, 2, true), refuse(Rpc::Submit, Drain, 1, false)])],
        ),
        Scenario::new(
            "outage",
            "The host waits while the server is unavailable.",
            &[("", &[refuse(Rpc::Execute, Unavailable, 3, false), refuse(Rpc::Submit, Unavailable, 3, false)])],
        ),
        refused,
        silence,
    ]
}

/// Events that a host must handle.
fn events() -> Vec<Scenario> {
    let usage = |payload: &Payload| matches!(payload, Payload::UsageRecorded(_));
    let mut fallback = Scenario::new(
        "fallback",
        "The text of a failed attempt is withdrawn when the turn continues with another model.",
        &[("", &[])],
    )
    .says("failing", "Right words now.")
    .shows(|payload| matches!(payload, Payload::ModelFallback(_)));
    fallback.fallback = Some("scripted/other");
    let mut compaction =
        Scenario::new("compaction", "A turn continues after its context is compacted between two steps.", &[("", &[])])
            .shows(|payload| matches!(payload, Payload::CompactionCompleted(_)));
    (compaction.model, compaction.says) = ("long", None);
    let mut large =
        Scenario::new("large", "A result of 2.9 MB is submitted, and a message of 660 kB is received.", &[("", &[])]);
    (large.model, large.says) = ("large", None);
    vec![
        Scenario::new(
            "unknown",
            "Unknown fields, values and events are ignored, and the seq of the events is remembered.",
            &[("", &[Fault::Unknown, Fault::Cut(FaultTrigger::Payload(usage), FailureMode::Unavailable)])],
        ),
        Scenario::new(
            "retry",
            "The text of a failed attempt is void: the next attempt generates it again.",
            &[("", &[])],
        )
        .says("again", "The answer, said twice, is 42.")
        .shows(|payload| matches!(payload, Payload::TurnRetrying(_))),
        fallback,
        compaction,
        large,
        Scenario::new(
            "approval",
            "A call that needs approval runs when it is approved, and never when it is denied.",
            &[
                ("", &[]),
                ("each event cut", &[Fault::CutEach(FailureMode::Unavailable)]),
                ("lost responses", &[Fault::Lose(Rpc::Submit, FailureMode::Unavailable, 3)]),
            ],
        )
        .says("approval", "Cleaning up. Cleaned up."),
    ]
}

/// Actions of other clients or of the operator during a turn.
fn meanwhile() -> Vec<Scenario> {
    let requested = |payload: &Payload| matches!(payload, Payload::ToolCallRequested(_));
    let mut interrupt = Scenario::new(
        "interrupt",
        "A turn that is interrupted while tools run ends as cancelled, and late results cause no error.",
        &[("", &[Fault::WhenRuns("slow", Action::Enqueue("Stop.", Delivery::Interrupt))])],
    )
    .says("stopped", "Working. ")
    .shows(|payload| matches!(payload, Payload::TurnCancelled(_)));
    interrupt.expected = Expected::Cancelled;
    vec![
        Scenario::new(
            "enqueue",
            "A message that is queued during the last response is answered in the same turn.",
            &[("", &[Fault::At(FaultTrigger::Text("end"), Action::Enqueue("Also this.", Delivery::Asap))])],
        )
        .says("pauses", "Let me add and wait. The sum is 5. In the end it is 42, and all is done. And also noted.")
        .shows(|payload| matches!(payload, Payload::MessagesApplied(_))),
        interrupt,
        Scenario::new(
            "model-switch",
            "A turn whose session switches to another model continues with it.",
            &[("", &[Fault::WhenRuns("slow", Action::Switch("scripted/other"))])],
        )
        .says("turn", "Let me add and wait. Another model says 5.")
        .shows(|payload| matches!(payload, Payload::ModelSwitched(_))),
        Scenario::new(
            "takeover",
            "A turn whose replica is killed continues on another replica, and no text is shown twice.",
            &[
                ("while the model writes", &[Fault::At(FaultTrigger::Text("sum"), Action::Kill)]),
                ("while tools run", &[Fault::At(FaultTrigger::Payload(requested), Action::Kill)]),
            ],
        )
        .says("slowly", EXPECTED_TEXT),
    ]
}
