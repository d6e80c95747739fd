//! Validates requests as Chat Completions does.

mod services;

use serde_json::Value;

use super::{
    Checked, ensure, is_name, items, reasons, repeated,
    rows::{CHAT, Refusal},
    word,
};

/// Why OpenAI refuses the request. Returns `None` if it accepts it. The specific rules of the service with that dialect
/// apply too.
pub fn refusal(service: &str, body: &Value) -> Option<Refusal> {
    settings(body)
        .and_then(|()| tools(body))
        .and_then(|()| messages(items(&body["messages"])))
        .and_then(|()| services::of(service, body))
        .err()
}

fn settings(body: &Value) -> Checked {
    ensure(!word(&body["model"]).is_empty(), || CHAT.refuse("model", &[]))?;
    ensure(!reasons(word(&body["model"])) || body["temperature"].is_null(), || CHAT.refuse("temperature", &[]))
}

fn tools(body: &Value) -> Checked {
    let tools = items(&body["tools"]);
    if body["tools"].is_null() {
        for setting in ["tool_choice", "parallel_tool_calls"] {
            ensure(body[setting].is_null(), || CHAT.refuse("setting-without-tools", &[("setting", &setting)]))?;
        }
        return Ok(());
    }
    ensure(!tools.is_empty(), || empty("tools"))?;
    let model = word(&body["model"]);
    let refuses = ["gpt-5.4", "gpt-5.5", "gpt-5.6"].iter().any(|it| model.starts_with(it));
    ensure(!refuses || body["reasoning_effort"] == "none", || CHAT.refuse("tools-and-effort", &[("model", &model)]))?;
    for (at, tool) in tools.iter().enumerate() {
        let function = &tool["function"];
        name(&format!("tools[{at}].function.name"), word(&function["name"]))?;
        let schema = &function["parameters"];
        ensure(schema.is_null() || schema["type"] == "object", || {
            CHAT.refuse(
                "tool-schema",
                &[("name", &word(&function["name"])), ("kind", &schema["type"].as_str().unwrap_or("None"))],
            )
        })?;
    }
    let forced = &body["tool_choice"]["function"]["name"];
    let known = |tool: &Value| tool["function"]["name"] == *forced;
    ensure(forced.is_null() || tools.iter().any(known), || CHAT.refuse("choice-unknown", &[("forced", &forced)]))
}

fn name(place: &str, name: &str) -> Checked {
    ensure(is_name(name, 64, &['_', '-']), || CHAT.refuse("name", &[("place", &place)]))
}

fn empty(place: &str) -> Refusal {
    CHAT.refuse("empty-array", &[("place", &place)])
}

fn messages(messages: &[Value]) -> Checked {
    ensure(!messages.is_empty(), || empty("messages"))?;
    let mut open: Vec<&str> = Vec::new();
    let mut in_batch = false;
    for (at, message) in messages.iter().enumerate() {
        let role = word(&message["role"]);
        if role == "tool" {
            ensure(in_batch, || CHAT.refuse("result-without-calls", &[]))?;
            let id = word(&message["tool_call_id"]);
            let call = open.iter().position(|call| *call == id);
            let call = call.ok_or_else(|| CHAT.refuse("result-of-no-call", &[("id", &id)]))?;
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
                return Err(CHAT.refuse("role", &[("other", &other)]));
            }
        }
    }
    unanswered(&open)
}

fn unanswered(open: &[&str]) -> Checked {
    ensure(open.is_empty(), || CHAT.refuse("call-unanswered", &[("ids", &open.join(", "))]))
}

/// Checks an assistant message. Returns the ids of its calls.
fn assistant(at: usize, message: &Value) -> Result<Vec<&str>, Refusal> {
    let calls = items(&message["tool_calls"]);
    ensure(message["tool_calls"].is_null() || !calls.is_empty(), || empty(&format!("messages[{at}].tool_calls")))?;
    if calls.is_empty() && message["refusal"].is_null() {
        content(at, &message["content"])?;
    }
    for (number, call) in calls.iter().enumerate() {
        let place = format!("messages[{at}].tool_calls[{number}]");
        ensure(call["type"] == "function", || CHAT.refuse("call-type", &[("place", &place)]))?;
        name(&format!("{place}.function.name"), word(&call["function"]["name"]))?;
        ensure(call["function"]["arguments"].is_string(), || CHAT.refuse("arguments", &[("place", &place)]))?;
        let id = word(&call["id"]);
        ensure((1..=40).contains(&id.len()), || {
            CHAT.refuse("call-id-length", &[("place", &place), ("length", &id.len())])
        })?;
    }
    let ids: Vec<&str> = calls.iter().map(|call| word(&call["id"])).collect();
    match repeated(ids.iter().copied()) {
        Some(id) => Err(CHAT.refuse("call-id-twice", &[("id", &id)])),
        None => Ok(ids),
    }
}

