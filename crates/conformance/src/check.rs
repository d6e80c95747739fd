//! Checks what a host did wrong: compares its calls and output with the events of the session. Pure functions.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    fault::{DRAIN_RETRY_DELAY, FailureMode},
    host::DriverExit,
    record::{Call, End, Entries, Entry, Line},
    scenario::{Expected, Scenario},
};
use contextd_proto::{self as pb, event::Payload, part::Content};

/// A violation by the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The name of the check, as listed in docs/conformance.md.
    pub check: &'static str,
    /// The violation, with the evidence.
    pub text: String,
}

/// All violations in a run.
pub(super) fn findings(scenario: &Scenario, entries: &Entries, events: &[pb::Event], ran: &DriverExit) -> Vec<Finding> {
    let mut checks = Checks { entries, turn: Turn::of(entries, events), found: Vec::new() };
    checks.process(ran);
    if scenario.expected == Expected::Refused {
        checks.refusal();
        return checks.found;
    }
    checks.requests();
    checks.waits();
    checks.approvals(ran);
    checks.calls(scenario.expected);
    checks.results(ran);
    checks.text(ran);
    checks.end(scenario.expected, ran);
    if checks.found.is_empty() {
        checks.scenario(scenario, events);
    }
    checks.found
}

/// The host's turn, as the server records it.
#[derive(Debug, Default)]
struct Turn {
    id: String,
    texts: Vec<String>,
    requested: BTreeMap<String, pb::ToolCall>,
    completed: BTreeSet<String>,
    approvals: BTreeMap<String, pb::ToolCall>,
    state: Option<&'static str>,
}

impl Turn {
    fn of(entries: &Entries, events: &[pb::Event]) -> Self {
        let request_id = executes(entries).next().map(|(_, it)| it.request_id.as_str());
        let started = events.iter().find(|event| {
            matches!(&event.payload, Some(Payload::TurnStarted(it)) if Some(it.request_id.as_str()) == request_id)
        });
        let mut turn = Self::default();
        let Some(started) = started else { return turn };
        turn.id.clone_from(&started.turn_id);
        for event in events.iter().filter(|event| event.turn_id == started.turn_id) {
            if let Some(payload) = &event.payload {
                turn.read(payload);
            }
        }
        turn
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most kinds of events do not matter here")]
    fn read(&mut self, payload: &Payload) {
        match payload {
            Payload::MessageCommitted(committed) => {
                let message = committed.message.as_ref();
                if let Some(message) = message.filter(|it| it.role() == pb::Role::Assistant) {
                    self.texts.push(text_of(&message.parts));
                }
            }
            Payload::ToolCallRequested(pending) => {
                let call = pending.call.clone().unwrap_or_default();
                self.requested.insert(call.call_id.clone(), call);
            }
            Payload::ApprovalRequested(pending) => {
                let call = pending.call.clone().unwrap_or_default();
                self.approvals.insert(call.call_id.clone(), call);
            }
            Payload::ToolCallCompleted(completed) => {
                let result = completed.result.as_ref();
                self.completed.extend(result.map(|it| it.call_id.clone()));
            }
            Payload::TurnCompleted(_) => self.state = Some("completed"),
            Payload::TurnCancelled(_) => self.state = Some("cancelled"),
            Payload::TurnFailed(_) => self.state = Some("failed"),
            _ => {}
        }
    }
}

struct Checks<'a> {
    entries: &'a Entries,
    turn: Turn,
    found: Vec<Finding>,
}

