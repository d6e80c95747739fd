//! Rules that only one of the services with Chat Completions has.

use serde_json::Value;

use super::super::{Checked, ensure, items, reasons, rows::CHAT, word};

/// OpenAI's maximum number of tools and of stop sequences, and Groq's of stop sequences.
const TOOLS: usize = 128;
const STOPS: usize = 4;

/// Checks whether the service with this dialect accepts the request.
pub(super) fn of(service: &str, body: &Value) -> Checked {
    match service {
        "openai" => openai(body),
        "deepseek" => deepseek(body),
        "groq" => groq(body),
        "mistral" => mistral(body),
        "moonshot" => moonshot(body),
        "perplexity" => perplexity(body),
        "xai" => xai(body),
        _ => Ok(()),
    }
}

/// The assistant messages with tool calls, and their indexes.
fn calling(body: &Value) -> impl Iterator<Item = (usize, &Value)> {
    let messages = items(&body["messages"]).iter().enumerate();
    messages.filter(|(_, message)| !items(&message["tool_calls"]).is_empty())
}

/// How a request forces a call; empty if it does not.
fn forced(body: &Value) -> &'static str {
    match &body["tool_choice"] {
        Value::String(choice) if choice == "required" => "required",
        Value::Object(_) => "specified",
        _ => "",
    }
}

fn openai(body: &Value) -> Checked {
    let tools = items(&body["tools"]).len();
    ensure(tools <= TOOLS, || CHAT.refuse("tools-too-many", &[("count", &tools)]))?;
    let reasons = reasons(word(&body["model"]));
    ensure(!reasons || body["stop"].is_null(), || CHAT.refuse("stop", &[]))?;
    ensure(!reasons || body["max_tokens"].is_null(), || CHAT.refuse("max-tokens", &[]))?;
    stops(body, "stops")
}

fn stops(body: &Value, row: &str) -> Checked {
    let count = items(&body["stop"]).len();
    ensure(count <= STOPS, || CHAT.refuse(row, &[("count", &count)]))
}

fn deepseek(body: &Value) -> Checked {
    let parts = items(&body["messages"]).iter().flat_map(|message| items(&message["content"]));
    let strange = parts.map(|part| word(&part["type"])).find(|kind| *kind != "text");
    ensure(strange.is_none(), || CHAT.refuse("deepseek-parts", &[("kind", &strange.unwrap_or_default())]))?;
    // `deepseek-chat` is the name of the same model without reasoning.
    if body["thinking"]["type"] == "disabled" || body["model"] == "deepseek-chat" {
        return Ok(());
    }
    ensure(forced(body).is_empty(), || CHAT.refuse("deepseek-forced", &[]))?;
    let kept = calling(body).all(|(_, message)| message["reasoning_content"].is_string());
    ensure(kept, || CHAT.refuse("deepseek-reasoning", &[]))
}

fn groq(body: &Value) -> Checked {
    stops(body, "groq-stops")?;
    for (at, message) in items(&body["messages"]).iter().enumerate() {
        ensure(message["reasoning_content"].is_null(), || CHAT.refuse("groq-reasoning-content", &[("at", &at)]))?;
    }
    Ok(())
}

fn mistral(body: &Value) -> Checked {
    for (_, message) in calling(body) {
        for call in items(&message["tool_calls"]) {
            let id = word(&call["id"]);
            let fits = id.len() == 9 && id.chars().all(|it| it.is_ascii_alphanumeric());
            ensure(fits, || CHAT.refuse("mistral-call-id", &[("id", &id)]))?;
        }
    }
    let roles: Vec<&str> = items(&body["messages"]).iter().map(|message| word(&message["role"])).collect();
    ensure(!roles.windows(2).any(|pair| pair == ["tool", "user"]), || CHAT.refuse("mistral-user-after-tool", &[]))
}

/// Models of Kimi that reason by default. Each mode has a fixed temperature.
const KIMI: &[&str] = &["kimi-k2.", "kimi-k2-thinking", "kimi-k3"];

