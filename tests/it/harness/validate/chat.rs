//! What Chat Completions refuses.

use serde_json::Value;

use super::{Checked, ensure, is_name, items, reasons, repeated, word};

/// Why OpenAI refuses the request; `None` if it takes it.
pub fn refusal(body: &Value) -> Option<String> {
    settings(body)
        .and_then(|()| tools(body))
        .and_then(|()| messages(items(&body["messages"])))
        .err()
}

fn settings(body: &Value) -> Checked {
    ensure(!word(&body["model"]).is_empty(), || {
        "you must provide a model parameter".to_owned()
    })?;
    ensure(
        !reasons(word(&body["model"])) || body["temperature"].is_null(),
        || "Unsupported parameter: 'temperature' is not supported with this model.".to_owned(),
    )
}

fn tools(body: &Value) -> Checked {
    let tools = items(&body["tools"]);
    if body["tools"].is_null() {
        for setting in ["tool_choice", "parallel_tool_calls"] {
            ensure(body[setting].is_null(), || {
                format!("'{setting}' is only allowed when 'tools' are specified.")
            })?;
        }
        return Ok(());
    }
    ensure(!tools.is_empty(), || empty("tools"))?;
    for (at, tool) in tools.iter().enumerate() {
        let function = &tool["function"];
        name(
            &format!("tools[{at}].function.name"),
            word(&function["name"]),
        )?;
        let schema = &function["parameters"];
        ensure(schema.is_null() || schema["type"] == "object", || {
            format!(
                "Invalid schema for function '{}': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{}\"'.",
                word(&function["name"]),
                schema["type"].as_str().unwrap_or("None")
            )
        })?;
    }
    let forced = &body["tool_choice"]["function"]["name"];
    let known = |tool: &Value| tool["function"]["name"] == *forced;
    ensure(forced.is_null() || tools.iter().any(known), || {
        format!("Tool choice {forced} not found in 'tools' parameter.")
    })
}

fn name(place: &str, name: &str) -> Checked {
    ensure(is_name(name, 64, &['_', '-']), || {
        format!(
            "Invalid '{place}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        )
    })
}

fn empty(place: &str) -> String {
    format!(
        "Invalid '{place}': empty array. Expected an array with minimum length 1, but got an empty array instead."
    )
}

fn messages(messages: &[Value]) -> Checked {
    ensure(!messages.is_empty(), || empty("messages"))?;
    let mut open: Vec<&str> = Vec::new();
    let mut in_batch = false;
    for (at, message) in messages.iter().enumerate() {
        let role = word(&message["role"]);
        if role == "tool" {
            ensure(in_batch, || {
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                    .to_owned()
            })?;
            let id = word(&message["tool_call_id"]);
            let call = open.iter().position(|call| *call == id);
            let call = call.ok_or_else(|| {
                format!(
                    "Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message."
                )
            })?;
            open.remove(call);
            content(at, &message["content"])?;
            continue;
        }
        unanswered(&open)?;
        in_batch = false;
        match role {
            "system" | "developer" | "user" => content(at, &message["content"])?,
            "assistant" => {
                open = assistant(at, message)?;
                in_batch = !open.is_empty();
            }
            other => {
                return Err(format!(
                    "Invalid value: '{other}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'."
                ));
            }
        }
    }
    unanswered(&open)
}

fn unanswered(open: &[&str]) -> Checked {
    ensure(open.is_empty(), || {
        format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            open.join(", ")
        )
    })
}

/// The ids of what it calls.
fn assistant(at: usize, message: &Value) -> Result<Vec<&str>, String> {
    let calls = items(&message["tool_calls"]);
    ensure(message["tool_calls"].is_null() || !calls.is_empty(), || {
        empty(&format!("messages[{at}].tool_calls"))
    })?;
    if calls.is_empty() && message["refusal"].is_null() {
        content(at, &message["content"])?;
    }
    for (number, call) in calls.iter().enumerate() {
        let place = format!("messages[{at}].tool_calls[{number}]");
        ensure(call["type"] == "function", || {
            format!("Missing required parameter: '{place}.type'.")
        })?;
        name(
            &format!("{place}.function.name"),
            word(&call["function"]["name"]),
        )?;
        ensure(call["function"]["arguments"].is_string(), || {
            format!(
                "Invalid type for '{place}.function.arguments': expected a string, but got an object instead."
            )
        })?;
        let id = word(&call["id"]);
        ensure((1..=40).contains(&id.len()), || {
            format!(
                "Invalid '{place}.id': string too long. Expected a string with maximum length 40, but got a string with length {} instead.",
                id.len()
            )
        })?;
    }
    let ids: Vec<&str> = calls.iter().map(|call| word(&call["id"])).collect();
    match repeated(ids.iter().copied()) {
        Some(id) => Err(format!(
            "Duplicate value for 'tool_call_id' of '{id}' in message with role 'assistant'."
        )),
        None => Ok(ids),
    }
}