impl Checks<'_> {
    fn wrong(&mut self, check: &'static str, text: impl Into<String>) {
        let text = text.into();
        self.found.push(Finding { check, text });
    }

    /// Checks the driver: its output, exit code and time.
    fn process(&mut self, ran: &DriverExit) {
        for (_, entry) in self.entries {
            if let Entry::Garbage(line) = entry {
                self.wrong("driver.line", format!("wrote a line that is not valid output of a driver: {line:?}"));
            }
        }
        if ran.silent {
            let waited = self.entries.iter().find_map(|(_, entry)| {
                let Entry::Silent(patience) = entry else {
                    return None;
                };
                Some(patience.as_secs())
            });
            let waited = waited.unwrap_or_default();
            self.wrong("silence.waits", format!("stayed for {waited} s in a stream without even a heartbeat"));
        } else if ran.timed_out {
            self.wrong("host.hangs", format!("did not end within the timeout{}", self.last_fault(usize::MAX)));
        } else if ran.code != Some(0) {
            let code = ran.code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
            self.wrong("exit.code", format!("ended with {code}{}", self.last_fault(usize::MAX)));
        }
    }

    /// Checks that a request with a permanent error was not repeated.
    fn refusal(&mut self) {
        let sent = executes(self.entries).count();
        if sent > 1 {
            self.wrong(
                "refused.again",
                format!(
                    "sent ExecuteTurn {sent} times{}: a permanent error must not be retried",
                    self.last_fault(usize::MAX)
                ),
            );
        }
        let reported = lines(self.entries).any(|(_, line)| line.error.is_some());
        if !reported {
            self.wrong("refused.unreported", format!("did not report an error{}", self.last_fault(usize::MAX)));
        }
    }

    /// Checks the ExecuteTurn requests and their repetitions.
    fn requests(&mut self) {
        let all: Vec<(usize, &pb::ExecuteTurnRequest)> = executes(self.entries).collect();
        let Some((_, first)) = all.first() else {
            self.wrong("request.none", "never called ExecuteTurn");
            return;
        };
        if first.request_id.is_empty() {
            self.wrong(
                "request_id.empty",
                "called ExecuteTurn without a request_id: a lost connection cannot be resumed",
            );
        }
        for (index, again) in &all[1..] {
            let fault = self.last_fault(*index);
            if again.request_id != first.request_id {
                self.wrong("request_id.changed", format!("repeated ExecuteTurn with the request_id {:?} instead of {:?}{fault}: that starts a second turn", again.request_id, first.request_id));
                break;
            }
            if again.input != first.input {
                self.wrong("request.changed", format!("repeated ExecuteTurn with a different input{fault}"));
                break;
            }
        }
        for (index, again) in &all[1..] {
            let before = &self.entries[..*index];
            let seen = before.iter().filter_map(|(_, entry)| seq_of(entry)).max();
            let seen = seen.unwrap_or_default();
            let fault = self.last_fault(*index);
            if again.after_seq > seen {
                self.wrong("after_seq.ahead", format!("opened the stream after seq {}, but {seen} was the last one sent{fault}: the events between them are lost", again.after_seq));
            } else if again.after_seq < seen && !was_reset(before) {
                self.wrong("after_seq.behind", format!("opened the stream after seq {}, but {seen} was the last one sent{fault}: handled events are repeated", again.after_seq));
            }
        }
    }

    /// Checks that the host waited as long as the server requested.
    fn waits(&mut self) {
        for (index, (at, entry)) in self.entries.iter().enumerate() {
            let Entry::Fault(fault) = entry else { continue };
            if !fault.starts_with(FailureMode::Drain.words()) || fault.contains("SubmitToolResults") {
                continue;
            }
            let next = executes(self.entries).find(|(next, _)| *next > index);
            let Some((next, _)) = next else { continue };
            let waited = self.entries[next].0.saturating_sub(*at);
            if waited < DRAIN_RETRY_DELAY * 3 / 4 {
                self.wrong(
                    "retry.early",
                    format!(
                        "retried {} ms after {fault}, which requires {} ms",
                        waited.as_millis(),
                        DRAIN_RETRY_DELAY.as_millis()
                    ),
                );
            }
        }
    }

    fn approvals(&mut self, ran: &DriverExit) {
        let mut decisions = BTreeMap::new();
        for (_, request) in submits(self.entries) {
            for approval in &request.approvals {
                decisions.insert(approval.call_id.as_str(), approval.decision());
            }
        }
        let approvals = self.turn.approvals.clone();
        for (id, call) in &approvals {
            let args = arguments(&call.arguments_json);
            let keep = args["name"].as_str().is_some_and(|name| name.starts_with("keep"));
            let right = match keep {
                true => pb::ApprovalDecision::Deny,
                false => pb::ApprovalDecision::Approve,
            };
            match decisions.get(id.as_str()) {
                Some(decision) if *decision == right => {}
                Some(decision) => self.wrong(
                    "approval.wrong",
                    format!(
                        "decided {} for the call {id} of `{}` with {}",
                        decision.as_str_name(),
                        call.tool_name,
                        call.arguments_json
                    ),
                ),
                None if ran.timed_out || self.turn.state.is_some() => self.wrong(
                    "approval.unanswered",
                    format!(
                        "never decided whether the call {id} of `{}` may run{}",
                        call.tool_name,
                        self.last_fault(usize::MAX)
                    ),
                ),
                None => {}
            }
        }
    }

    /// Checks which tools were run.
    fn calls(&mut self, expected: Expected) {
        let mut begun: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, line) in lines(self.entries) {
            let Some(tool) = &line.tool else { continue };
            let id = line.call.as_str();
            let fault = self.last_fault(index);
            if begun.insert(id, index).is_some() {
                self.wrong("calls.twice", format!("ran the call {id} of `{tool}` twice{fault}"));
                continue;
            }
            let Some(call) = self.turn.requested.get(id) else {
                self.wrong(
                    "calls.unasked",
                    format!("ran the call {id} of `{tool}`, which the server did not request{fault}"),
                );
                continue;
            };
            let asked = arguments(&call.arguments_json);
            if *tool != call.tool_name || line.args != asked {
                let text = format!(
                    "ran the call {id} as `{tool}` with {}, but `{}` with {asked} was requested",
                    line.args, call.tool_name
                );
                self.wrong("calls.args", text);
            }
        }
        if expected == Expected::Completed {
            let missing: Vec<String> = self
                .turn
                .requested
                .values()
                .filter(|call| !begun.contains_key(call.call_id.as_str()))
                .map(|call| format!("the call {} of `{}`", call.call_id, call.tool_name))
                .collect();
            if !missing.is_empty() {
                self.wrong(
                    "calls.missing",
                    format!("never ran {}{}", missing.join(" and "), self.last_fault(usize::MAX)),
                );
            }
        }
    }

    /// Checks the submitted results.
    fn results(&mut self, ran: &DriverExit) {
        let mut first: BTreeMap<&str, (&pb::ToolResult, usize)> = BTreeMap::new();
        let mut changed = Vec::new();
        for (index, request) in submits(self.entries) {
            for result in &request.results {
                let (before, _) = *first.entry(result.call_id.as_str()).or_insert((result, index));
                if before.parts != result.parts || before.outcome != result.outcome {
                    changed.push((result.call_id.clone(), index));
                }
            }
        }
        for (id, index) in changed {
            self.wrong(
                "results.changed",
                format!("submitted two different results of the call {id}{}", self.last_fault(index)),
            );
        }
        let open = lines(self.entries).filter(|(_, line)| line.tool.is_some());
        let open = open.filter(|(_, line)| {
            !self.turn.completed.contains(&line.call) && self.turn.requested.contains_key(&line.call)
        });
        let open: Vec<String> = open.map(|(_, line)| line.call.clone()).collect();
        if (ran.timed_out || ran.code != Some(0)) && !open.is_empty() && self.turn.state.is_none() {
            self.wrong(
                "results.missing",
                format!("ran {}, but its result never arrived{}", open.join(", "), self.last_fault(usize::MAX)),
            );
        }
    }

    /// Checks the text shown to the user.
    fn text(&mut self, ran: &DriverExit) {
        let mut shown = String::new();
        for (_, line) in lines(self.entries) {
            if line.reset {
                shown.truncate(whole_answers(&shown, &self.turn.texts));
            }
            shown.push_str(line.text.as_deref().unwrap_or_default());
        }
        let said = self.turn.texts.concat();
        let fault = self.last_fault(usize::MAX);
        if shown == said {
        } else if shown.len() > said.len() {
            // A turn that still runs may have produced more text than is committed.
            if self.turn.state.is_some() {
                self.wrong(
                    "text.extra",
                    format!(
                        "showed void text, or text twice{fault}: {}, but the text of the turn is {}",
                        short(&shown),
                        short(&said)
                    ),
                );
            }
        } else if !is_part(&shown, &said) {
            self.wrong(
                "text.wrong",
                format!("showed {}, but the text of the turn is {}{fault}", short(&shown), short(&said)),
            );
        } else if !ran.timed_out && !ran.silent && self.turn.state.is_some() {
            self.wrong("text.missing", format!("showed only {} of {}{fault}", short(&shown), short(&said)));
        }
    }

    /// Checks the end that the driver reported.
    fn end(&mut self, expected: Expected, ran: &DriverExit) {
        let error = lines(self.entries).find_map(|(index, line)| Some((index, line.error.clone()?)));
        if let Some((index, error)) = error {
            self.wrong("end.error", format!("gave up with the error {error:?}{}", self.last_fault(index)));
            return;
        }
        let end: Option<End> = lines(self.entries).find_map(|(_, line)| line.end.clone());
        let Some(end) = end else {
            if !ran.timed_out && !ran.silent {
                self.wrong("end.missing", format!("ended without reporting an end{}", self.last_fault(usize::MAX)));
            }
            return;
        };
        let fault = self.last_fault(usize::MAX);
        let Some(state) = self.turn.state else {
            self.wrong("end.early", format!("reported the end of a turn that is still running{fault}"));
            return;
        };
        if !end.state.eq_ignore_ascii_case(state) {
            self.wrong("end.state", format!("reported the state {:?} of a turn that is {state}", end.state));
        }
        if let Some(turn) = end.turn.filter(|turn| *turn != self.turn.id) {
            self.wrong("end.turn", format!("reported the end of turn {turn:?}, but its turn was {:?}", self.turn.id));
        }
        let last = self.turn.texts.last().cloned().unwrap_or_default();
        if let Some(text) = end.text.filter(|text| expected == Expected::Completed && *text != last) {
            self.wrong(
                "end.text",
                format!("reported the text {} of a turn whose last message is {}", short(&text), short(&last)),
            );
        }
    }

    /// Checks that the scenario happened as intended.
    fn scenario(&mut self, scenario: &Scenario, events: &[pb::Event]) {
        let said = self.turn.texts.concat();
        if let Some(expected) = scenario.says.filter(|expected| *expected != said) {
            self.wrong(
                "results.wrong",
                format!(
                    "with its results the text of the turn is {}, but {} was expected",
                    short(&said),
                    short(expected)
                ),
            );
        }
        if !events.iter().filter_map(|event| event.payload.as_ref()).any(scenario.shows) {
            self.wrong("kit.scenario", "the event that the scenario tests did not happen in this run");
        }
        for (_, entry) in self.entries {
            if let Entry::Fault(fault) = entry
                && fault.starts_with("a failure of the kit")
            {
                self.found.push(Finding { check: "kit.scenario", text: fault.clone() });
            }
        }
    }

    /// Describes the last fault before an entry.
    fn last_fault(&self, index: usize) -> String {
        let before = &self.entries[..index.min(self.entries.len())];
        let last = faults(before).next_back();
        last.map(|fault| format!(", after {fault}")).unwrap_or_default()
    }
}