fn moonshot(body: &Value) -> Checked {
    let model = word(&body["model"]);
    if !KIMI.iter().any(|start| model.starts_with(start)) {
        return Ok(());
    }
    let thinking = &body["thinking"];
    ensure(thinking.is_null() || body["reasoning_effort"].is_null(), || {
        CHAT.refuse("moonshot-thinking-and-effort", &[])
    })?;
    let thinks = thinking["type"] != "disabled";
    ensure(thinks || !model.starts_with("kimi-k2.7-code"), || CHAT.refuse("moonshot-thinking-disabled", &[]))?;
    let allowed = if thinks { 1.0 } else { 0.6 };
    ensure(body["temperature"].is_null() || body["temperature"] == allowed, || {
        CHAT.refuse("moonshot-temperature", &[("allowed", &allowed)])
    })?;
    if !thinks {
        return Ok(());
    }
    ensure(forced(body).is_empty(), || CHAT.refuse("moonshot-forced", &[("choice", &forced(body))]))?;
    for (at, message) in calling(body) {
        ensure(message["reasoning_content"].is_string(), || CHAT.refuse("moonshot-reasoning", &[("at", &at)]))?;
    }
    Ok(())
}

fn perplexity(body: &Value) -> Checked {
    let mut asks = false;
    for message in items(&body["messages"]) {
        let role = word(&message["role"]);
        if role == "system" {
            continue;
        }
        let given = matches!(role, "user" | "tool");
        // Results for one assistant message may follow each other.
        ensure(given != asks || role == "tool" && asks, || CHAT.refuse("perplexity-turns", &[]))?;
        asks = given;
    }
    Ok(())
}

/// Models whose effort cannot be set, except those in [`SET_EFFORT`].
const FIXED_EFFORT: &[&str] = &["grok-3", "grok-4-", "grok-4.20", "grok-build", "grok-code"];
const SET_EFFORT: &[&str] = &["grok-3-mini", "grok-4.20-multi-agent"];

fn xai(body: &Value) -> Checked {
    let model = word(&body["model"]);
    let is_one_of = |list: &[&str]| list.iter().any(|start| model.starts_with(start));
    let is_fixed = is_one_of(FIXED_EFFORT) && !is_one_of(SET_EFFORT) || model == "grok-4";
    ensure(!is_fixed || body["reasoning_effort"].is_null(), || CHAT.refuse("xai-effort", &[("model", &model)]))?;
    ensure(!model.starts_with("grok-4.6") || body["stop"].is_null(), || CHAT.refuse("xai-stop", &[("model", &model)]))
}

