//! The message order that strict chat templates accept, such as those of Mistral and Gemma. A request to a service that
//! may have such a template must follow it.

use serde_json::Value;

/// Why a strict template refuses these messages. Returns `None` if it accepts them.
pub fn refusal(messages: &Value) -> Option<String> {
    let messages = messages.as_array().cloned().unwrap_or_default();
    let role = |at: usize| messages[at]["role"].as_str().unwrap_or_default();
    let mut open: Vec<&str> = Vec::new();
    let mut spoken = 0;
    for (at, message) in messages.iter().enumerate() {
        let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
        if role(at) != "tool" && !open.is_empty() {
            return Some(format!("message {at}: not the same number of calls and results"));
        }
        match role(at) {
            "system" | "developer" if at == 0 => continue,
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                match open.iter().position(|call| *call == id) {
                    Some(call) => drop(open.remove(call)),
                    None => return Some(format!("message {at}: a result without its call")),
                }
                continue;
            }
            "user" | "assistant" => {}
            other => return Some(format!("message {at}: the role {other} is not taken here")),
        }
        open.extend(calls.iter().filter_map(|call| call["id"].as_str()));
        if at > 0 && role(at) == role(at - 1) {
            return Some(format!("message {at}: {} follows itself", role(at)));
        }
        // As in Mistral's template, an assistant message with tool calls is skipped.
        if calls.is_empty() {
            let expected = if spoken % 2 == 0 { "user" } else { "assistant" };
            if role(at) != expected {
                return Some(format!("message {at}: conversation roles must alternate user/assistant/user/..."));
            }
            spoken += 1;
        } else if spoken == 0 {
            return Some(format!("message {at}: no user speaks first"));
        }
    }
    (!open.is_empty()).then(|| "calls without results at the end".to_owned())
}