fn executes(entries: &Entries) -> impl Iterator<Item = (usize, &pb::ExecuteTurnRequest)> {
    entries.iter().enumerate().filter_map(|(index, (_, entry))| {
        let Entry::Call(Call::Execute(request)) = entry else {
            return None;
        };
        Some((index, request.as_ref()))
    })
}

fn submits(entries: &Entries) -> impl Iterator<Item = (usize, &pb::SubmitToolResultsRequest)> {
    entries.iter().enumerate().filter_map(|(index, (_, entry))| {
        let Entry::Call(Call::Submit(request)) = entry else {
            return None;
        };
        Some((index, request))
    })
}

fn lines(entries: &Entries) -> impl Iterator<Item = (usize, &Line)> {
    entries.iter().enumerate().filter_map(|(index, (_, entry))| {
        let Entry::Line(line) = entry else {
            return None;
        };
        Some((index, line))
    })
}

fn faults(entries: &[(Duration, Entry)]) -> impl DoubleEndedIterator<Item = &String> {
    entries.iter().filter_map(|(_, entry)| {
        let Entry::Fault(fault) = entry else {
            return None;
        };
        Some(fault)
    })
}

fn seq_of(entry: &Entry) -> Option<i64> {
    let Entry::Sent(event) = entry else {
        return None;
    };
    Some(event.seq)
}