/// Checks a content: a string or parts. Empty texts are accepted.
fn content(at: usize, content: &Value) -> Checked {
    let place = format!("messages[{at}].content");
    match content {
        Value::String(_) => Ok(()),
        Value::Array(parts) if parts.is_empty() => Err(empty(&place)),
        Value::Array(parts) => match parts.iter().find(|part| !part["type"].is_string()) {
            Some(_) => Err(CHAT.refuse("part-type", &[("place", &place)])),
            None => Ok(()),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            Err(CHAT.refuse("content", &[("place", &place)]))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::{
        super::rows::{check, covers},
        *,
    };

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
        of_all();
    }

    #[test]
    fn services_of_chat_completions_refuse_what_only_they_refuse() {
        services::cases();
    }

    #[test]
    fn each_refusal_of_chat_completions_has_a_row_and_each_row_a_case() {
        covers(&CHAT, &[of_all(), services::cases()]);
    }

    fn of_all() -> BTreeSet<&'static str> {
        let says = |role: &str| json!({"role": role, "content": "Hello."});
        let tool =
            |name: &str, schema: Value| json!([{"type": "function", "function": {"name": name, "parameters": schema}}]);
        let base = json!({"model": "gpt-4o", "messages": [says("user")]});
        let said = |messages: Vec<Value>| vec![("/messages", json!(messages))];
        let object = json!({"type": "object"});
        let with_call = |field: &str, value: Value| {
            let mut message = calls(&["a"]);
            message["tool_calls"][0][field] = value;
            message
        };
        let beside_effort = |effort: &str| {
            vec![
                ("/model", json!("gpt-5.6")),
                ("/tools", tool("look", object.clone())),
                ("/reasoning_effort", json!(effort)),
            ]
        };
        check(
            |body| refusal("", body),
            &base,
            &[
                ("a question", vec![], ""),
                ("an empty text", said(vec![json!({"role": "user", "content": ""})]), ""),
                ("a first assistant", said(vec![says("assistant")]), ""),
                ("no messages", said(vec![]), "empty-array: 'messages'"),
                ("answered calls", said(vec![calls(&["a", "b"]), answers("b"), answers("a")]), ""),
                (
                    "a call that is not answered",
                    said(vec![calls(&["a", "b"]), answers("b"), says("user")]),
                    "call-unanswered: messages: a",
                ),
                ("a call at the end", said(vec![calls(&["a"])]), "call-unanswered"),
                ("a result without a call", said(vec![says("user"), answers("a")]), "result-without-calls"),
                ("a result of another call", said(vec![calls(&["a"]), answers("c")]), "result-of-no-call: 'c'"),
                ("two results of one call", said(vec![calls(&["a"]), answers("a"), answers("a")]), "result-of-no-call"),
                ("an id twice", said(vec![calls(&["a", "a"]), answers("a"), answers("a")]), "call-id-twice"),
                ("an assistant without a word", said(vec![json!({"role": "assistant", "content": null})]), "content"),
                ("no parts", said(vec![json!({"role": "user", "content": []})]), "empty-array: messages[0].content"),
                ("an unknown role", said(vec![says("model")]), "role"),
                ("an id that is too long", said(vec![calls(&[&"a".repeat(41)])]), "call-id-length"),
                ("a tool", vec![("/tools", tool("look-up_1", object.clone()))], ""),
                (
                    "a name with a dot",
                    vec![("/tools", tool("look.up", object.clone()))],
                    "name: tools[0].function.name",
                ),
                (
                    "a schema that is no object",
                    vec![("/tools", tool("look", json!({"type": "string"})))],
                    "tool-schema: \"string\"",
                ),
                ("no tools", vec![("/tools", json!([]))], "empty-array: 'tools'"),
                (
                    "a choice without tools",
                    vec![("/tool_choice", json!("auto"))],
                    "setting-without-tools: 'tool_choice'",
                ),
                (
                    "the choice of an unknown tool",
                    vec![
                        ("/tools", tool("look", object.clone())),
                        ("/tool_choice", json!({"type": "function", "function": {"name": "see"}})),
                    ],
                    "choice-unknown",
                ),
                (
                    "a temperature for a reasoning model",
                    vec![("/model", json!("gpt-5.5")), ("/temperature", json!(1))],
                    "temperature",
                ),
                ("no model", vec![("/model", Value::Null)], "model"),
                ("a call without a type", said(vec![with_call("type", Value::Null)]), "call-type: tool_calls[0].type"),
                (
                    "arguments that are no string",
                    said(vec![with_call("function", json!({"name": "look", "arguments": {}}))]),
                    "arguments: tool_calls[0]",
                ),
                (
                    "a part without a type",
                    said(vec![json!({"role": "user", "content": [{"text": "?"}]})]),
                    "part-type: messages[0]",
                ),
                ("tools beside an effort", beside_effort("low"), "tools-and-effort: gpt-5.6"),
                ("tools without an effort", beside_effort("none"), ""),
            ],
        )
    }
}
