//! Validates requests as Anthropic's Messages API does, and the signatures of thinking, which are bound to all content
//! before them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    Checked, ensure, is_name, items, repeated,
    rows::{ANTHROPIC, Refusal},
    word,
};

/// The prefix of a signature that is bound to the content before it.
const BOUND: &str = "bound-";

/// Fields of blocks that are not part of what the model reads.
const UNREAD: &[&str] = &["cache_control", "citations", "caller"];

/// Why Anthropic refuses the request. Returns `None` if it accepts it. A signature must match the content before it, or
/// be in `issued`.
///
/// A conversation ends with a user message. It may end with an assistant message only after a paused turn, which is
/// recognized by its last block: a call of a hosted tool.
pub fn refusal(body: &Value, issued: &str) -> Option<Refusal> {
    settings(body)
        .and_then(|()| thinking(body))
        .and_then(|()| tools(body))
        .and_then(|()| cache_marks(body))
        .and_then(|()| texts("system", &body["system"]))
        .and_then(|()| messages(body))
        .and_then(|()| instructions(body))
        .and_then(|()| reasoning(body))
        .and_then(|()| hosted(body))
        .and_then(|()| signatures(body, issued))
        .err()
}

/// The signature of thinking that follows the conversation of a request and, in its response, these blocks.
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

/// Every block with its role; consecutive messages of one role count as one.
fn flat(messages: &[Value]) -> Vec<Value> {
    let of = |message: &Value| {
        let role = message["role"].clone();
        let said = |block: Value| json!([role, block]);
        blocks(&message["content"]).into_iter().map(said).collect::<Vec<_>>()
    };
    messages.iter().flat_map(of).collect()
}

/// The blocks of a content; a string is an abbreviation of a text block.
fn blocks(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        content => items(content).to_vec(),
    }
}

/// Removes what the model does not read.
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

/// A feature that some models accept and others refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Sampling,
    BudgetThinking,
    AdaptiveThinking,
    NoThinking,
    AnyPrefix,
    Effort,
    Xhigh,
    ForcedTools,
    SystemMessages,
    Prefill,
}

/// The features of each model by name, as documented by Anthropic and LiteLLM. They are listed model by model, so that
/// this does not repeat contextd's rules for names.
const MODELS: &[(&[&str], &[Takes])] = &[
    (
        &["claude-opus-4-5"],
        &[
            Takes::Sampling,
            Takes::BudgetThinking,
            Takes::NoThinking,
            Takes::AnyPrefix,
            Takes::Effort,
            Takes::ForcedTools,
            Takes::Prefill,
        ],
    ),
    (
        &["claude-sonnet-4-5", "claude-haiku-4-5"],
        &[
            Takes::Sampling,
            Takes::BudgetThinking,
            Takes::NoThinking,
            Takes::AnyPrefix,
            Takes::ForcedTools,
            Takes::Prefill,
        ],
    ),
    (
        &["claude-opus-4-6", "claude-sonnet-4-6"],
        &[
            Takes::Sampling,
            Takes::BudgetThinking,
            Takes::AdaptiveThinking,
            Takes::Effort,
            Takes::NoThinking,
            Takes::AnyPrefix,
            Takes::ForcedTools,
        ],
    ),
    (
        &["claude-opus-4-7"],
        &[
            Takes::AdaptiveThinking,
            Takes::Effort,
            Takes::NoThinking,
            Takes::AnyPrefix,
            Takes::Xhigh,
            Takes::ForcedTools,
        ],
    ),
    (
        &["claude-opus-4-8", "claude-opus-5", "claude-sonnet-5"],
        &[
            Takes::AdaptiveThinking,
            Takes::Effort,
            Takes::NoThinking,
            Takes::AnyPrefix,
            Takes::Xhigh,
            Takes::ForcedTools,
            Takes::SystemMessages,
        ],
    ),
    (
        &["claude-haiku-5-5"],
        &[
            Takes::AdaptiveThinking,
            Takes::Effort,
            Takes::NoThinking,
            Takes::Xhigh,
            Takes::ForcedTools,
            Takes::SystemMessages,
        ],
    ),
    (&["claude-fable-5-1", "claude-mythos-5-1", "claude-opus-5-5", "claude-sonnet-5-5"], NEWEST),
];

