//! A host on the generated stubs, as its author would write it, and the same host with one fault.

use std::{
    collections::BTreeSet,
    fs::File,
    io::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use contextd::pb::{self, event::Payload, part::Content, turn_service_client::TurnServiceClient};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tonic::{Code, Status, transport::Channel};
use tonic_types::StatusExt as _;

/// The variable that names the fault.
pub(super) const FAULT: &str = "HOST_FAULT";
/// Minimum interval between heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(1);
const BACKOFF: Duration = Duration::from_millis(60);

/// The fault of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    RunsCallsAgain,
    ForgetsTheCursor,
    SkipsAnEvent,
    ShowsTextTwice,
    IgnoresTheRest,
    NewRequestId,
    NoRequestId,
    ChangesResults,
    SubmitsOnce,
    LeavesApprovals,
    RunsDeniedCalls,
    ApprovesEverything,
    RepeatsRefusals,
    FailsOnUnknown,
    ForgetsUnknownSeqs,
    NeverComesBack,
    EndsWithTheStream,
    KeepsVoidText,
    WaitsInSilence,
    ComesBackEarly,
    FailsOnStale,
    AddsWrongly,
    RunsOneCallOnly,
    MisreadsArguments,
    /// Not a fault: the slow tool is quick.
    HurriesTools,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the host under test, which the conformance kit starts"]
async fn plays_the_host() {
    let named = |name: &str| std::env::var_os(name).unwrap().into_string().unwrap();
    let variable = |name: &str| named(&format!("CONTEXTD_{name}"));
    let fault = named(FAULT);
    let fault = super::FAULTS
        .iter()
        .map(|(fault, _, _)| *fault)
        .chain([Fault::HurriesTools])
        .find(|known| format!("{known:?}") == fault)
        .unwrap_or(Fault::None);
    let channel = Channel::from_shared(variable("URL")).unwrap().connect_lazy();
    let shared = Shared {
        fault,
        session: variable("CONFORMANCE_SESSION"),
        turns: TurnServiceClient::new(channel),
        lines: Arc::new(Mutex::new(File::options().write(true).open("/dev/fd/3").unwrap())),
    };
    let host = Host {
        shared: shared.clone(),
        request_id: uuid::Uuid::now_v7().to_string(),
        cursor: 0,
        begun: BTreeSet::new(),
        open: None,
        last: String::new(),
        end: None,
    };
    let input = variable("CONFORMANCE_INPUT");
    match host.run(&input).await {
        Ok(end) => shared.say(&json!({ "end": end })),
        Err(status) => shared.say(&json!({ "error": status.to_string() })),
    }
    if fault == Fault::FailsOnStale {
        // Waits for the tools that the interrupt left running, and for the receipts of their results.
        sleep(Duration::from_secs(3)).await;
    }
    // Does not wait for tools that are still running.
    std::process::exit(0);
}

/// The state shared with the tasks of tools.
#[derive(Clone)]
struct Shared {
    fault: Fault,
    session: String,
    turns: TurnServiceClient<Channel>,
    lines: Arc<Mutex<File>>,
}

impl Shared {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn say(&self, line: &Value) {
        writeln!(self.lines.lock().unwrap(), "{line}").unwrap();
    }

    async fn run_call(self, call: pb::ToolCall) {
        let mut args: Value = serde_json::from_str(&call.arguments_json).unwrap();
        if self.has(Fault::MisreadsArguments) {
            args = json!({});
        }
        self.say(&json!({ "tool": call.tool_name, "call": call.call_id, "args": args }));
        let number = |name: &str| args[name].as_u64().unwrap_or_default();
        let wrong = u64::from(self.has(Fault::AddsWrongly));
        let output = match call.tool_name.as_str() {
            "add" => (number("a") + number("b") + wrong).to_string(),
            "slow" => {
                if !self.has(Fault::HurriesTools) {
                    sleep(Duration::from_millis(number("ms"))).await;
                }
                "done".to_owned()
            }
            "large" => "x".repeat(usize::try_from(number("chars")).unwrap()),
            _ => format!("deleted {}", args["name"].as_str().unwrap()),
        };
        let mut result = pb::ToolResult {
            call_id: call.call_id,
            outcome: pb::ToolOutcome::Success.into(),
            parts: vec![text(&output)],
            ..pb::ToolResult::default()
        };
        let mut tries = 0;
        while !self.submit(vec![result.clone()], vec![]).await && !self.has(Fault::SubmitsOnce) {
            tries += 1;
            if self.has(Fault::ChangesResults) {
                result.parts = vec![text(&format!("{output}{tries}"))];
            }
        }
    }

    async fn decide(self, call: pb::ToolCall) {
        let args: Value = serde_json::from_str(&call.arguments_json).unwrap();
        let keep = args["name"].as_str().unwrap().starts_with("keep");
        let decision = match keep && !self.has(Fault::ApprovesEverything) {
            true => pb::ApprovalDecision::Deny,
            false => pb::ApprovalDecision::Approve,
        };
        let approval = pb::Approval { call_id: call.call_id, decision: decision.into(), ..pb::Approval::default() };
        while !self.submit(vec![], vec![approval.clone()]).await {}
    }

    /// Returns whether the submission succeeded. Waits before returning `false`.
    async fn submit(&self, results: Vec<pb::ToolResult>, approvals: Vec<pb::Approval>) -> bool {
        let request = pb::SubmitToolResultsRequest {
            session_id: self.session.clone(),
            results,
            approvals,
            ..pb::SubmitToolResultsRequest::default()
        };
        match self.turns.clone().submit_tool_results(request).await {
            Ok(response) => {
                let receipts = response.into_inner().receipts;
                let stale = receipts.iter().any(|it| it.status() == pb::AnswerStatus::Stale);
                if stale && self.has(Fault::FailsOnStale) {
                    std::process::exit(7);
                }
                true
            }
            Err(status) => {
                sleep(wait_of(&status)).await;
                false
            }
        }
    }
}

/// The state of one turn.
struct Host {
    shared: Shared,
    request_id: String,
    cursor: i64,
    begun: BTreeSet<String>,
    /// The message that is being written: its id, and the text shown so far.
    open: Option<(String, String)>,
    last: String,
    end: Option<Value>,
}

impl Host {
    async fn run(mut self, input: &str) -> Result<Value, Status> {
        loop {
            let request = self.request(input);
            let opened = self.shared.turns.clone().execute_turn(request).await;
            let status = match opened {
                Ok(response) => match self.read(response.into_inner()).await {
                    Ok(()) => return Ok(self.end.unwrap()),
                    Err(status) => status,
                },
                Err(status) => status,
            };
            if self.has(Fault::EndsWithTheStream) {
                return Ok(json!({ "state": "completed", "text": self.last }));
            }
            let passes = !matches!(status.code(), Code::InvalidArgument | Code::PermissionDenied);
            let again = passes || self.has(Fault::RepeatsRefusals);
            if !again || self.has(Fault::NeverComesBack) {
                return Err(status);
            }
            let asked = wait_of(&status);
            sleep(if self.has(Fault::ComesBackEarly) { BACKOFF } else { asked }).await;
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.shared.has(fault)
    }

    fn request(&self, input: &str) -> pb::ExecuteTurnRequest {
        let request_id = match self.shared.fault {
            Fault::NewRequestId => uuid::Uuid::now_v7().to_string(),
            Fault::NoRequestId => String::new(),
            _ => self.request_id.clone(),
        };
        let after_seq = match self.shared.fault {
            Fault::ForgetsTheCursor => 0,
            Fault::SkipsAnEvent if self.cursor > 0 => self.cursor + 1,
            _ => self.cursor,
        };
        pb::ExecuteTurnRequest {
            session_id: self.shared.session.clone(),
            request_id,
            after_seq,
            input: Some(pb::InputMessage { parts: vec![text(input)], ..pb::InputMessage::default() }),
            tools: Some(pb::ToolSet { host_tools: tools(), ..pb::ToolSet::default() }),
            stream: Some(pb::StreamOptions {
                heartbeat_interval: HEARTBEAT.try_into().ok(),
                ..pb::StreamOptions::default()
            }),
            ..pb::ExecuteTurnRequest::default()
        }
    }

    async fn read(&mut self, mut stream: tonic::Streaming<pb::ExecuteTurnResponse>) -> Result<(), Status> {
        loop {
            let patience = match self.has(Fault::WaitsInSilence) {
                true => Duration::from_secs(3600),
                false => HEARTBEAT * 4,
            };
            let next = timeout(patience, stream.message()).await;
            let silent = |_| Status::unavailable("the stream is silent");
            let Some(response) = next.map_err(silent)?? else {
                return match self.end {
                    Some(_) => Ok(()),
                    None => Err(Status::unavailable("the stream ended before its turn")),
                };
            };
            let event = response.event.unwrap_or_default();
            if event.seq > 0 && event.seq <= self.cursor {
                continue;
            }
            let known = event.payload.is_some();
            if !known && self.has(Fault::FailsOnUnknown) {
                std::process::exit(7);
            }
            let seq = event.seq;
            self.handle(event);
            if known || !self.has(Fault::ForgetsUnknownSeqs) {
                self.cursor = self.cursor.max(seq);
            }
        }
    }

    fn handle(&mut self, event: pb::Event) {
        let replay = event.replay;
        let turn = event.turn_id;
        match event.payload {
            Some(Payload::TextDelta(delta)) => {
                let offset = usize::try_from(delta.byte_offset).unwrap();
                self.delta(&delta.message_id, offset, &delta.text);
            }
            Some(Payload::Sync(sync)) => self.sync(sync),
            Some(Payload::MessageCommitted(committed)) => {
                let message = committed.message.unwrap_or_default();
                if message.role() == pb::Role::Assistant {
                    self.last = text_of(&message);
                    self.whole(&message.message_id, &text_of(&message));
                    self.open = None;
                }
            }
            Some(Payload::TurnRetrying(_) | Payload::TurnRecovered(_)) => self.void(),
            Some(Payload::ToolCallRequested(pending)) if !replay => self.begin(pending),
            Some(Payload::ApprovalRequested(pending)) if !replay => self.ask(pending),
            Some(Payload::TurnCompleted(_)) => self.finish("completed", &turn),
            Some(Payload::TurnCancelled(_)) => self.finish("cancelled", &turn),
            Some(Payload::TurnFailed(_)) => self.finish("failed", &turn),
            _ => {}
        }
    }

    fn finish(&mut self, state: &str, turn: &str) {
        self.end = Some(json!({ "state": state, "text": self.last, "turn": turn }));
    }

    fn sync(&mut self, sync: pb::Sync) {
        if let Some(message) = sync.open_message.filter(|_| !self.has(Fault::IgnoresTheRest)) {
            if self.has(Fault::ShowsTextTwice) {
                self.open = None;
            }
            self.whole(&message.message_id, &text_of(&message));
        }
        for pending in sync.pending_calls {
            self.begin(pending);
        }
        for pending in sync.pending_approvals {
            self.ask(pending);
        }
    }

    fn whole(&mut self, id: &str, all: &str) {
        if !self.has(Fault::IgnoresTheRest) {
            self.delta(id, 0, all);
        }
    }

    /// Shows the new part of a piece of text.
    fn delta(&mut self, id: &str, offset: usize, piece: &str) {
        if self.open.as_ref().is_some_and(|(open, _)| open != id) {
            self.void();
        }
        let (_, shown) = self.open.get_or_insert_with(|| (id.to_owned(), String::new()));
        let known = shown.len();
        if offset > known || offset + piece.len() <= known {
            return;
        }
        let new = &piece[known - offset..];
        shown.push_str(new);
        self.shared.say(&json!({ "text": new }));
    }

    /// Discards what was shown of the open message.
    fn void(&mut self) {
        let shown = self.open.take().is_some_and(|(_, shown)| !shown.is_empty());
        if shown && !self.has(Fault::KeepsVoidText) {
            self.shared.say(&json!({ "reset": true }));
        }
    }

    fn begin(&mut self, pending: pb::PendingCall) {
        let call = pending.call.unwrap_or_default();
        if self.has(Fault::RunsOneCallOnly) && !self.begun.is_empty() {
            return;
        }
        if self.begun.insert(call.call_id.clone()) || self.has(Fault::RunsCallsAgain) {
            tokio::spawn(self.shared.clone().run_call(call));
        }
    }

    fn ask(&mut self, pending: pb::PendingApproval) {
        let call = pending.call.unwrap_or_default();
        if self.has(Fault::LeavesApprovals) || !self.begun.insert(format!("? {}", call.call_id)) {
            return;
        }
        if self.has(Fault::RunsDeniedCalls) {
            tokio::spawn(self.shared.clone().run_call(call.clone()));
        }
        tokio::spawn(self.shared.clone().decide(call));
    }
}

/// How long to wait after a failed call.
fn wait_of(status: &Status) -> Duration {
    let asked = status.get_details_retry_info().and_then(|it| it.retry_delay);
    asked.unwrap_or(BACKOFF).max(BACKOFF)
}

fn tools() -> Vec<pb::Tool> {
    let tool = |name: &str, arguments: Value, requires_approval| pb::Tool {
        name: name.to_owned(),
        input_schema: Some(pb::JsonSchema {
            schema: Some(pb::json_schema::Schema::Json(
                json!({ "type": "object", "properties": arguments }).to_string(),
            )),
        }),
        requires_approval,
        ..pb::Tool::default()
    };
    let integer = json!({ "type": "integer" });
    vec![
        tool("add", json!({ "a": integer, "b": integer }), false),
        tool("slow", json!({ "ms": integer }), false),
        tool("large", json!({ "chars": integer }), false),
        tool("delete", json!({ "name": { "type": "string" } }), true),
    ]
}

fn text(text: &str) -> pb::Part {
    pb::Part { content: Some(Content::Text(text.to_owned())), ..pb::Part::default() }
}

fn text_of(message: &pb::Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match &part.content {
        Some(Content::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}
