//! Requests as a host would write them.

use contextd::pb;

/// A text part.
pub fn text(text: &str) -> pb::Part {
    pb::Part {
        content: Some(pb::part::Content::Text(text.to_owned())),
        ..pb::Part::default()
    }
}

/// A user message.
pub fn input(words: &str) -> pb::InputMessage {
    pb::InputMessage {
        parts: vec![text(words)],
        ..pb::InputMessage::default()
    }
}

/// A turn in a session that is created if there is none.
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

/// A message for the queue.
pub fn enqueue(session: &str, words: &str) -> pb::EnqueueMessageRequest {
    pb::EnqueueMessageRequest {
        session_id: session.to_owned(),
        request_id: uuid::Uuid::now_v7().to_string(),
        message: Some(input(words)),
        ..pb::EnqueueMessageRequest::default()
    }
}

/// A tool of the host's without further ado.
pub fn tool(name: &str) -> pb::Tool {
    pb::Tool {
        name: name.to_owned(),
        description: format!("does {name}"),
        ..pb::Tool::default()
    }
}

/// Tools of the host's.
pub fn tools(names: &[&str]) -> Option<pb::ToolSet> {
    Some(pb::ToolSet {
        host_tools: names.iter().map(|name| tool(name)).collect(),
        ..pb::ToolSet::default()
    })
}

/// A successful result.
pub fn result(call: &str, words: &str) -> pb::ToolResult {
    pb::ToolResult {
        call_id: call.to_owned(),
        parts: vec![text(words)],
        ..pb::ToolResult::default()
    }
}

/// A submission of results.
pub fn submit(session: &str, results: Vec<pb::ToolResult>) -> pb::SubmitToolResultsRequest {
    pb::SubmitToolResultsRequest {
        session_id: session.to_owned(),
        results,
        ..pb::SubmitToolResultsRequest::default()
    }
}

/// A tool of the host's that a person is asked about first.
pub fn careful(name: &str) -> pb::Tool {
    pb::Tool {
        requires_approval: true,
        ..tool(name)
    }
}

/// A yes to a call.
pub fn approve(call: &str) -> pb::Approval {
    pb::Approval {
        call_id: call.to_owned(),
        decision: pb::ApprovalDecision::Approve.into(),
        ..pb::Approval::default()
    }
}

/// A no to a call.
pub fn deny(call: &str, reason: &str) -> pb::Approval {
    pb::Approval {
        call_id: call.to_owned(),
        decision: pb::ApprovalDecision::Deny.into(),
        reason: reason.to_owned(),
        ..pb::Approval::default()
    }
}

/// A submission of decisions.
pub fn decide(session: &str, approvals: Vec<pb::Approval>) -> pb::SubmitToolResultsRequest {
    pb::SubmitToolResultsRequest {
        approvals,
        ..submit(session, Vec::new())
    }
}

/// A session whose tools run one after the other.
pub fn one_by_one() -> Option<pb::Session> {
    let tools = pb::ToolPolicy {
        execution: pb::ToolExecution::Sequential.into(),
        ..pb::ToolPolicy::default()
    };
    let policy = pb::Policy {
        tools: Some(tools),
        ..pb::Policy::default()
    };
    Some(pb::Session {
        policy_overrides: Some(policy),
        ..pb::Session::default()
    })
}

/// Results are cleared whatever it saves, but for the newest so many tokens of them.
pub fn clears(mode: pb::PruneMode, protect_tokens: i32) -> pb::PrunePolicy {
    pb::PrunePolicy {
        mode: mode.into(),
        minimum_tokens: Some(0),
        protect_tokens: Some(protect_tokens),
        protect_turns: Some(0),
        ..pb::PrunePolicy::default()
    }
}
