//! Validates requests as OpenAI's Responses API does.

use serde_json::Value;

use super::{
    Checked, ensure, is_name, items, reasons, repeated,
    rows::{RESPONSES, Refusal},
    word,
};

/// Why OpenAI refuses the request. Returns `None` if it accepts it. Encrypted reasoning must be in `issued`.
pub fn refusal(body: &Value, issued: &str) -> Option<Refusal> {
    settings(body).and_then(|()| tools(body)).and_then(|()| input(body, issued)).err()
}

fn settings(body: &Value) -> Checked {
    ensure(!word(&body["model"]).is_empty(), || RESPONSES.refuse("model", &[]))?;
    for (moved, to) in [
        ("messages", "input"),
        ("max_tokens", "max_output_tokens"),
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format", "text.format"),
        ("reasoning_effort", "reasoning.effort"),
    ] {
        ensure(body[moved].is_null(), || RESPONSES.refuse("moved", &[("moved", &moved), ("to", &to)]))?;
    }
    let encrypted = items(&body["include"]).iter().any(|it| it == "reasoning.encrypted_content");
    ensure(!encrypted || !word(&body["model"]).starts_with("gpt-4"), || RESPONSES.refuse("encrypted-include", &[]))?;
    let limit = body["max_output_tokens"].as_u64();
    ensure(limit.is_none_or(|limit| limit >= 16), || {
        RESPONSES.refuse("output-limit", &[("limit", &limit.unwrap_or_default())])
    })?;
    ensure(!reasons(word(&body["model"])) || body["temperature"].is_null(), || RESPONSES.refuse("temperature", &[]))
}

fn tools(body: &Value) -> Checked {
    let tools = items(&body["tools"]);
    let choice = &body["tool_choice"];
    ensure(!tools.is_empty() || choice.is_null() || choice == "none" || choice == "auto", || {
        RESPONSES.refuse("choice-without-tools", &[("choice", &choice)])
    })?;
    for (at, tool) in tools.iter().enumerate() {
        if tool["type"] == "function" {
            function(at, tool)?;
        } else {
            ensure(tool["type"].is_string(), || RESPONSES.refuse("tool-type", &[("at", &at)]))?;
        }
    }
    let forced = &choice["name"];
    ensure(forced.is_null() || tools.iter().any(|tool| tool["name"] == *forced), || {
        RESPONSES.refuse("choice-unknown", &[("forced", &forced)])
    })
}

fn function(at: usize, tool: &Value) -> Checked {
    ensure(tool["name"].is_string(), || RESPONSES.refuse("tool-name", &[("at", &at)]))?;
    let name = word(&tool["name"]);
    name_at(&format!("tools[{at}].name"), name)?;
    let schema = &tool["parameters"];
    ensure(schema.is_null() || schema["type"] == "object", || {
        RESPONSES.refuse("tool-schema", &[("name", &name), ("kind", &schema["type"].as_str().unwrap_or("None"))])
    })?;
    // A schema is strict by default.
    let strict = tool["strict"] != Value::Bool(false) && schema.is_object();
    ensure(!strict || schema["additionalProperties"] == false, || RESPONSES.refuse("strict-schema", &[("name", &name)]))
}

fn name_at(place: &str, name: &str) -> Checked {
    ensure(is_name(name, 64, &['_', '-']), || RESPONSES.refuse("name", &[("place", &place)]))
}

fn input(body: &Value, issued: &str) -> Checked {
    if body["input"].is_string() {
        return Ok(());
    }
    let input = items(&body["input"]);
    ensure(!input.is_empty(), || RESPONSES.refuse("input", &[]))?;
    for (at, item) in input.iter().enumerate() {
        item_at(at, item, body["store"] == false, issued)?;
    }
    let ids = input.iter().filter_map(|item| item["id"].as_str());
    ensure(repeated(ids.clone()).is_none(), || {
        RESPONSES.refuse("item-twice", &[("id", &repeated(ids.clone()).unwrap_or_default())])
    })?;
    reasoning_is_followed(input)?;
    calls_are_answered(input)
}