/// The features of the latest models, and of models with unknown names.
const NEWEST: &[Takes] = &[Takes::AdaptiveThinking, Takes::Effort, Takes::Xhigh, Takes::SystemMessages];

/// Whether the model of a request accepts the feature.
fn takes(body: &Value, what: Takes) -> bool {
    let name = word(&body["model"]);
    let dated = name.rsplit_once("-20").filter(|(_, date)| date.len() == 6);
    let name = dated.map_or(name, |(name, _)| name);
    let known = MODELS.iter().find(|(names, _)| names.contains(&name));
    known.map_or(NEWEST, |(_, takes)| takes).contains(&what)
}

fn settings(body: &Value) -> Checked {
    let model = word(&body["model"]);
    ensure(!model.is_empty(), || ANTHROPIC.refuse("model", &[]))?;
    let limit = &body["max_tokens"];
    ensure(!limit.is_null(), || ANTHROPIC.refuse("max-tokens", &[]))?;
    ensure(limit.as_u64().is_some_and(|limit| limit >= 1), || ANTHROPIC.refuse("max-tokens-low", &[]))?;
    for sampling in ["temperature", "top_p", "top_k"] {
        ensure(body[sampling].is_null() || takes(body, Takes::Sampling), || {
            ANTHROPIC.refuse("sampling", &[("sampling", &sampling)])
        })?;
    }
    let temperature = body["temperature"].as_f64();
    ensure(temperature.is_none_or(|value| value <= 1.0), || ANTHROPIC.refuse("temperature", &[]))?;
    ensure(temperature.is_none() || body["top_p"].is_null(), || ANTHROPIC.refuse("temperature-and-top-p", &[]))
}

fn thinking(body: &Value) -> Checked {
    let thinking = &body["thinking"];
    let effort = word(&body["output_config"]["effort"]);
    ensure(takes(body, Takes::Effort) || effort.is_empty(), || ANTHROPIC.refuse("effort", &[]))?;
    ensure(takes(body, Takes::Xhigh) || effort != "xhigh", || ANTHROPIC.refuse("effort-xhigh", &[]))?;
    let thinks = matches!(word(&thinking["type"]), "adaptive" | "enabled");
    ensure(!thinks || !forces(body), || ANTHROPIC.refuse("thinking-and-forced", &[]))?;
    match word(&thinking["type"]) {
        "" | "between_tools" => return Ok(()),
        "disabled" => {
            ensure(takes(body, Takes::NoThinking), || ANTHROPIC.refuse("thinking-disabled", &[]))?;
            let thinks_for_it = matches!(effort, "xhigh" | "max");
            let model = word(&body["model"]);
            return ensure(!thinks_for_it || !model.starts_with("claude-opus-5"), || {
                ANTHROPIC.refuse("effort-and-disabled", &[("effort", &effort)])
            });
        }
        "adaptive" => ensure(takes(body, Takes::AdaptiveThinking), || ANTHROPIC.refuse("thinking-adaptive", &[]))?,
        "enabled" => {
            ensure(takes(body, Takes::BudgetThinking), || ANTHROPIC.refuse("thinking-enabled", &[]))?;
            let budget = thinking["budget_tokens"].as_u64().unwrap_or_default();
            ensure(budget >= 1024, || ANTHROPIC.refuse("budget-low", &[]))?;
            ensure(body["max_tokens"].as_u64() > Some(budget), || ANTHROPIC.refuse("budget-high", &[]))?;
        }
        other => return Err(ANTHROPIC.refuse("thinking-type", &[("other", &other)])),
    }
    let hot = body["temperature"].as_f64();
    ensure(hot.is_none_or(|value| (value - 1.0).abs() < f64::EPSILON), || {
        ANTHROPIC.refuse("thinking-and-temperature", &[])
    })
}

fn forces(body: &Value) -> bool {
    matches!(word(&body["tool_choice"]["type"]), "any" | "tool")
}