/// Requests that each service refuses, and similar ones that it accepts. Returns the rows that refused one.
#[cfg(test)]
pub(super) fn cases() -> std::collections::BTreeSet<&'static str> {
    use serde_json::json;

    use super::super::rows::{Case, check};

    let says = |role: &str| json!({"role": role, "content": "Hello."});
    let call = |id: &str, more: Value| {
        let function = json!({"name": "look", "arguments": "{}"});
        let mut message = json!({
            "role": "assistant",
            "tool_calls": [{"id": id, "type": "function", "function": function}],
        });
        message["reasoning_content"] = more;
        message
    };
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "red"});
    let looks = |id: &str, thought: Value, after: &str| {
        let messages = [says("user"), call(id, thought), result(id), says(after)];
        vec![("/messages", json!(messages))]
    };
    let tools = |count: usize| {
        let tool = json!({"type": "function", "function": {"name": "look"}});
        ("/tools", json!(vec![tool; count]))
    };
    let stops = |count: usize| ("/stop", json!(vec!["a"; count]));
    let model = |model: &str| ("/model", json!(model));
    let required = || vec![tools(1), ("/tool_choice", json!("required"))];
    let off = || ("/thinking", json!({"type": "disabled"}));
    let with = |mut changes: Vec<(&'static str, Value)>, change| {
        changes.push(change);
        changes
    };
    let picture = json!([{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]);
    let shown = vec![("/messages", json!([{"role": "user", "content": picture}]))];
    let named = json!({"type": "function", "function": {"name": "look"}});
    let of = |service: &str, name: &str, cases: &[Case<'_>]| {
        let base = json!({"model": name, "messages": [says("user")]});
        check(|body| super::refusal(service, body), &base, cases)
    };
    let refused = [
        of(
            "openai",
            "gpt-4o",
            &[
                ("as many tools as it takes", vec![tools(128)], ""),
                ("more", vec![tools(129)], "tools-too-many: length 129"),
                ("four stops", vec![stops(4)], ""),
                ("five stops", vec![stops(5)], "stops: length 5"),
                ("a stop for a model that reasons", vec![model("o3"), stops(1)], "stop"),
                ("a limit", vec![("/max_tokens", json!(9))], ""),
                ("a limit for a model that reasons", vec![model("o3"), ("/max_tokens", json!(9))], "max-tokens"),
            ],
        ),
        of(
            "deepseek",
            "deepseek-v4-pro",
            &[
                ("a call with its reasoning", looks("a", json!("Hm."), "user"), ""),
                ("a call without", looks("a", Value::Null, "user"), "deepseek-reasoning"),
                ("the same without thinking", with(looks("a", Value::Null, "user"), off()), ""),
                ("a forced call", required(), "deepseek-forced"),
                ("a forced call without thinking", with(required(), off()), ""),
                ("a picture", shown.clone(), "deepseek-parts: `image_url`"),
            ],
        ),
        of(
            "groq",
            "openai/gpt-oss-120b",
            &[
                ("four stops", vec![stops(4)], ""),
                ("five stops", vec![stops(5)], "groq-stops"),
                ("a call", looks("a", Value::Null, "user"), ""),
                (
                    "reasoning by another name than its own",
                    looks("a", json!("Hm."), "user"),
                    "groq-reasoning-content: messages.1",
                ),
            ],
        ),
        of(
            "mistral",
            "mistral-large-latest",
            &[
                ("an id as it makes them", looks("abcDEF123", Value::Null, "assistant"), ""),
                ("another id", looks("call_1", Value::Null, "assistant"), "mistral-call-id: call_1"),
                ("a user after a result", looks("abcDEF123", Value::Null, "user"), "mistral-user-after-tool"),
            ],
        ),
        of(
            "moonshot",
            "kimi-k2.6",
            &[
                ("a call with its reasoning", looks("a", json!("Hm."), "user"), ""),
                ("a call without", looks("a", Value::Null, "user"), "moonshot-reasoning: index 1"),
                ("the same without thinking", with(looks("a", Value::Null, "user"), off()), ""),
                ("its temperature", vec![("/temperature", json!(1.0))], ""),
                ("another one", vec![("/temperature", json!(0.5))], "moonshot-temperature: only 1 is"),
                ("the temperature without thinking", vec![off(), ("/temperature", json!(0.6))], ""),
                (
                    "another one without thinking",
                    vec![off(), ("/temperature", json!(1.0))],
                    "moonshot-temperature: only 0.6 is",
                ),
                (
                    "both ways to say how much it thinks",
                    vec![off(), ("/reasoning_effort", json!("low"))],
                    "moonshot-thinking-and-effort",
                ),
                (
                    "no thinking for a model that always thinks",
                    vec![model("kimi-k2.7-code"), off()],
                    "moonshot-thinking-disabled",
                ),
                ("a forced call", required(), "moonshot-forced: 'required'"),
                ("a forced call by its name", vec![tools(1), ("/tool_choice", named)], "moonshot-forced: 'specified'"),
                ("a forced call without thinking", with(required(), off()), ""),
            ],
        ),
        of(
            "perplexity",
            "sonar",
            &[
                ("a question", vec![], ""),
                ("two questions", vec![("/messages", json!([says("user"), says("user")]))], "perplexity-turns"),
                (
                    "a first assistant",
                    vec![("/messages", json!([says("system"), says("assistant")]))],
                    "perplexity-turns",
                ),
            ],
        ),
        of(
            "xai",
            "grok-4.3",
            &[
                ("an effort", vec![("/reasoning_effort", json!("low"))], ""),
                ("a stop", vec![stops(1)], ""),
                ("a stop for a model that takes none", vec![model("grok-4.6"), stops(1)], "xai-stop: grok-4.6"),
                (
                    "an effort that is fixed",
                    vec![model("grok-4.20-reasoning"), ("/reasoning_effort", json!("low"))],
                    "xai-effort: grok-4.20-reasoning",
                ),
            ],
        ),
    ];
    refused.into_iter().flatten().collect()
}