fn item_at(at: usize, item: &Value, stateless: bool, issued: &str) -> Checked {
    let kind = match (word(&item["type"]), item["role"].is_string()) {
        ("", true) => "message",
        (kind, _) => kind,
    };
    let own = match kind {
        "message" => {
            message(at, item)?;
            "msg"
        }
        "function_call" => {
            name_at(&format!("input[{at}].name"), word(&item["name"]))?;
            ensure(item["arguments"].is_string(), || RESPONSES.refuse("arguments", &[("at", &at)]))?;
            call_id(at, item)?;
            "fc"
        }
        "function_call_output" => {
            call_id(at, item)?;
            output(at, &item["output"])?;
            "fc"
        }
        "reasoning" => {
            reasoning(at, item, stateless, issued)?;
            "rs"
        }
        "item_reference" if stateless => return Err(not_found(item)),
        "" => return Err(RESPONSES.refuse("item-type", &[("at", &at)])),
        // Items of hosted tools are sent back unchanged.
        _ => return Ok(()),
    };
    let id = &item["id"];
    ensure(id.is_null() || word(id).starts_with(own), || {
        RESPONSES.refuse("item-id", &[("at", &at), ("id", &word(id)), ("own", &own)])
    })
}

fn call_id(at: usize, item: &Value) -> Checked {
    let id = word(&item["call_id"]);
    ensure(!id.is_empty(), || RESPONSES.refuse("call-id", &[("at", &at)]))?;
    ensure(id.len() <= 64, || RESPONSES.refuse("call-id-length", &[("at", &at), ("length", &id.len())]))
}

fn message(at: usize, item: &Value) -> Checked {
    let role = word(&item["role"]);
    let kinds: &[&str] = match role {
        "assistant" => &["output_text", "refusal"],
        "user" | "system" | "developer" => &["input_text", "input_image", "input_file"],
        other => {
            return Err(RESPONSES.refuse("role", &[("other", &other)]));
        }
    };
    if item["content"].is_string() {
        return Ok(());
    }
    let parts = items(&item["content"]);
    ensure(!parts.is_empty(), || RESPONSES.refuse("content", &[("at", &at)]))?;
    parts_of(kinds, parts)
}

fn parts_of(kinds: &[&str], parts: &[Value]) -> Checked {
    let strange = parts.iter().map(|part| word(&part["type"])).find(|kind| !kinds.contains(kind));
    strange.map_or(Ok(()), |kind| {
        let kinds = kinds.join("', '");
        Err(RESPONSES.refuse("part-type", &[("kind", &kind), ("kinds", &kinds)]))
    })
}

fn output(at: usize, output: &Value) -> Checked {
    match output {
        Value::String(_) => Ok(()),
        Value::Array(parts) => parts_of(&["input_text", "input_image", "input_file"], parts),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            Err(RESPONSES.refuse("output", &[("at", &at)]))
        }
    }
}

fn reasoning(at: usize, item: &Value, stateless: bool, issued: &str) -> Checked {
    ensure(item["summary"].is_array(), || RESPONSES.refuse("summary", &[("at", &at)]))?;
    let encrypted = word(&item["encrypted_content"]);
    if encrypted.is_empty() {
        return ensure(!stateless || is_plain(item, issued), || not_found(item));
    }
    ensure(issued.contains(encrypted), || RESPONSES.refuse("encrypted", &[("id", &word(&item["id"]))]))
}

/// Whether an item is plain reasoning: that of a server that does not encrypt it and accepts its own text, as llama.cpp
/// (b11434) does.
fn is_plain(item: &Value, issued: &str) -> bool {
    let text = word(&item["content"][0]["text"]);
    !text.is_empty() && issued.contains(text) && !issued.contains("\"encrypted_content\":\"")
}

fn not_found(item: &Value) -> Refusal {
    RESPONSES.refuse("not-stored", &[("id", &word(&item["id"]))])
}

/// Reasoning is followed by the item that the model wrote next.
fn reasoning_is_followed(input: &[Value]) -> Checked {
    for (at, item) in input.iter().enumerate() {
        if item["type"] != "reasoning" {
            continue;
        }
        let next = input.get(at + 1).unwrap_or(&Value::Null);
        let given =
            matches!(word(&next["role"]), "user" | "system" | "developer") || word(&next["type"]).ends_with("_output");
        ensure(!next.is_null() && !given, || RESPONSES.refuse("reasoning-alone", &[("id", &word(&item["id"]))]))?;
    }
    Ok(())
}

