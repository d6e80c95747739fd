//! Requests as a host would write them.

use contextd::pb;

/// A text part.
pub fn text(text: &str) -> pb::Part {
    pb::Part { content: Some(pb::part::Content::Text(text.to_owned())), ..pb::Part::default() }
}

/// A user message.
pub fn input(words: &str) -> pb::InputMessage {
    pb::InputMessage { parts: vec![text(words)], ..pb::InputMessage::default() }
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

/// A tool of the host's without further ado.
pub fn tool(name: &str) -> pb::Tool {
    pb::Tool { name: name.to_owned(), description: format!("does {name}"), ..pb::Tool::default() }
}

/// Tools of the host's.
pub fn tools(names: &[&str]) -> Option<pb::ToolSet> {
    Some(pb::ToolSet { host_tools: names.iter().map(|name| tool(name)).collect(), provider_tools: Vec::new() })
}

/// A successful result.
pub fn result(call: &str, words: &str) -> pb::ToolResult {
    pb::ToolResult { call_id: call.to_owned(), parts: vec![text(words)], ..pb::ToolResult::default() }
}

/// A submission of results.
pub fn submit(session: &str, results: Vec<pb::ToolResult>) -> pb::SubmitToolResultsRequest {
    pb::SubmitToolResultsRequest { session_id: session.to_owned(), results, ..pb::SubmitToolResultsRequest::default() }
}