fn tools(body: &Value) -> Checked {
    let tools = items(&body["tools"]);
    let choice = word(&body["tool_choice"]["type"]);
    ensure(!tools.is_empty() || matches!(choice, "" | "none"), || {
        ANTHROPIC.refuse("choice-without-tools", &[("kind", &choice)])
    })?;
    ensure(takes(body, Takes::ForcedTools) || !forces(body), || ANTHROPIC.refuse("forced", &[]))?;
    for (at, tool) in tools.iter().enumerate() {
        // Hosted tools have their own types.
        if tool["type"].is_string() && tool["type"] != "custom" {
            continue;
        }
        let place = format!("tools.{at}.custom");
        ensure(is_name(word(&tool["name"]), 128, &['_', '-']), || ANTHROPIC.refuse("tool-name", &[("place", &place)]))?;
        ensure(!tool["input_schema"].is_null(), || ANTHROPIC.refuse("tool-schema", &[("place", &place)]))?;
        ensure(tool["input_schema"]["type"] == "object", || {
            ANTHROPIC.refuse("tool-schema-type", &[("place", &place)])
        })?;
        let combined = ["oneOf", "allOf", "anyOf"].iter().any(|key| !tool["input_schema"][key].is_null());
        ensure(!combined, || ANTHROPIC.refuse("tool-schema-combined", &[("place", &place)]))?;
    }
    let names = tools.iter().map(|tool| word(&tool["name"]));
    ensure(repeated(names.clone()).is_none(), || ANTHROPIC.refuse("tool-twice", &[]))?;
    let forced = word(&body["tool_choice"]["name"]);
    ensure(forced.is_empty() || names.clone().any(|name| name == forced), || {
        ANTHROPIC.refuse("choice-unknown", &[("forced", &forced)])
    })
}

/// Checks cache breakpoints: at most four, those with a longer TTL first.
fn cache_marks(body: &Value) -> Checked {
    let blocks = items(&body["tools"])
        .iter()
        .cloned()
        .chain(blocks(&body["system"]))
        .chain(items(&body["messages"]).iter().flat_map(inner));
    let marks: Vec<Value> = blocks.map(|block| block["cache_control"].clone()).filter(|mark| !mark.is_null()).collect();
    let automatic = usize::from(!body["cache_control"].is_null());
    ensure(marks.len() + automatic <= 4, || ANTHROPIC.refuse("cache-marks", &[("found", &(marks.len() + automatic))]))?;
    let longer = marks.iter().map(|mark| mark["ttl"] == "1h");
    ensure(longer.is_sorted_by(|before, next| before >= next), || ANTHROPIC.refuse("cache-order", &[]))
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
    blocks(&message["content"]).into_iter().flat_map(with_content).collect()
}

/// Checks that texts are not blank.
fn texts(place: &str, content: &Value) -> Checked {
    for (at, block) in blocks(content).iter().enumerate() {
        if block["type"] != "text" {
            continue;
        }
        let text = word(&block["text"]);
        ensure(!text.is_empty() || block["cache_control"].is_null(), || {
            ANTHROPIC.refuse("cache-empty", &[("place", &place), ("at", &at)])
        })?;
        ensure(!text.is_empty(), || ANTHROPIC.refuse("text-empty", &[("place", &place)]))?;
        ensure(!text.trim().is_empty(), || ANTHROPIC.refuse("text-blank", &[("place", &place)]))?;
    }
    Ok(())
}