/// A string or parts. Empty texts are taken.
fn content(at: usize, content: &Value) -> Checked {
    let place = format!("messages[{at}].content");
    match content {
        Value::String(_) => Ok(()),
        Value::Array(parts) if parts.is_empty() => Err(empty(&place)),
        Value::Array(parts) => match parts.iter().find(|part| !part["type"].is_string()) {
            Some(_) => Err(format!("Missing required parameter: '{place}[0].type'.")),
            None => Ok(()),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(format!(
            "Invalid value for 'content': expected a string, got null. ({place})"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str, name: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}})
    }

    fn calls(ids: &[&str]) -> Value {
        let calls: Vec<Value> = ids.iter().map(|id| call(id, "look")).collect();
        json!({"role": "assistant", "content": null, "tool_calls": calls})
    }

    fn answers(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": ""})
    }

    #[test]
    fn chat_completions_takes_what_openai_takes_and_refuses_the_rest() {
        let says = |role: &str| json!({"role": role, "content": "Hello."});
        let tool = |name: &str, schema: Value| json!([{"type": "function", "function": {"name": name, "parameters": schema}}]);
        let base = json!({"model": "gpt-4o", "messages": [says("user")]});
        let said = |messages: Vec<Value>| vec![("/messages", json!(messages))];
        let object = json!({"type": "object"});
        super::super::check(
            refusal,
            &base,
            &[
                ("a question", vec![], ""),
                (
                    "an empty text",
                    said(vec![json!({"role": "user", "content": ""})]),
                    "",
                ),
                ("a first assistant", said(vec![says("assistant")]), ""),
                (
                    "no messages",
                    said(vec![]),
                    "Invalid 'messages': empty array",
                ),
                (
                    "answered calls",
                    said(vec![calls(&["a", "b"]), answers("b"), answers("a")]),
                    "",
                ),
                (
                    "a call that is not answered",
                    said(vec![calls(&["a", "b"]), answers("b"), says("user")]),
                    "did not have response messages: a",
                ),
                (
                    "a call at the end",
                    said(vec![calls(&["a"])]),
                    "must be followed by tool messages",
                ),
                (
                    "a result without a call",
                    said(vec![says("user"), answers("a")]),
                    "must be a response to a preceeding message",
                ),
                (
                    "a result of another call",
                    said(vec![calls(&["a"]), answers("c")]),
                    "'tool_call_id' of 'c' not found",
                ),
                (
                    "two results of one call",
                    said(vec![calls(&["a"]), answers("a"), answers("a")]),
                    "not found in 'tool_calls'",
                ),
                (
                    "an id twice",
                    said(vec![calls(&["a", "a"]), answers("a"), answers("a")]),
                    "Duplicate value",
                ),
                (
                    "an assistant without a word",
                    said(vec![json!({"role": "assistant", "content": null})]),
                    "expected a string, got null",
                ),
                (
                    "no parts",
                    said(vec![json!({"role": "user", "content": []})]),
                    "messages[0].content': empty array",
                ),
                (
                    "an unknown role",
                    said(vec![says("model")]),
                    "Supported values",
                ),
                (
                    "an id that is too long",
                    said(vec![calls(&[&"a".repeat(41)])]),
                    "maximum length 40",
                ),
                (
                    "a tool",
                    vec![("/tools", tool("look-up_1", object.clone()))],
                    "",
                ),
                (
                    "a name with a dot",
                    vec![("/tools", tool("look.up", object.clone()))],
                    "tools[0].function.name",
                ),
                (
                    "a schema that is no object",
                    vec![("/tools", tool("look", json!({"type": "string"})))],
                    "got 'type: \"string\"'",
                ),
                (
                    "no tools",
                    vec![("/tools", json!([]))],
                    "'tools': empty array",
                ),
                (
                    "a choice without tools",
                    vec![("/tool_choice", json!("auto"))],
                    "'tool_choice' is only allowed when 'tools' are specified",
                ),
                (
                    "the choice of an unknown tool",
                    vec![
                        ("/tools", tool("look", object)),
                        (
                            "/tool_choice",
                            json!({"type": "function", "function": {"name": "see"}}),
                        ),
                    ],
                    "not found in 'tools'",
                ),
                (
                    "a temperature for a reasoning model",
                    vec![("/model", json!("gpt-5.5")), ("/temperature", json!(1))],
                    "'temperature' is not supported with this model",
                ),
            ],
        );
    }
}