/// Whether the last fault was a reset, after which the last messages may not have arrived.
fn was_reset(before: &[(Duration, Entry)]) -> bool {
    let last = faults(before).next_back();
    last.is_some_and(|fault| fault.starts_with(FailureMode::Reset.words()))
}

/// Whether the text is the whole text with some characters missing.
fn is_part(text: &str, whole: &str) -> bool {
    let mut whole = whole.chars();
    text.chars().all(|next| whole.any(|it| it == next))
}

/// The length of the shown text that consists of complete responses; a reset discards the rest.
fn whole_answers(shown: &str, texts: &[String]) -> usize {
    let mut whole = 0;
    for text in texts {
        if !shown[whole..].starts_with(text.as_str()) {
            break;
        }
        whole += text.len();
    }
    whole
}

fn text_of(parts: &[pb::Part]) -> String {
    let texts = parts.iter().filter_map(|part| {
        let (Content::Text(text) | Content::Refusal(text)) = part.content.as_ref()? else {
            return None;
        };
        Some(text.as_str())
    });
    texts.collect()
}

fn arguments(json: &str) -> serde_json::Value {
    serde_json::from_str(json).unwrap_or_default()
}

/// A shortened text for a finding.
fn short(text: &str) -> String {
    const MOST: usize = 160;
    if text.chars().count() <= MOST {
        return format!("{text:?}");
    }
    let head: String = text.chars().take(MOST).collect();
    format!("{head:?}... ({} characters)", text.chars().count())
}
