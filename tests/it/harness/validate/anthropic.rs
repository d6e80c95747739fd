//! What Anthropic's Messages refuses, and the signatures of its thinking, which are bound to all that
//! stands before them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Checked, ensure, is_name, items, repeated, word};

/// With what a signature begins that is bound to its prefix.
const BOUND: &str = "bound-";

/// Fields of blocks that are no part of what the model reads.
const UNREAD: &[&str] = &["cache_control", "citations", "caller"];

/// Why Anthropic refuses the request; `None` if it takes it. A signature fits what stands before it,
/// or is in `issued`.
///
/// A conversation ends with a user's message; with one of the assistant's only after a paused turn,
/// which is known by its last block: something that the service runs itself.
pub fn refusal(body: &Value, issued: &str) -> Option<String> {
    settings(body)
        .and_then(|()| thinking(body))
        .and_then(|()| tools(body))
        .and_then(|()| cache_marks(body))
        .and_then(|()| texts("system", &body["system"]))
        .and_then(|()| messages(body))
        .and_then(|()| signatures(body, issued))
        .err()
}

/// The signature of thinking that follows the conversation of a request and, in the answer to it,
/// these blocks.
pub fn signature(request: &Value, answered: &[Value], thinking: &str) -> String {
    let mut before = flat(items(&request["messages"]));
    let said = answered.iter().map(|block| json!(["assistant", block]));
    before.extend(said);
    bound(request, &before, thinking)
}

fn bound(request: &Value, before: &[Value], thinking: &str) -> String {
    let system = blocks(&request["system"]);
    let mut signed = json!([system, request["tools"], before, thinking]);
    normalize(&mut signed);
    let digest = Sha256::digest(signed.to_string());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{BOUND}{hex}")
}

/// Every block with the role that says it: messages of one role that follow each other are one.
fn flat(messages: &[Value]) -> Vec<Value> {
    let of = |message: &Value| {
        let role = message["role"].clone();
        let said = |block: Value| json!([role, block]);
        blocks(&message["content"])
            .into_iter()
            .map(said)
            .collect::<Vec<_>>()
    };
    messages.iter().flat_map(of).collect()
}

/// A string is short for a text block.
fn blocks(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        content => items(content).to_vec(),
    }
}