fn messages(body: &Value) -> Checked {
    let messages = items(&body["messages"]);
    ensure(!messages.is_empty(), || ANTHROPIC.refuse("messages", &[]))?;
    ensure(messages[0]["role"] == "user", || ANTHROPIC.refuse("first-role", &[]))?;
    let mut open: Vec<String> = Vec::new();
    let mut used = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages.{at}");
        let content = blocks(&message["content"]);
        let last = at + 1 == messages.len();
        let role = role(&place, body, message)?;
        ensure(!content.is_empty() || last && role == "assistant", || {
            ANTHROPIC.refuse("content", &[("place", &place)])
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

fn role<'a>(place: &str, body: &Value, message: &'a Value) -> Result<&'a str, Refusal> {
    match word(&message["role"]) {
        role @ ("user" | "assistant") => Ok(role),
        "system" if takes(body, Takes::SystemMessages) => Ok("system"),
        "system" => Err(ANTHROPIC.refuse("role-system", &[("place", &place)])),
        _ => Err(ANTHROPIC.refuse("role", &[("place", &place)])),
    }
}

/// Checks instructions within the conversation: they follow a user message, or the result of a hosted tool, and an
/// assistant message follows them.
fn instructions(body: &Value) -> Checked {
    let messages = items(&body["messages"]);
    for (at, message) in messages.iter().enumerate() {
        if message["role"] != "system" {
            continue;
        }
        let before = at.checked_sub(1).map(|before| &messages[before]);
        let follows = before.is_some_and(|before| {
            let last = blocks(&before["content"]).pop().unwrap_or_default();
            before["role"] == "user" || before["role"] == "assistant" && is_hosted_result(word(&last["type"]))
        });
        ensure(follows, || ANTHROPIC.refuse("system-after", &[("at", &at)]))?;
        let next = messages.get(at + 1);
        ensure(next.is_none_or(|next| next["role"] == "assistant"), || {
            ANTHROPIC.refuse("system-before", &[("at", &at)])
        })?;
    }
    Ok(())
}

/// Checks that thinking is followed by another block. If thinking is enabled, each assistant message of the current
/// tool loop must begin with it.
fn reasoning(body: &Value) -> Checked {
    let messages = items(&body["messages"]);
    let is_thinking = |block: &Value| matches!(word(&block["type"]), "thinking" | "redacted_thinking");
    let says = |message: &Value| {
        let content = blocks(&message["content"]);
        message["role"] == "user" && content.iter().any(|block| block["type"] != "tool_result")
    };
    let begins = messages.iter().rposition(says).unwrap_or_default();
    for (at, message) in messages.iter().enumerate() {
        let content = blocks(&message["content"]);
        if message["role"] != "assistant" {
            continue;
        }
        ensure(!content.last().is_some_and(is_thinking), || ANTHROPIC.refuse("thinking-last", &[("at", &at)]))?;
        let calls = content.iter().any(|block| block["type"] == "tool_use");
        let expected = at > begins && calls && body["thinking"]["type"] == "enabled";
        ensure(!expected || content.first().is_some_and(is_thinking), || {
            ANTHROPIC.refuse("thinking-first", &[("at", &at), ("kind", &word(&content[0]["type"]))])
        })?;
    }
    Ok(())
}

fn is_hosted_call(kind: &str) -> bool {
    matches!(kind, "server_tool_use" | "mcp_tool_use")
}

fn is_hosted_result(kind: &str) -> bool {
    kind != "tool_result" && kind.ends_with("tool_result")
}

/// Checks that calls of hosted tools have results before the next user message, and that results have calls.
fn hosted(body: &Value) -> Checked {
    let mut open: Vec<String> = Vec::new();
    let mut called = BTreeSet::new();
    for (at, message) in items(&body["messages"]).iter().enumerate() {
        for (number, block) in blocks(&message["content"]).iter().enumerate() {
            let place = format!("messages.{at}.content.{number}");
            let kind = word(&block["type"]);
            if message["role"] != "assistant" {
                ensure(kind == "tool_result" || open.is_empty(), || {
                    ANTHROPIC.refuse("hosted-unanswered", &[("place", &place), ("ids", &open.join(", "))])
                })?;
            } else if is_hosted_call(kind) {
                let id = word(&block["id"]).to_owned();
                called.insert(id.clone());
                open.push(id);
            } else if is_hosted_result(kind) {
                let id = word(&block["tool_use_id"]);
                let call = open.iter().position(|call| call == id);
                let call = call.ok_or_else(|| {
                    ANTHROPIC.refuse("hosted-result-alone", &[("place", &place), ("kind", &kind), ("id", &id)])
                })?;
                open.remove(call);
                ensure(block.get("content") != Some(&Value::Null), || {
                    ANTHROPIC.refuse("hosted-content", &[("place", &place), ("kind", &kind)])
                })?;
            }
            let caller = &block["caller"]["tool_id"];
            ensure(caller.is_null() || called.contains(word(caller)), || {
                ANTHROPIC.refuse("caller", &[("place", &place), ("caller", &caller)])
            })?;
        }
    }
    Ok(())
}

/// The ids of the calls in an assistant message.
fn calls(place: &str, content: &[Value], used: &mut BTreeSet<String>) -> Result<Vec<String>, Refusal> {
    let mut open = Vec::new();
    for (number, block) in content.iter().enumerate() {
        let place = format!("{place}.content.{number}");
        match word(&block["type"]) {
            "thinking" | "redacted_thinking" => unmarked(&place, block)?,
            "tool_result" => {
                return Err(ANTHROPIC.refuse("result-role", &[("place", &place)]));
            }
            "tool_use" => {
                let id = word(&block["id"]);
                call(&place, block)?;
                ensure(used.insert(id.to_owned()), || ANTHROPIC.refuse("call-twice", &[]))?;
                open.push(id.to_owned());
            }
            _ => {}
        }
    }
    Ok(open)
}

fn call(place: &str, block: &Value) -> Checked {
    ensure(is_name(word(&block["id"]), 256, &['_', '-']), || ANTHROPIC.refuse("call-id", &[("place", &place)]))?;
    let length = word(&block["name"]).len();
    ensure(length <= 200, || ANTHROPIC.refuse("call-name-length", &[("place", &place)]))?;
    ensure(is_name(word(&block["name"]), 200, &['_', '-']), || ANTHROPIC.refuse("call-name", &[("place", &place)]))?;
    ensure(block["input"].is_object(), || ANTHROPIC.refuse("call-input", &[("place", &place)]))
}

fn unmarked(place: &str, block: &Value) -> Checked {
    ensure(block["cache_control"].is_null(), || {
        ANTHROPIC.refuse("cache-thinking", &[("place", &place), ("kind", &word(&block["type"]))])
    })
}

/// Checks the results of the previous calls, which must be the first blocks of the message.
fn results(place: &str, content: &[Value], open: &mut Vec<String>) -> Checked {
    let mut given = BTreeSet::new();
    for (number, block) in content.iter().enumerate() {
        if block["type"] != "tool_result" {
            // Other content ends the results; later ones are too late.
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
            return Err(ANTHROPIC.refuse("result-twice", &[("place", &place), ("id", &id)]));
        } else {
            return Err(ANTHROPIC.refuse("result-alone", &[("place", &place), ("id", &id)]));
        }
    }
    Ok(())
}

fn unanswered(next: usize, open: &[String]) -> Checked {
    ensure(open.is_empty(), || ANTHROPIC.refuse("call-unanswered", &[("at", &(next - 1)), ("ids", &open.join(", "))]))
}

/// Checks how the conversation ends.
fn ending(body: &Value, last: &Value) -> Checked {
    let content = blocks(&last["content"]);
    let block = content.last().unwrap_or(&Value::Null);
    let kind = word(&block["type"]);
    let paused = is_hosted_call(kind) || is_hosted_result(kind);
    if last["role"] != "assistant" || paused {
        return Ok(());
    }
    ensure(takes(body, Takes::Prefill), || ANTHROPIC.refuse("prefill", &[]))?;
    let text = word(&block["text"]);
    ensure(text.trim_end() == text, || ANTHROPIC.refuse("prefill-blank", &[]))
}

/// Checks that thinking is signed by this service, at its position.
fn signatures(body: &Value, issued: &str) -> Checked {
    // Models of other vendors sign nothing.
    if !word(&body["model"]).contains("claude") {
        return Ok(());
    }
    let drops = &body["thinking"]["block_binding"]["prefix_mismatch_behavior"] == "drop_block";
    let free = drops || takes(body, Takes::AnyPrefix);
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
            let fits = free || signature == bound(body, &before, thinking);
            let own = signature.starts_with(BOUND);
            ensure(fits || !own, || ANTHROPIC.refuse("signature-prefix", &[("place", &place)]))?;
            ensure(own || !signature.is_empty() && issued.contains(signature), || {
                ANTHROPIC.refuse("signature", &[("place", &place)])
            })?;
        }
    }
    Ok(())
}

/// The signature and the text of a thinking block. Returns `None` for other blocks.
fn signed<'a>(place: &str, block: &'a Value) -> Result<Option<(&'a str, &'a str)>, Refusal> {
    match word(&block["type"]) {
        "thinking" => {
            for field in ["thinking", "signature"] {
                ensure(block[field].is_string(), || {
                    ANTHROPIC.refuse("signature-missing", &[("place", &place), ("field", &field)])
                })?;
            }
            Ok(Some((word(&block["signature"]), word(&block["thinking"]))))
        }
        "redacted_thinking" => Ok(Some((word(&block["data"]), ""))),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
