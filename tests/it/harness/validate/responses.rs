//! What OpenAI's Responses refuses.

use serde_json::Value;

use super::{Checked, ensure, is_name, items, reasons, repeated, word};

/// Why OpenAI refuses the request; `None` if it takes it. Encrypted reasoning must be in `issued`.
pub fn refusal(body: &Value, issued: &str) -> Option<String> {
    settings(body)
        .and_then(|()| tools(body))
        .and_then(|()| input(body, issued))
        .err()
}

fn settings(body: &Value) -> Checked {
    ensure(!word(&body["model"]).is_empty(), || {
        "Missing required parameter: 'model'.".to_owned()
    })?;
    for (moved, to) in [
        ("messages", "input"),
        ("max_tokens", "max_output_tokens"),
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format", "text.format"),
        ("reasoning_effort", "reasoning.effort"),
    ] {
        ensure(body[moved].is_null(), || {
            format!(
                "Unsupported parameter: '{moved}'. In the Responses API, this parameter has moved to '{to}'."
            )
        })?;
    }
    let limit = body["max_output_tokens"].as_u64();
    ensure(limit.is_none_or(|limit| limit >= 16), || {
        format!(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got {} instead.",
            limit.unwrap_or_default()
        )
    })?;
    ensure(
        !reasons(word(&body["model"])) || body["temperature"].is_null(),
        || "Unsupported parameter: 'temperature' is not supported with this model.".to_owned(),
    )
}

fn tools(body: &Value) -> Checked {
    let tools = items(&body["tools"]);
    let choice = &body["tool_choice"];
    ensure(
        !tools.is_empty() || choice.is_null() || choice == "none" || choice == "auto",
        || format!("Tool choice {choice} must be specified with 'tools' parameter."),
    )?;
    for (at, tool) in tools.iter().enumerate() {
        if tool["type"] == "function" {
            function(at, tool)?;
        } else {
            ensure(tool["type"].is_string(), || {
                format!("Missing required parameter: 'tools[{at}].type'.")
            })?;
        }
    }
    let forced = &choice["name"];
    ensure(
        forced.is_null() || tools.iter().any(|tool| tool["name"] == *forced),
        || format!("Tool choice {forced} not found in 'tools' parameter."),
    )
}

fn function(at: usize, tool: &Value) -> Checked {
    ensure(tool["name"].is_string(), || {
        format!("Missing required parameter: 'tools[{at}].name'.")
    })?;
    let name = word(&tool["name"]);
    name_at(&format!("tools[{at}].name"), name)?;
    let schema = &tool["parameters"];
    ensure(schema.is_null() || schema["type"] == "object", || {
        format!(
            "Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{}\"'.",
            schema["type"].as_str().unwrap_or("None")
        )
    })?;
    // Without a word about it, a schema is strict.
    let strict = tool["strict"] != Value::Bool(false) && schema.is_object();
    ensure(!strict || schema["additionalProperties"] == false, || {
        format!(
            "Invalid schema for function '{name}': In context=(), 'additionalProperties' is required to be supplied and to be false."
        )
    })
}