/// Leaves what the model reads.
fn normalize(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(normalize),
        Value::Object(fields) => {
            fields.retain(|key, _| !UNREAD.contains(&key.as_str()));
            if fields.get("type").is_some_and(|kind| kind == "tool_result") {
                let content = blocks(fields.get("content").unwrap_or(&Value::Null));
                fields.insert("content".to_owned(), json!(content));
            }
            fields.values_mut().for_each(normalize);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The generation of a model by its name, as 4.7; a name without one is of the newest.
fn generation(model: &str) -> (u32, u32) {
    let mut numbers = model
        .split(['-', '.'])
        .filter(|word| word.len() <= 2)
        .filter_map(|word| word.parse().ok());
    match numbers.next() {
        Some(major) => (major, numbers.next().unwrap_or_default()),
        None => (u32::MAX, 0),
    }
}

fn settings(body: &Value) -> Checked {
    let model = word(&body["model"]);
    ensure(!model.is_empty(), || "model: Field required".to_owned())?;
    let limit = &body["max_tokens"];
    ensure(!limit.is_null(), || "max_tokens: Field required".to_owned())?;
    ensure(limit.as_u64().is_some_and(|limit| limit >= 1), || {
        "max_tokens: Input should be greater than or equal to 1".to_owned()
    })?;
    for sampling in ["temperature", "top_p", "top_k"] {
        let takes = generation(model) < (4, 7);
        ensure(body[sampling].is_null() || takes, || {
            format!("`{sampling}` is deprecated for this model.")
        })?;
    }
    let temperature = body["temperature"].as_f64();
    ensure(temperature.is_none_or(|value| value <= 1.0), || {
        "temperature: range: 0..1".to_owned()
    })?;
    ensure(
        generation(model) < (4, 1) || temperature.is_none() || body["top_p"].is_null(),
        || {
            "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
                .to_owned()
        },
    )
}

fn thinking(body: &Value) -> Checked {
    let model = word(&body["model"]);
    let thinking = &body["thinking"];
    let effort = word(&body["output_config"]["effort"]);
    ensure(generation(model) != (4, 6) || effort != "xhigh", || {
        "This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium."
            .to_owned()
    })?;
    match word(&thinking["type"]) {
        "" | "disabled" | "between_tools" => return Ok(()),
        "adaptive" => ensure(generation(model) >= (4, 6), || {
            "adaptive thinking is not supported on this model".to_owned()
        })?,
        "enabled" => {
            ensure(generation(model) < (4, 7), || {
                "\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\" and \"output_config.effort\" to control thinking behavior."
                    .to_owned()
            })?;
            let budget = thinking["budget_tokens"].as_u64().unwrap_or_default();
            ensure(budget >= 1024, || {
                "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
                    .to_owned()
            })?;
            ensure(body["max_tokens"].as_u64() > Some(budget), || {
                "`max_tokens` must be greater than `thinking.budget_tokens`.".to_owned()
            })?;
        }
        other => return Err(format!("thinking: Input tag '{other}' is not known")),
    }
    let hot = body["temperature"].as_f64();
    ensure(
        hot.is_none_or(|value| (value - 1.0).abs() < f64::EPSILON),
        || "`temperature` may only be set to 1 when thinking is enabled.".to_owned(),
    )?;
    ensure(!forces(body), || {
        "Thinking may not be enabled when tool_choice forces tool use.".to_owned()
    })
}

fn forces(body: &Value) -> bool {
    matches!(word(&body["tool_choice"]["type"]), "any" | "tool")
}

fn tools(body: &Value) -> Checked {
    let tools = items(&body["tools"]);
    ensure(!tools.is_empty() || body["tool_choice"].is_null(), || {
        "tool_choice: may only be specified while providing `tools`".to_owned()
    })?;
    ensure(
        generation(word(&body["model"])) < (5, 5) || !forces(body),
        || "tool_choice: this model does not support forced tool use".to_owned(),
    )?;
    for (at, tool) in tools.iter().enumerate() {
        // One that the service runs itself has a type of its own.
        if tool["type"].is_string() && tool["type"] != "custom" {
            continue;
        }
        let place = format!("tools.{at}.custom");
        ensure(is_name(word(&tool["name"]), 128, &['_', '-']), || {
            format!("{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        })?;
        ensure(!tool["input_schema"].is_null(), || {
            format!("{place}.input_schema: Field required")
        })?;
        ensure(tool["input_schema"]["type"] == "object", || {
            format!("{place}.input_schema.type: Input should be 'object'")
        })?;
    }
    let names = tools.iter().map(|tool| word(&tool["name"]));
    ensure(repeated(names.clone()).is_none(), || {
        "tools: Tool names must be unique.".to_owned()
    })?;
    let forced = word(&body["tool_choice"]["name"]);
    ensure(
        forced.is_empty() || names.clone().any(|name| name == forced),
        || format!("Tool '{forced}' not found in provided tools"),
    )
}

/// At most four, those that keep longer first.
fn cache_marks(body: &Value) -> Checked {
    let blocks = items(&body["tools"])
        .iter()
        .cloned()
        .chain(blocks(&body["system"]))
        .chain(items(&body["messages"]).iter().flat_map(inner));
    let marks: Vec<Value> = blocks
        .map(|block| block["cache_control"].clone())
        .filter(|mark| !mark.is_null())
        .collect();
    let automatic = usize::from(!body["cache_control"].is_null());
    ensure(marks.len() + automatic <= 4, || {
        format!(
            "A maximum of 4 blocks with cache_control may be provided. Found {}.",
            marks.len() + automatic
        )
    })?;
    let longer = marks.iter().map(|mark| mark["ttl"] == "1h");
    ensure(longer.is_sorted_by(|before, next| before >= next), || {
        "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block."
            .to_owned()
    })
}

/// The blocks of a message, and those of the results in it.
fn inner(message: &Value) -> Vec<Value> {
    let with_content = |block: Value| {
        let inside = match word(&block["type"]) {
            "tool_result" => blocks(&block["content"]),
            _ => Vec::new(),
        };
        inside.into_iter().chain([block])
    };
    blocks(&message["content"])
        .into_iter()
        .flat_map(with_content)
        .collect()
}

/// Texts have words in them.
fn texts(place: &str, content: &Value) -> Checked {
    for (at, block) in blocks(content).iter().enumerate() {
        if block["type"] != "text" {
            continue;
        }
        let text = word(&block["text"]);
        ensure(!text.is_empty() || block["cache_control"].is_null(), || {
            format!("{place}.{at}.cache_control: cache_control cannot be set for empty text blocks")
        })?;
        ensure(!text.is_empty(), || {
            format!("{place}: text content blocks must be non-empty")
        })?;
        ensure(!text.trim().is_empty(), || {
            format!("{place}: text content blocks must contain non-whitespace text")
        })?;
    }
    Ok(())
}

fn messages(body: &Value) -> Checked {
    let messages = items(&body["messages"]);
    ensure(!messages.is_empty(), || {
        "messages: at least one message is required".to_owned()
    })?;
    ensure(messages[0]["role"] == "user", || {
        "messages: first message must use the \"user\" role".to_owned()
    })?;
    let mut open: Vec<String> = Vec::new();
    let mut used = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages.{at}");
        let content = blocks(&message["content"]);
        let last = at + 1 == messages.len();
        let role = role(&place, body, message)?;
        ensure(!content.is_empty() || last && role == "assistant", || {
            format!(
                "{place}: all messages must have non-empty content except for the optional final assistant message"
            )
        })?;
        texts(&format!("{place}.content"), &message["content"])?;
        match role {
            "assistant" => {
                unanswered(at, &open)?;
                open = calls(&place, &content, &mut used)?;
            }
            _ => {
                results(&place, &content, &mut open)?;
                unanswered(at, &open)?;
            }
        }
    }
    unanswered(messages.len(), &open)?;
    ending(body, &messages[messages.len() - 1])
}

fn role<'a>(place: &str, body: &Value, message: &'a Value) -> Result<&'a str, String> {
    match word(&message["role"]) {
        role @ ("user" | "assistant") => Ok(role),
        "system" if generation(word(&body["model"])) >= (4, 8) => Ok("system"),
        _ => Err(format!(
            "{place}.role: Input should be 'user' or 'assistant'"
        )),
    }
}

/// The ids of the calls in an answer.
fn calls(
    place: &str,
    content: &[Value],
    used: &mut BTreeSet<String>,
) -> Result<Vec<String>, String> {
    let mut open = Vec::new();
    for (number, block) in content.iter().enumerate() {
        let place = format!("{place}.content.{number}");
        match word(&block["type"]) {
            "thinking" | "redacted_thinking" => unmarked(&place, block)?,
            "tool_result" => {
                return Err(format!(
                    "{place}: `tool_result` blocks can only be in `user` messages"
                ));
            }
            "tool_use" => {
                let id = word(&block["id"]);
                call(&place, block)?;
                ensure(used.insert(id.to_owned()), || {
                    "messages: `tool_use` ids must be unique".to_owned()
                })?;
                open.push(id.to_owned());
            }
            _ => {}
        }
    }
    Ok(open)
}

fn call(place: &str, block: &Value) -> Checked {
    ensure(is_name(word(&block["id"]), 256, &['_', '-']), || {
        format!("{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    })?;
    ensure(is_name(word(&block["name"]), 128, &['_', '-']), || {
        format!("{place}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    })?;
    ensure(block["input"].is_object(), || {
        format!("{place}.tool_use.input: Input should be a valid dictionary")
    })
}

fn unmarked(place: &str, block: &Value) -> Checked {
    ensure(block["cache_control"].is_null(), || {
        format!(
            "{place}.{}.cache_control: Extra inputs are not permitted",
            word(&block["type"])
        )
    })
}

/// The results of the calls before, ahead of everything else in the message.
fn results(place: &str, content: &[Value], open: &mut Vec<String>) -> Checked {
    let mut given = BTreeSet::new();
    for (number, block) in content.iter().enumerate() {
        if block["type"] != "tool_result" {
            // What is said ends the results; those that come later are too late.
            if !open.is_empty() {
                break;
            }
            continue;
        }
        let id = word(&block["tool_use_id"]);
        let place = format!("{place}.content.{number}");
        texts(&format!("{place}.tool_result.content"), &block["content"])?;
        if let Some(call) = open.iter().position(|call| call == id) {
            open.remove(call);
            given.insert(id.to_owned());
        } else if given.contains(id) {
            return Err(format!(
                "{place}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
            ));
        } else {
            return Err(format!(
                "{place}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            ));
        }
    }
    Ok(())
}

fn unanswered(next: usize, open: &[String]) -> Checked {
    ensure(open.is_empty(), || {
        format!(
            "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
            next - 1,
            open.join(", ")
        )
    })
}

/// How a conversation ends.
fn ending(body: &Value, last: &Value) -> Checked {
    let content = blocks(&last["content"]);
    let block = content.last().unwrap_or(&Value::Null);
    let kind = word(&block["type"]);
    let paused = kind == "server_tool_use" || kind.ends_with("_tool_result");
    if last["role"] != "assistant" || paused {
        return Ok(());
    }
    ensure(generation(word(&body["model"])) < (4, 6), || {
        "This model does not support assistant message prefill. The conversation must end with a user message."
            .to_owned()
    })?;
    let text = word(&block["text"]);
    ensure(text.trim_end() == text, || {
        "messages: final assistant content cannot end with trailing whitespace".to_owned()
    })
}

/// Thinking is signed, by this service, where it stands.
fn signatures(body: &Value, issued: &str) -> Checked {
    let drops = &body["thinking"]["block_binding"]["prefix_mismatch_behavior"] == "drop_block";
    let messages = items(&body["messages"]);
    for (at, message) in messages.iter().enumerate() {
        let content = blocks(&message["content"]);
        for (number, block) in content.iter().enumerate() {
            let place = format!("messages.{at}.content.{number}");
            let Some((signature, thinking)) = signed(&place, block)? else {
                continue;
            };
            let said = [json!({"role": message["role"], "content": content[..number]})];
            let before = [flat(&messages[..at]), flat(&said)].concat();
            let fits = drops || signature == bound(body, &before, thinking);
            let own = signature.starts_with(BOUND);
            ensure(fits || !own, || {
                format!(
                    "{place}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\""
                )
            })?;
            ensure(
                own || !signature.is_empty() && issued.contains(signature),
                || format!("{place}: Invalid `signature` in `thinking` block"),
            )?;
        }
    }
    Ok(())
}

/// The signature of a block of thinking, and what it shows; `None` of another block.
fn signed<'a>(place: &str, block: &'a Value) -> Result<Option<(&'a str, &'a str)>, String> {
    match word(&block["type"]) {
        "thinking" => {
            for field in ["thinking", "signature"] {
                ensure(block[field].is_string(), || {
                    format!("{place}.thinking.{field}: Field required")
                })?;
            }
            Ok(Some((word(&block["signature"]), word(&block["thinking"]))))
        }
        "redacted_thinking" => Ok(Some((word(&block["data"]), ""))),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::check, *};

    fn says(role: &str, content: Value) -> Value {
        json!({"role": role, "content": content})
    }

    fn text(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    fn call(id: &str) -> Value {
        json!({"type": "tool_use", "id": id, "name": "look", "input": {}})
    }

    fn result(id: &str) -> Value {
        json!({"type": "tool_result", "tool_use_id": id, "content": "red"})
    }

    fn marked(mut block: Value, ttl: &str) -> Value {
        block["cache_control"] = json!({"type": "ephemeral", "ttl": ttl});
        block
    }

    fn thought(signature: &str) -> Value {
        json!({"type": "thinking", "thinking": "Hm.", "signature": signature})
    }

    fn base() -> Value {
        json!({
            "model": "claude-opus-4-5",
            "max_tokens": 4096,
            "messages": [says("user", json!("Hello."))],
        })
    }

    fn given(messages: Vec<Value>) -> Vec<(&'static str, Value)> {
        vec![("/messages", json!(messages))]
    }

    #[test]
    fn conversations_that_anthropic_refuses_are_refused_in_its_words() {
        let question = || says("user", json!("?"));
        let calls = |ids: &[&str]| {
            let calls: Vec<Value> = ids.iter().map(|id| call(id)).collect();
            vec![question(), says("assistant", json!(calls))]
        };
        let answered = |ids: &[&str], results: Value| {
            given([calls(ids), vec![says("user", results)]].concat())
        };
        let for_model = |model: &str, mut changes: Vec<(&'static str, Value)>| {
            changes.push(("/model", json!(model)));
            changes
        };
        let prefilled = |words: &str| given(vec![question(), says("assistant", json!(words))]);
        let instructed = || given(vec![question(), says("system", json!("Be brief."))]);
        let paused = json!([{"type": "server_tool_use", "id": "s"}]);
        let cases = [
            ("a question", vec![], ""),
            ("nothing", given(vec![]), "at least one message"),
            (
                "a first assistant",
                given(vec![says("assistant", json!("Hi.")), question()]),
                "first message must use the \"user\" role",
            ),
            (
                "answered calls",
                answered(
                    &["a", "b"],
                    json!([result("b"), result("a"), text("Go on.")]),
                ),
                "",
            ),
            (
                "a call without its result",
                answered(&["a", "b"], json!([result("b")])),
                "ids were found without `tool_result` blocks immediately after: a",
            ),
            (
                "a call at the end",
                given(calls(&["a"])),
                "immediately after: a",
            ),
            (
                "a result after words",
                answered(&["a"], json!([text("Here."), result("a")])),
                "immediately after: a",
            ),
            (
                "results in two messages",
                given(
                    [
                        calls(&["a", "b"]),
                        vec![says("user", json!([result("a")]))],
                        vec![says("user", json!([result("b")]))],
                    ]
                    .concat(),
                ),
                "immediately after: b",
            ),
            (
                "a result without its call",
                given(vec![says("user", json!([result("a")]))]),
                "unexpected `tool_use_id` found in `tool_result` blocks: a",
            ),
            (
                "two results of a call",
                answered(&["a"], json!([result("a"), result("a")])),
                "each tool_use must have a single result",
            ),
            (
                "an id twice",
                given(calls(&["a", "a"])),
                "`tool_use` ids must be unique",
            ),
            (
                "an empty text",
                given(vec![says("user", json!([text("")]))]),
                "text content blocks must be non-empty",
            ),
            (
                "a blank text",
                given(vec![says("user", json!(" \n"))]),
                "must contain non-whitespace text",
            ),
            (
                "blank instructions",
                vec![("/system", json!([text(" ")]))],
                "system: text content blocks must contain",
            ),
            (
                "no content",
                given(vec![says("user", json!([])), question()]),
                "all messages must have non-empty content",
            ),
            (
                "instructions in between",
                instructed(),
                "Input should be 'user' or 'assistant'",
            ),
            (
                "instructions in between for a newer model",
                for_model("claude-opus-4-8", instructed()),
                "",
            ),
            ("a prefill", prefilled("Well"), ""),
            (
                "a prefill with a space at its end",
                prefilled("Well "),
                "trailing whitespace",
            ),
            (
                "a prefill for a newer model",
                for_model("claude-sonnet-4-6", prefilled("Well")),
                "does not support assistant message prefill",
            ),
            (
                "a paused turn",
                for_model(
                    "claude-sonnet-4-6",
                    given(vec![question(), says("assistant", paused)]),
                ),
                "",
            ),
        ];
        check(|body| refusal(body, ""), &base(), &cases);
    }

    #[test]
    fn settings_and_tools_that_anthropic_refuses_are_refused_in_its_words() {
        let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
        let tools = |tools: Value| vec![("/tools", tools)];
        let enabled = |budget: u32| {
            (
                "/thinking",
                json!({"type": "enabled", "budget_tokens": budget}),
            )
        };
        let model = |model: &str| ("/model", json!(model));
        let temperature = || ("/temperature", json!(0.5));
        let any = || ("/tool_choice", json!({"type": "any"}));
        let cases = [
            (
                "no max_tokens",
                vec![("/max_tokens", Value::Null)],
                "max_tokens: Field required",
            ),
            (
                "none at all",
                vec![("/max_tokens", json!(0))],
                "greater than or equal to 1",
            ),
            ("a temperature", vec![temperature()], ""),
            (
                "a temperature for a newer model",
                vec![temperature(), model("claude-opus-4-7")],
                "`temperature` is deprecated for this model.",
            ),
            (
                "both ways of sampling",
                vec![temperature(), ("/top_p", json!(0.5))],
                "cannot both be specified",
            ),
            ("thinking", vec![enabled(1024)], ""),
            (
                "little thinking",
                vec![enabled(1023)],
                "greater than or equal to 1024",
            ),
            (
                "much thinking",
                vec![enabled(4096)],
                "must be greater than `thinking.budget_tokens`",
            ),
            (
                "a budget for a newer model",
                vec![enabled(1024), model("claude-opus-4-7")],
                "Use \"thinking.type.adaptive\"",
            ),
            (
                "adaptive thinking for an older model",
                vec![("/thinking", json!({"type": "adaptive"}))],
                "adaptive thinking is not supported",
            ),
            (
                "thinking with a temperature",
                vec![enabled(1024), temperature()],
                "may only be set to 1 when thinking is enabled",
            ),
            (
                "thinking with a forced tool",
                vec![enabled(1024), ("/tools", json!([tool("look")])), any()],
                "Thinking may not be enabled when tool_choice forces tool use",
            ),
            (
                "an effort that the model does not have",
                vec![
                    model("claude-opus-4-6"),
                    ("/output_config", json!({"effort": "xhigh"})),
                ],
                "does not support effort level 'xhigh'",
            ),
            ("a tool", tools(json!([tool("look_up-1")])), ""),
            (
                "a tool that the service runs",
                tools(json!([{"type": "web_search_20250305", "name": "web_search"}])),
                "",
            ),
            (
                "a name with a dot",
                tools(json!([tool("look.up")])),
                "tools.0.custom.name: String should match pattern",
            ),
            (
                "a name twice",
                tools(json!([tool("look"), tool("look")])),
                "Tool names must be unique",
            ),
            (
                "a schema that is no object",
                tools(json!([{"name": "look", "input_schema": {"type": "string"}}])),
                "tools.0.custom.input_schema.type: Input should be 'object'",
            ),
            (
                "a choice without tools",
                vec![any()],
                "may only be specified while providing `tools`",
            ),
            (
                "the choice of an unknown tool",
                vec![
                    ("/tools", json!([tool("look")])),
                    ("/tool_choice", json!({"type": "tool", "name": "see"})),
                ],
                "Tool 'see' not found",
            ),
            (
                "a forced tool for a model that cannot be forced",
                vec![
                    model("claude-opus-5-5"),
                    ("/tools", json!([tool("look")])),
                    any(),
                ],
                "does not support forced tool use",
            ),
        ];
        check(|body| refusal(body, ""), &base(), &cases);
    }

    #[test]
    fn cache_marks_that_anthropic_refuses_are_refused_in_its_words() {
        let marks = |number: usize, ttl: &str| {
            let marks: Vec<Value> = (0..number).map(|_| marked(text("a"), ttl)).collect();
            json!(marks)
        };
        let both = |number: usize, ttl: &str| {
            vec![
                ("/system", marks(number, "5m")),
                ("/messages", json!([says("user", marks(1, ttl))])),
            ]
        };
        let cases = [
            ("four marks", vec![("/system", marks(4, "5m"))], ""),
            (
                "five marks",
                both(4, "5m"),
                "A maximum of 4 blocks with cache_control may be provided. Found 5.",
            ),
            (
                "a longer one after a shorter one",
                both(1, "1h"),
                "must not come after a ttl='5m'",
            ),
            (
                "a mark on an empty text",
                vec![("/system", json!([marked(text(""), "5m")]))],
                "cache_control cannot be set for empty text blocks",
            ),
            (
                "a mark on thinking",
                given(vec![
                    says("user", json!("?")),
                    says("assistant", json!([marked(thought("s"), "5m")])),
                ]),
                "thinking.cache_control: Extra inputs are not permitted",
            ),
        ];
        check(|body| refusal(body, ""), &base(), &cases);
    }

    #[test]
    fn a_signature_holds_only_for_what_stood_before_its_thinking() {
        let request = json!({
            "model": "claude-opus-5-5",
            "max_tokens": 1,
            "system": "Be brief.",
            "tools": [{"name": "look", "input_schema": {"type": "object"}}],
            "messages": [says("user", json!("?"))],
        });
        let first = thought(&signature(&request, &[], "Hm."));
        let again = thought(&signature(&request, &[first.clone(), text("So.")], "Hm."));
        let answer = says("assistant", json!([first, text("So."), again, call("a")]));
        let mut base = request;
        base["messages"] = json!([
            says("user", json!("?")),
            answer,
            says("user", json!([result("a")]))
        ]);
        let block = |pointer: &'static str, with: Value| vec![(pointer, with)];
        let bound = "bound to a different conversation";
        let cases = [
            ("the same prefix", vec![], ""),
            (
                "marks for the cache",
                vec![
                    ("/system", json!([marked(text("Be brief."), "5m")])),
                    ("/messages/0/content", json!([marked(text("?"), "5m")])),
                ],
                "",
            ),
            (
                "other instructions",
                vec![("/system", json!("Be long."))],
                bound,
            ),
            ("other tools", vec![("/tools", json!([]))], bound),
            (
                "another question",
                vec![("/messages/0/content", json!("!"))],
                bound,
            ),
            (
                "another word before",
                block("/messages/1/content/1", text("Thus.")),
                "messages.1.content.2: Invalid",
            ),
            (
                "other thinking",
                block(
                    "/messages/1/content/0",
                    json!({"type": "thinking", "thinking": "Ah.", "signature": "bound-1"}),
                ),
                "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound",
            ),
            (
                "no signature",
                block(
                    "/messages/1/content/2",
                    json!({"type": "thinking", "thinking": "Hm."}),
                ),
                "messages.1.content.2.thinking.signature: Field required",
            ),
            (
                "the signature of another service",
                block("/messages/1/content/2", thought("theirs")),
                "Invalid `signature`",
            ),
            (
                "a signature that was given out",
                block("/messages/1/content/2", thought("ours")),
                "",
            ),
        ];
        check(|body| refusal(body, "ours"), &base, &cases);
    }
}