/// The outputs of calls precede any other item.
fn calls_are_answered(input: &[Value]) -> Checked {
    let mut open: Vec<&str> = Vec::new();
    let unanswered = |open: &[&str]| match open.first() {
        Some(id) => Err(RESPONSES.refuse("call-unanswered", &[("id", &id)])),
        None => Ok(()),
    };
    let mut answering = false;
    for item in input {
        let id = word(&item["call_id"]);
        match word(&item["type"]) {
            "function_call" => {
                ensure(!answering || open.is_empty(), || RESPONSES.refuse("call-unanswered", &[("id", &open[0])]))?;
                ensure(!open.contains(&id), || RESPONSES.refuse("call-twice", &[("id", &id)]))?;
                answering = false;
                open.push(id);
            }
            "function_call_output" => {
                let call = open
                    .iter()
                    .position(|call| *call == id)
                    .ok_or_else(|| RESPONSES.refuse("output-alone", &[("id", &id)]))?;
                open.remove(call);
                answering = true;
            }
            _ if matches!(word(&item["role"]), "user" | "system" | "developer") => {
                unanswered(&open)?;
            }
            _ => {}
        }
    }
    unanswered(&open)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::{
        super::rows::{check, covers},
        *,
    };

    fn call(id: &str) -> Value {
        json!({"type": "function_call", "call_id": id, "name": "look", "arguments": "{}"})
    }

    fn output(id: &str) -> Value {
        json!({"type": "function_call_output", "call_id": id, "output": "red"})
    }

    fn thought(encrypted: &str) -> Value {
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": encrypted})
    }

    fn plain(text: &str) -> Value {
        json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]})
    }

    #[test]
    fn reasoning_in_plain_text_is_taken_by_a_server_that_encrypts_none() {
        let body = json!({"model": "m", "store": false, "input": [plain("Hm."), call("a"), output("a")]});
        let is_taken = |issued: &str| refusal(&body, issued).is_none();
        assert!(is_taken("\"text\":\"Hm.\""));
        assert!(!is_taken("\"text\":\"So.\""), "another text");
    }

    fn with(mut item: Value, key: &str, value: Value) -> Value {
        item[key] = value;
        item
    }

    #[test]
    fn items_that_responses_refuses_are_refused_in_its_words() {
        of_items();
    }

    #[test]
    fn settings_and_tools_that_responses_refuses_are_refused_in_its_words() {
        of_settings();
    }

    #[test]
    fn each_refusal_of_responses_has_a_row_and_each_row_a_case() {
        covers(&RESPONSES, &[of_items(), of_settings()]);
    }

    fn of_items() -> BTreeSet<&'static str> {
        let says = |words: &str| json!({"role": "user", "content": [{"type": "input_text", "text": words}]});
        let base = json!({"model": "gpt-5.5", "store": false, "input": [says("Hello.")]});
        let given = |items: Vec<Value>| vec![("/input", json!(items))];
        let answer = json!({"role": "assistant", "content": [{"type": "output_text", "text": "Red."}]});
        check(
            |body| refusal(body, "\"encrypted_content\":\"ours\""),
            &base,
            &[
                ("a question", vec![], ""),
                ("a text alone", vec![("/input", json!("Hello."))], ""),
                ("no input", given(vec![]), "input"),
                (
                    "reasoning in plain text, where others are encrypted",
                    given(vec![says("?"), plain("ours")]),
                    "not-stored",
                ),
                (
                    "reasoning, calls and outputs",
                    given(vec![
                        says("?"),
                        thought("ours"),
                        call("a"),
                        call("b"),
                        output("b"),
                        output("a"),
                        answer.clone(),
                    ]),
                    "",
                ),
                ("reasoning at the end", given(vec![says("?"), thought("ours")]), "reasoning-alone"),
                ("reasoning before a question", given(vec![thought("ours"), says("?")]), "reasoning-alone"),
                ("reasoning of another service", given(vec![thought("theirs"), answer.clone()]), "encrypted"),
                ("reasoning that is not encrypted", given(vec![thought(""), answer.clone()]), "not-stored"),
                (
                    "a call without its output",
                    given(vec![call("a"), call("b"), output("a"), says("?")]),
                    "call-unanswered: call b.",
                ),
                (
                    "a call between outputs",
                    given(vec![call("a"), call("b"), output("a"), call("c"), output("b"), output("c")]),
                    "call-unanswered: call b.",
                ),
                ("an output without its call", given(vec![says("?"), output("a")]), "output-alone: call_id a."),
                ("two outputs of one call", given(vec![call("a"), output("a"), output("a")]), "output-alone"),
                ("a call id twice", given(vec![call("a"), call("a"), output("a"), output("a")]), "call-twice"),
                (
                    "an id of another kind",
                    given(vec![with(call("a"), "id", json!("call_1")), output("a")]),
                    "item-id: 'fc'",
                ),
                (
                    "an item twice",
                    given(vec![with(answer.clone(), "id", json!("msg_1")), with(answer.clone(), "id", json!("msg_1"))]),
                    "item-twice: msg_1",
                ),
                ("a reference", given(vec![json!({"type": "item_reference", "id": "msg_1"})]), "not-stored: 'msg_1'"),
                (
                    "words of the model as words of a user",
                    given(vec![json!({"role": "assistant", "content": [{"type": "input_text", "text": "a"}]})]),
                    "part-type: 'input_text'",
                ),
                (
                    "arguments that are no string",
                    given(vec![with(call("a"), "arguments", json!({})), output("a")]),
                    "arguments: input[0]",
                ),
                ("an item without a type", given(vec![json!({"content": "?"})]), "item-type: input[0]"),
                ("an unknown role", given(vec![json!({"role": "model", "content": "?"})]), "role: 'model'"),
                ("a message without content", given(vec![json!({"role": "user"})]), "content: input[0]"),
                (
                    "a call without an id",
                    given(vec![with(call("a"), "call_id", Value::Null), output("a")]),
                    "call-id: input[0]",
                ),
                (
                    "an id of a call that is too long",
                    given(vec![call(&"a".repeat(65)), output(&"a".repeat(65))]),
                    "call-id-length: length 65",
                ),
                (
                    "an id of a call that is as long as it may be",
                    given(vec![call(&"a".repeat(64)), output(&"a".repeat(64))]),
                    "",
                ),
                (
                    "an output without words",
                    given(vec![call("a"), with(output("a"), "output", Value::Null)]),
                    "output: input[1]",
                ),
                (
                    "reasoning without a summary",
                    given(vec![with(thought("ours"), "summary", Value::Null), answer]),
                    "summary: input[0]",
                ),
                (
                    "audio in an output",
                    given(vec![call("a"), with(output("a"), "output", json!([{"type": "input_audio"}]))]),
                    "part-type: 'input_audio'",
                ),
            ],
        )
    }

    fn of_settings() -> BTreeSet<&'static str> {
        let base = json!({"model": "gpt-4.1", "input": "Hello."});
        let tool = |name: &str, schema: Value, strict: Value| json!([{"type": "function", "name": name, "parameters": schema, "strict": strict}]);
        let object = json!({"type": "object", "properties": {}});
        check(
            |body| refusal(body, ""),
            &base,
            &[
                ("no settings", vec![("/temperature", json!(0.5))], ""),
                ("a tool", vec![("/tools", tool("look", object.clone(), json!(false)))], ""),
                ("a hosted tool", vec![("/tools", json!([{"type": "web_search"}]))], ""),
                (
                    "a tool whose schema is strict",
                    vec![("/tools", tool("look", object.clone(), Value::Null))],
                    "strict-schema",
                ),
                (
                    "a tool of Chat Completions",
                    vec![("/tools", json!([{"type": "function", "function": {"name": "look"}}]))],
                    "tool-name: tools[0]",
                ),
                (
                    "a name with a space",
                    vec![("/tools", tool("look up", object.clone(), json!(false)))],
                    "name: tools[0].name",
                ),
                (
                    "a schema that is no object",
                    vec![("/tools", tool("look", json!({"type": "array"}), json!(false)))],
                    "tool-schema: \"array\"",
                ),
                ("a choice without tools", vec![("/tool_choice", json!("required"))], "choice-without-tools"),
                (
                    "the choice of an unknown tool",
                    vec![
                        ("/tools", tool("look", object, json!(false))),
                        ("/tool_choice", json!({"type": "function", "name": "see"})),
                    ],
                    "choice-unknown",
                ),
                ("messages", vec![("/messages", json!([]))], "moved: 'input'"),
                ("no model", vec![("/model", Value::Null)], "model"),
                (
                    "encrypted reasoning for a model that does not reason",
                    vec![("/include", json!(["reasoning.encrypted_content"]))],
                    "encrypted-include",
                ),
                (
                    "encrypted reasoning",
                    vec![("/model", json!("gpt-5")), ("/include", json!(["reasoning.encrypted_content"]))],
                    "",
                ),
                ("a tool without a type", vec![("/tools", json!([{"name": "look"}]))], "tool-type: tools[0]"),
                ("few tokens", vec![("/max_output_tokens", json!(15))], "output-limit"),
                (
                    "a temperature for a reasoning model",
                    vec![("/model", json!("o3")), ("/temperature", json!(1))],
                    "temperature",
                ),
            ],
        )
    }
}
