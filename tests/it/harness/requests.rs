//! Requests as a host would send them.

use contextd::pb;

pub fn text(text: &str) -> pb::Part {
    pb::Part { content: Some(pb::part::Content::Text(text.to_owned())), ..pb::Part::default() }
}

/// A user message.
pub fn input(words: &str) -> pb::InputMessage {
    pb::InputMessage { parts: vec![text(words)], ..pb::InputMessage::default() }
}

/// A request for a turn; the session is created if it does not exist.
pub fn turn(session: &str, model: &str, words: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest {
        session_id: session.to_owned(),
        request_id: uuid::Uuid::now_v7().to_string(),
        input: Some(input(words)),
        model: model.to_owned(),
        session: Some(pb::Session::default()),
        busy_policy: pb::BusyPolicy::Reject.into(),
        ..pb::ExecuteTurnRequest::default()
    }
}

/// A request to enqueue a message.
pub fn enqueue(session: &str, words: &str) -> pb::EnqueueMessageRequest {
    pb::EnqueueMessageRequest {
        session_id: session.to_owned(),
        request_id: uuid::Uuid::now_v7().to_string(),
        message: Some(input(words)),
        ..pb::EnqueueMessageRequest::default()
    }
}

/// A host tool with only a name.
pub fn tool(name: &str) -> pb::Tool {
    pb::Tool { name: name.to_owned(), description: format!("does {name}"), ..pb::Tool::default() }
}

/// A tool set with host tools of these names.
pub fn tools(names: &[&str]) -> Option<pb::ToolSet> {
    Some(pb::ToolSet { host_tools: names.iter().map(|name| tool(name)).collect(), ..pb::ToolSet::default() })
}

/// A successful result of a call.
pub fn result(call: &str, words: &str) -> pb::ToolResult {
    pb::ToolResult { call_id: call.to_owned(), parts: vec![text(words)], ..pb::ToolResult::default() }
}

/// A request that submits results.
pub fn submit(session: &str, results: Vec<pb::ToolResult>) -> pb::SubmitToolResultsRequest {
    pb::SubmitToolResultsRequest { session_id: session.to_owned(), results, ..pb::SubmitToolResultsRequest::default() }
}

/// A host tool that requires approval.
pub fn careful(name: &str) -> pb::Tool {
    pb::Tool { requires_approval: true, ..tool(name) }
}

/// An approval of a call.
pub fn approve(call: &str) -> pb::Approval {
    pb::Approval { call_id: call.to_owned(), decision: pb::ApprovalDecision::Approve.into(), ..pb::Approval::default() }
}

/// A denial of a call.
pub fn deny(call: &str, reason: &str) -> pb::Approval {
    pb::Approval {
        call_id: call.to_owned(),
        decision: pb::ApprovalDecision::Deny.into(),
        reason: reason.to_owned(),
        ..pb::Approval::default()
    }
}

/// A request that submits approvals and denials.
pub fn decide(session: &str, approvals: Vec<pb::Approval>) -> pb::SubmitToolResultsRequest {
    pb::SubmitToolResultsRequest { approvals, ..submit(session, Vec::new()) }
}

/// A session whose tools run sequentially.
pub fn one_by_one() -> Option<pb::Session> {
    let tools = pb::ToolPolicy { execution: pb::ToolExecution::Sequential.into(), ..pb::ToolPolicy::default() };
    let policy = pb::Policy { tools: Some(tools), ..pb::Policy::default() };
    Some(pb::Session { policy_overrides: Some(policy), ..pb::Session::default() })
}

/// A prune policy that clears results regardless of the savings, except the newest `protect_tokens` tokens.
pub fn clears(mode: pb::PruneMode, protect_tokens: i32) -> pb::PrunePolicy {
    pb::PrunePolicy {
        mode: mode.into(),
        minimum_tokens: Some(0),
        protect_tokens: Some(protect_tokens),
        protect_turns: Some(0),
        ..pb::PrunePolicy::default()
    }
}