fn name_at(place: &str, name: &str) -> Checked {
    ensure(is_name(name, 64, &['_', '-']), || {
        format!(
            "Invalid '{place}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        )
    })
}

fn input(body: &Value, issued: &str) -> Checked {
    if body["input"].is_string() {
        return Ok(());
    }
    let input = items(&body["input"]);
    ensure(!input.is_empty(), || {
        "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided."
            .to_owned()
    })?;
    for (at, item) in input.iter().enumerate() {
        item_at(at, item, body["store"] == false, issued)?;
    }
    let ids = input.iter().filter_map(|item| item["id"].as_str());
    ensure(repeated(ids.clone()).is_none(), || {
        format!(
            "Duplicate item found with id {}. Remove duplicate items from your input and try again.",
            repeated(ids.clone()).unwrap_or_default()
        )
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
            ensure(item["arguments"].is_string(), || {
                format!(
                    "Invalid type for 'input[{at}].arguments': expected a string, but got an object instead."
                )
            })?;
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
        "" => return Err(format!("Missing required parameter: 'input[{at}].type'.")),
        // What the service runs itself goes back as it came.
        _ => return Ok(()),
    };
    let id = &item["id"];
    ensure(id.is_null() || word(id).starts_with(own), || {
        format!(
            "Invalid 'input[{at}].id': '{}'. Expected an ID that begins with '{own}'.",
            word(id)
        )
    })
}

fn call_id(at: usize, item: &Value) -> Checked {
    let id = word(&item["call_id"]);
    ensure(!id.is_empty(), || {
        format!("Missing required parameter: 'input[{at}].call_id'.")
    })?;
    ensure(id.len() <= 64, || {
        format!(
            "Invalid 'input[{at}].call_id': string too long. Expected a string with maximum length 64, but got a string with length {} instead.",
            id.len()
        )
    })
}

fn message(at: usize, item: &Value) -> Checked {
    let role = word(&item["role"]);
    let kinds: &[&str] = match role {
        "assistant" => &["output_text", "refusal"],
        "user" | "system" | "developer" => &["input_text", "input_image", "input_file"],
        other => {
            return Err(format!(
                "Invalid value: '{other}'. Supported values are: 'assistant', 'system', 'developer', and 'user'."
            ));
        }
    };
    if item["content"].is_string() {
        return Ok(());
    }
    let parts = items(&item["content"]);
    ensure(!parts.is_empty(), || {
        format!("Missing required parameter: 'input[{at}].content'.")
    })?;
    parts_of(kinds, parts)
}

fn parts_of(kinds: &[&str], parts: &[Value]) -> Checked {
    let strange = parts
        .iter()
        .map(|part| word(&part["type"]))
        .find(|kind| !kinds.contains(kind));
    strange.map_or(Ok(()), |kind| {
        let kinds = kinds.join("', '");
        Err(format!(
            "Invalid value: '{kind}'. Supported values are: '{kinds}'."
        ))
    })
}

fn output(at: usize, output: &Value) -> Checked {
    match output {
        Value::String(_) => Ok(()),
        Value::Array(parts) => parts_of(&["input_text", "input_image", "input_file"], parts),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            Err(format!("Missing required parameter: 'input[{at}].output'."))
        }
    }
}

fn reasoning(at: usize, item: &Value, stateless: bool, issued: &str) -> Checked {
    ensure(item["summary"].is_array(), || {
        format!("Missing required parameter: 'input[{at}].summary'.")
    })?;
    let encrypted = word(&item["encrypted_content"]);
    if encrypted.is_empty() {
        return ensure(!stateless, || not_found(item));
    }
    ensure(issued.contains(encrypted), || {
        format!(
            "The encrypted content for item {} could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
            word(&item["id"])
        )
    })
}

fn not_found(item: &Value) -> String {
    format!(
        "Item with id '{}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input.",
        word(&item["id"])
    )
}

/// After reasoning comes what the model wrote next.
fn reasoning_is_followed(input: &[Value]) -> Checked {
    for (at, item) in input.iter().enumerate() {
        if item["type"] != "reasoning" {
            continue;
        }
        let next = input.get(at + 1).unwrap_or(&Value::Null);
        let given = matches!(word(&next["role"]), "user" | "system" | "developer")
            || word(&next["type"]).ends_with("_output");
        ensure(!next.is_null() && !given, || {
            format!(
                "Item '{}' of type 'reasoning' was provided without its required following item.",
                word(&item["id"])
            )
        })?;
    }
    Ok(())
}

/// The outputs of calls stand before anything else is said.
fn calls_are_answered(input: &[Value]) -> Checked {
    let mut open: Vec<&str> = Vec::new();
    let unanswered = |open: &[&str]| match open.first() {
        Some(id) => Err(format!("No tool output found for function call {id}.")),
        None => Ok(()),
    };
    let mut answering = false;
    for item in input {
        let id = word(&item["call_id"]);
        match word(&item["type"]) {
            "function_call" => {
                ensure(!answering || open.is_empty(), || {
                    unanswered(&open).err().unwrap_or_default()
                })?;
                ensure(!open.contains(&id), || {
                    format!("Duplicate function call with call_id {id}.")
                })?;
                answering = false;
                open.push(id);
            }
            "function_call_output" => {
                let call = open.iter().position(|call| *call == id).ok_or_else(|| {
                    format!("No tool call found for function call output with call_id {id}.")
                })?;
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
    use serde_json::json;

    use super::*;

    fn call(id: &str) -> Value {
        json!({"type": "function_call", "call_id": id, "name": "look", "arguments": "{}"})
    }

    fn output(id: &str) -> Value {
        json!({"type": "function_call_output", "call_id": id, "output": "red"})
    }

    fn thought(encrypted: &str) -> Value {
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": encrypted})
    }

    fn with(mut item: Value, key: &str, value: Value) -> Value {
        item[key] = value;
        item
    }

    #[test]
    fn items_that_responses_refuses_are_refused_in_its_words() {
        let says = |words: &str| json!({"role": "user", "content": [{"type": "input_text", "text": words}]});
        let base = json!({"model": "gpt-5.5", "store": false, "input": [says("Hello.")]});
        let given = |items: Vec<Value>| vec![("/input", json!(items))];
        let answer =
            json!({"role": "assistant", "content": [{"type": "output_text", "text": "Red."}]});
        super::super::check(
            |body| refusal(body, "\"encrypted_content\":\"ours\""),
            &base,
            &[
                ("a question", vec![], ""),
                ("a text alone", vec![("/input", json!("Hello."))], ""),
                ("no input", given(vec![]), "must be provided"),
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
                (
                    "reasoning at the end",
                    given(vec![says("?"), thought("ours")]),
                    "'reasoning' was provided without its required following item",
                ),
                (
                    "reasoning before a question",
                    given(vec![thought("ours"), says("?")]),
                    "without its required following item",
                ),
                (
                    "reasoning of another service",
                    given(vec![thought("theirs"), answer.clone()]),
                    "could not be verified",
                ),
                (
                    "reasoning that is not encrypted",
                    given(vec![thought(""), answer.clone()]),
                    "Items are not persisted when `store` is set to false",
                ),
                (
                    "a call without its output",
                    given(vec![call("a"), call("b"), output("a"), says("?")]),
                    "No tool output found for function call b.",
                ),
                (
                    "a call between outputs",
                    given(vec![
                        call("a"),
                        call("b"),
                        output("a"),
                        call("c"),
                        output("b"),
                        output("c"),
                    ]),
                    "No tool output found for function call b.",
                ),
                (
                    "an output without its call",
                    given(vec![says("?"), output("a")]),
                    "No tool call found for function call output with call_id a.",
                ),
                (
                    "two outputs of one call",
                    given(vec![call("a"), output("a"), output("a")]),
                    "No tool call found for function call output",
                ),
                (
                    "a call id twice",
                    given(vec![call("a"), call("a"), output("a"), output("a")]),
                    "Duplicate function call",
                ),
                (
                    "an id of another kind",
                    given(vec![with(call("a"), "id", json!("call_1")), output("a")]),
                    "Expected an ID that begins with 'fc'",
                ),
                (
                    "an item twice",
                    given(vec![
                        with(answer.clone(), "id", json!("msg_1")),
                        with(answer, "id", json!("msg_1")),
                    ]),
                    "Duplicate item found with id msg_1",
                ),
                (
                    "a reference",
                    given(vec![json!({"type": "item_reference", "id": "msg_1"})]),
                    "Item with id 'msg_1' not found",
                ),
                (
                    "words of the model as words of a user",
                    given(vec![
                        json!({"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}),
                    ]),
                    "Invalid value: 'input_text'",
                ),
                (
                    "arguments that are no string",
                    given(vec![with(call("a"), "arguments", json!({})), output("a")]),
                    "input[0].arguments",
                ),
                (
                    "audio in an output",
                    given(vec![
                        call("a"),
                        with(output("a"), "output", json!([{"type": "input_audio"}])),
                    ]),
                    "Invalid value: 'input_audio'",
                ),
            ],
        );
    }

    #[test]
    fn settings_and_tools_that_responses_refuses_are_refused_in_its_words() {
        let base = json!({"model": "gpt-4.1", "input": "Hello."});
        let tool = |name: &str, schema: Value, strict: Value| json!([{"type": "function", "name": name, "parameters": schema, "strict": strict}]);
        let object = json!({"type": "object", "properties": {}});
        super::super::check(
            |body| refusal(body, ""),
            &base,
            &[
                ("no settings", vec![("/temperature", json!(0.5))], ""),
                (
                    "a tool",
                    vec![("/tools", tool("look", object.clone(), json!(false)))],
                    "",
                ),
                (
                    "a hosted tool",
                    vec![("/tools", json!([{"type": "web_search"}]))],
                    "",
                ),
                (
                    "a tool whose schema is strict",
                    vec![("/tools", tool("look", object.clone(), Value::Null))],
                    "'additionalProperties' is required",
                ),
                (
                    "a tool of Chat Completions",
                    vec![(
                        "/tools",
                        json!([{"type": "function", "function": {"name": "look"}}]),
                    )],
                    "'tools[0].name'",
                ),
                (
                    "a name with a space",
                    vec![("/tools", tool("look up", object.clone(), json!(false)))],
                    "'tools[0].name': string does not match pattern",
                ),
                (
                    "a schema that is no object",
                    vec![(
                        "/tools",
                        tool("look", json!({"type": "array"}), json!(false)),
                    )],
                    "got 'type: \"array\"'",
                ),
                (
                    "a choice without tools",
                    vec![("/tool_choice", json!("required"))],
                    "must be specified with 'tools'",
                ),
                (
                    "the choice of an unknown tool",
                    vec![
                        ("/tools", tool("look", object, json!(false))),
                        ("/tool_choice", json!({"type": "function", "name": "see"})),
                    ],
                    "not found in 'tools'",
                ),
                (
                    "messages",
                    vec![("/messages", json!([]))],
                    "has moved to 'input'",
                ),
                (
                    "few tokens",
                    vec![("/max_output_tokens", json!(15))],
                    "Expected a value >= 16",
                ),
                (
                    "a temperature for a reasoning model",
                    vec![("/model", json!("o3")), ("/temperature", json!(1))],
                    "'temperature' is not supported with this model",
                ),
            ],
        );
    }
}
