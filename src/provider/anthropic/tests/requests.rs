//! Tests of requests: what is encoded of a prompt, and what is left out.

mod cache;
mod settings;

use serde_json::{Value, json};

use super::super::{
    encode::{self, EncodeOptions, Encoded},
    options,
};
use crate::{
    config::PromptCache,
    context::testing::{self, message, results, tool, user},
    model::{
        CallId, Citation, Content, Generation, Message, ModelResponse, Part, Prompt, ProviderItem, Role, TokenCount,
        ToolCall,
        generation::{ReasoningEffort, ResponseFormat, Setting, Temperature, ToolChoice, TopP},
    },
    provider::{
        ModelInfo,
        discovery::Thinking,
        info::{Limit, Source},
    },
};

/// A model that accepts everything that the first models with thinking accept.
const OLD: &str = "claude-sonnet-4-5";

/// A model that binds its reasoning to the prefix.
const BOUND: &str = "claude-haiku-5-5";

fn manner(model: &str) -> EncodeOptions<'static> {
    EncodeOptions {
        provider: "main",
        model: ModelInfo::unknown(model),
        cache: None,
        reasoning_back: None,
        with_reasoning: true,
        with_system: true,
    }
}

fn prompt(model: &str, messages: Vec<Message>) -> Prompt {
    Prompt { model: model.to_owned(), ..testing::prompt(messages) }
}

fn encoded(prompt: &Prompt) -> Encoded {
    encode::request(prompt, &manner(&prompt.model))
}

fn json_of(encoded: &Encoded) -> Value {
    serde_json::from_slice(&encoded.body).expect("JSON")
}

fn body(prompt: &Prompt) -> Value {
    json_of(&encoded(prompt))
}

fn sent(model: &str, messages: Vec<Message>) -> Value {
    body(&prompt(model, messages))["messages"].take()
}

/// A message by a model of `main`, generated after a prompt with this fingerprint.
fn said(model: &str, fingerprint: Option<&str>, parts: Vec<Part>) -> Message {
    let response = ModelResponse {
        provider: "main".to_owned(),
        prompt_fingerprint: fingerprint.map(str::to_owned),
        ..testing::response(&format!("main/{model}"))
    };
    Message { response: Some(response), ..message(Role::Assistant, parts) }
}

fn call(id: &str, arguments: &str) -> Part {
    Part::new(Content::ToolCall(ToolCall {
        id: CallId::new(id),
        name: "look".to_owned(),
        arguments: arguments.to_owned(),
    }))
}

fn thought(text: &str, signature: &str) -> Part {
    Part {
        provider_metadata: Some(json!({"anthropic": {"signature": signature}}).to_string()),
        ..Part::new(Content::Reasoning { text: text.to_owned(), redacted: text.is_empty() })
    }
}

fn item(kind: &str, json: &Value) -> Part {
    Part::new(Content::ProviderItem(ProviderItem {
        provider: "main".to_owned(),
        kind: kind.to_owned(),
        json: json.to_string(),
        title: String::new(),
    }))
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn a_whole_request_is_what_the_service_documents() {
    let prompt = Prompt {
        system: vec!["Be brief.".to_owned(), "# notes\nTea.".to_owned()],
        tools: vec![tool("look")],
        provider_tools: vec![r#"{"type":"web_search_20250305","name":"web_search"}"#.to_owned()],
        max_output_tokens: Some(99),
        ..prompt(
            OLD,
            vec![
                user("Look."),
                said(OLD, None, vec![thought("Hm.", "sig"), Part::text("I look."), call("look", r#"{"n": 1.50}"#)]),
                results(&[("look", "seen")]),
            ],
        )
    };
    let encoded = encoded(&prompt);
    assert_eq!(
        json_of(&encoded),
        json!({
            "model": OLD,
            "max_tokens": 99,
            "stream": true,
            "system": [text("Be brief."), text("# notes\nTea.")],
            "messages": [
                {"role": "user", "content": [text("Look.")]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                    text("I look."),
                    {"type": "tool_use", "id": "look", "name": "look", "input": {"n": 1.5}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "look", "content": [text("seen")]},
                ]},
            ],
            "tools": [
                {"name": "look", "description": "Does look.", "input_schema": {"type": "object"}},
                {"type": "web_search_20250305", "name": "web_search"},
            ],
        })
    );
    let written = String::from_utf8(encoded.body).expect("UTF-8");
    assert!(written.contains(r#""input":{"n": 1.50}"#), "arguments go out as the model wrote them");
}

#[test]
fn messages_of_one_speaker_become_one_and_results_come_first() {
    let messages = vec![
        message(Role::System, vec![Part::text("Be kind.")]),
        said(OLD, None, vec![Part::text("Hello.")]),
        said(OLD, None, vec![call("a", "{}"), call("b", "not json")]),
        results(&[("a", "one"), ("b", " ")]),
        user("And"),
        user("this?"),
        message(Role::System, vec![Part::text("Be brief.")]),
    ];
    let body = body(&prompt(OLD, messages.clone()));
    assert_eq!(body["system"], json!([text("Be kind.")]));
    let use_of = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {}});
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [text("[The conversation begins.]")]},
            {"role": "assistant", "content": [text("Hello."), use_of("a"), use_of("b")]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [text("one")]},
                {"type": "tool_result", "tool_use_id": "b"},
                text("And"),
                text("this?"),
                text("[Instructions]\nBe brief."),
            ]},
        ])
    );
    let last = sent("claude-opus-4-8", messages);
    assert_eq!(
        last[3],
        json!({"role": "system", "content": [text("Be brief.")]}),
        "newer models take instructions after what the user says"
    );
}

/// A compact form of the messages: role and content.
fn speakers(messages: &Value) -> Vec<String> {
    let messages = messages.as_array().expect("messages").iter();
    let short = |message: &Value| {
        let role = message["role"].as_str().unwrap_or_default();
        let blocks = message["content"].as_array().expect("blocks").iter();
        let said = blocks.map(|block| match block["type"].as_str() {
            Some("text") => block["text"].as_str().unwrap_or_default().replace('\n', " "),
            Some(kind) => kind.to_owned(),
            None => String::new(),
        });
        format!("{role}: {}", said.collect::<Vec<_>>().join(", "))
    };
    messages.map(short).collect()
}

#[test]
fn instructions_stand_where_a_newer_model_takes_them() {
    let newer = "claude-opus-4-8";
    let instructs = |text: &str| message(Role::System, vec![Part::text(text)]);
    let says = |text: &str| said(newer, None, vec![Part::text(text)]);
    let found = said(
        newer,
        None,
        vec![
            item("server_tool_use", &json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
            item(
                "web_search_tool_result",
                &json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}),
            ),
        ],
    );
    let check = |messages: Vec<Message>, expected: &[&str]| {
        assert_eq!(speakers(&sent(newer, messages)), expected);
    };
    check(
        vec![user("Hi."), says("Hello."), instructs("Be brief."), user("So?")],
        &["user: Hi.", "assistant: Hello.", "user: [Instructions] Be brief., So?"],
    );
    check(
        vec![user("Hi."), says("Hello."), instructs("Be brief.")],
        &["user: Hi.", "assistant: Hello.", "user: [Instructions] Be brief."],
    );
    check(
        vec![user("Hi."), instructs("Be brief."), instructs("Be kind."), user(" "), says("Hello."), user("So?")],
        &["user: Hi.", "system: Be brief., Be kind.", "assistant: Hello.", "user: So?"],
    );
    check(vec![user("Hi."), instructs("Be brief."), user("So?")], &["user: Hi., [Instructions] Be brief., So?"]);
    check(
        vec![user("Hi."), instructs("Be brief."), says(" "), user("So?")],
        &["user: Hi., [Instructions] Be brief., So?"],
    );
    let thinks = said(newer, None, vec![thought("Hm.", "s")]);
    check(vec![user("Hi."), thinks, instructs("Be brief.")], &["user: Hi.", "system: Be brief."]);
    check(
        vec![user("Hi."), found, instructs("Be brief.")],
        &["user: Hi.", "assistant: server_tool_use, web_search_tool_result", "system: Be brief."],
    );
}

#[test]
fn instructions_become_a_users_where_the_service_refuses_them() {
    let messages = vec![user("Hi."), message(Role::System, vec![Part::text("Be brief.")])];
    let prompt = prompt("claude-opus-4-8", messages);
    assert!(encoded(&prompt).has_system);
    let without = EncodeOptions { with_system: false, ..manner(&prompt.model) };
    let without = encode::request(&prompt, &without);
    assert_eq!(
        (speakers(&json_of(&without)["messages"]), without.has_system),
        (vec!["user: Hi., [Instructions] Be brief.".to_owned()], false)
    );
}

#[test]
fn an_answer_does_not_end_with_reasoning() {
    let check = |parts: Vec<Part>, after: Vec<Message>, expected: &[&str], left_out: usize| {
        let mut messages = vec![user("Hm?"), said(OLD, None, parts)];
        messages.extend(after);
        let encoded = encoded(&prompt(OLD, messages));
        assert_eq!(speakers(&json_of(&encoded)["messages"]), expected);
        assert_eq!(encoded.left_out.len(), left_out);
        let has_reasoning = json_of(&encoded).to_string().contains(r#""thinking""#);
        assert_eq!(encoded.has_reasoning, has_reasoning);
    };
    let hm = || thought("Hm.", "s");
    check(
        vec![hm(), Part::text("Yes."), hm()],
        vec![user("So?")],
        &["user: Hm?", "assistant: thinking, Yes.", "user: So?"],
        1,
    );
    check(vec![hm(), Part::text(" ")], vec![user("So?")], &["user: Hm?, So?"], 1);
    check(vec![hm(), hm()], vec![], &["user: Hm?"], 2);
    check(
        vec![hm(), call("a", "{}"), hm()],
        vec![results(&[("a", "seen")])],
        &["user: Hm?", "assistant: thinking, tool_use", "user: tool_result"],
        1,
    );
    check(
        vec![hm()],
        vec![said(OLD, None, vec![Part::text("Yes.")]), user("So?")],
        &["user: Hm?", "assistant: thinking, Yes.", "user: So?"],
        0,
    );
}

#[test]
fn reasoning_that_was_left_out_at_an_end_is_no_part_of_what_later_reasoning_is_bound_to() {
    let cut_off = vec![user("Hm?"), said(BOUND, None, vec![thought("Hm.", "s")])];
    let with = |more: &str| [cut_off.clone(), vec![user(more)]].concat();
    let plain = vec![user("Hm?"), user("So?")];
    // The interrupted reasoning is bound to the content before it.
    let fingerprint = encoded(&bound(vec![user("Hm?")])).fingerprint;
    let mut valid = with("So?");
    valid[1] = said(BOUND, fingerprint.as_deref(), vec![thought("Hm.", "s")]);
    let sent = encoded(&bound(valid));
    assert_eq!(speakers(&json_of(&sent)["messages"]), ["user: Hm?, So?"]);
    assert_eq!(sent.fingerprint, encoded(&bound(plain)).fingerprint);
}

#[test]
fn a_model_that_goes_on_from_no_words_of_its_own_is_told_to_continue() {
    let messages = |model: &str| vec![user("Hm?"), said(model, None, vec![Part::text("Well")])];
    assert_eq!(
        speakers(&sent("claude-opus-4-7", messages("claude-opus-4-7"))),
        ["user: Hm?", "assistant: Well", "user: [Continue.]"]
    );
    assert_eq!(speakers(&sent(OLD, messages(OLD))), ["user: Hm?", "assistant: Well"]);
}

#[test]
fn texts_without_a_letter_are_left_out() {
    let messages = vec![
        user(" \n"),
        user("Hello."),
        said(OLD, None, vec![Part::text(""), Part::text("\t")]),
        user("Still there?"),
    ];
    let encoded = encoded(&prompt(OLD, messages));
    assert_eq!(
        json_of(&encoded)["messages"],
        json!([{"role": "user", "content": [text("Hello."), text("Still there?")]}])
    );
    assert_eq!(encoded.left_out.len(), 2);
}

#[test]
fn ids_and_halves_of_characters_that_the_service_refuses_are_replaced() {
    let messages =
        vec![user("Look."), said(OLD, None, vec![call("a/b", r#"{"x":"\ud83d"}"#)]), results(&[("a/b", "seen")])];
    let sent = sent(OLD, messages);
    let id = sent[1]["content"][0]["id"].as_str().expect("an id");
    assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
    assert_eq!(sent[2]["content"][0]["tool_use_id"], id);
    assert_eq!(sent[1]["content"][0]["input"], json!({"x": "\u{fffd}"}));
}

/// Row A1
#[test]
fn reasoning_goes_back_to_the_model_that_signed_it_only() {
    let thinks = |model: &str, part: Part| said(model, None, vec![part, Part::text("Yes.")]);
    let unsigned = Part::new(Content::Reasoning { text: "Hm.".to_owned(), redacted: false });
    let foreign =
        Part { provider_metadata: Some(r#"{"openai":{"reasoning_details":[]}}"#.to_owned()), ..unsigned.clone() };
    let redacted =
        Part { provider_metadata: Some(r#"{"anthropic":{"redacted_thinking":"xyz"}}"#.to_owned()), ..thought("", "") };
    let table = [
        (thinks(OLD, thought("Hm.", "s")), Some(json!({"type": "thinking", "thinking": "Hm.", "signature": "s"}))),
        (thinks(OLD, thought("", "s")), Some(json!({"type": "thinking", "thinking": "", "signature": "s"}))),
        (thinks(OLD, redacted), Some(json!({"type": "redacted_thinking", "data": "xyz"}))),
        (thinks("claude-opus-4-1", thought("Hm.", "s")), None),
        (thinks(OLD, unsigned), None),
        (thinks(OLD, foreign), None),
    ];
    for (answer, expected) in table {
        let encoded = encoded(&prompt(OLD, vec![user("Hm?"), answer, user("So?")]));
        let content = json_of(&encoded)["messages"][1]["content"].take();
        let mut wanted: Vec<Value> = expected.clone().into_iter().collect();
        wanted.push(text("Yes."));
        assert_eq!(content, json!(wanted));
        assert_eq!(encoded.left_out.len(), usize::from(expected.is_none()));
        assert_eq!(encoded.has_reasoning, expected.is_some());
    }
}

/// A conversation whose responses were generated one after another: each has the fingerprint of its
/// prompt.
fn bound_conversation() -> Vec<Message> {
    let mut messages = Vec::new();
    for n in 1..=3 {
        messages.push(user(&format!("Question {n}.")));
        for step in 1..=2 {
            let fingerprint = encoded(&bound(messages.clone())).fingerprint;
            let id = format!("c{n}{step}");
            let mut parts = vec![thought(&format!("Thought {n}.{step}."), "s")];
            let calls = step == 1;
            parts.push(if calls { call(&id, "{}") } else { Part::text("Yes.") });
            messages.push(said(BOUND, fingerprint.as_deref(), parts));
            if calls {
                messages.push(results(&[(&id, "seen")]));
            }
        }
    }
    messages.push(user("And now?"));
    messages
}

fn bound(messages: Vec<Message>) -> Prompt {
    Prompt { system: vec!["Be brief.".to_owned()], tools: vec![tool("look")], ..prompt(BOUND, messages) }
}

/// The number of thinking blocks that are sent back.
fn thoughts(prompt: &Prompt) -> usize {
    let body = body(prompt).to_string();
    body.matches(r#""type":"thinking""#).count()
}

/// Row A1
#[test]
fn bound_reasoning_is_dropped_exactly_from_where_the_prompt_changed() {
    let whole = bound_conversation();
    assert_eq!(thoughts(&bound(whole.clone())), 6, "nothing changed");
    let longer = Prompt {
        generation: Generation { temperature: Some(Temperature::new(0.5).unwrap()), ..Generation::default() },
        ..bound(whole.iter().cloned().chain([user("More.")]).collect())
    };
    assert_eq!(thoughts(&longer), 6, "what comes later changes nothing before it");

    let mut pruned = whole.clone();
    pruned[6] = results(&[("c21", "[Old tool result content cleared]")]);
    // Message order: question, thinking and call, result, thinking and response. The second result
    // is the seventh message.
    assert_eq!(thoughts(&bound(pruned)), 3);
    let compacted: Vec<Message> = [user("Summary.")].into_iter().chain(whole[4..].to_vec()).collect();
    assert_eq!(thoughts(&bound(compacted)), 0);
    let edited = Prompt { system: vec!["Be long.".to_owned()], ..bound(whole.clone()) };
    assert_eq!(thoughts(&edited), 0);
    let tools = Prompt { tools: vec![tool("look"), tool("list")], ..bound(whole.clone()) };
    assert_eq!(thoughts(&tools), 0);
    let mut dropped = whole.clone();
    dropped[1].parts.remove(0);
    assert_eq!(thoughts(&bound(dropped)), 0, "a missing thought changes what follows it");
    let other = prompt("claude-opus-5-5", whole.clone());
    assert_eq!(thoughts(&other), 0, "another model");
    let unbound: Vec<Message> = whole
        .into_iter()
        .map(|message| match message.role {
            Role::Assistant => said(OLD, None, message.parts.into_iter().map(|it| it.part).collect()),
            Role::User | Role::System | Role::Tool => message,
        })
        .collect();
    assert_eq!(thoughts(&prompt(OLD, unbound[4..].to_vec())), 4, "an older model does not mind");
}

#[test]
fn the_fingerprint_does_not_depend_on_markers_of_the_cache() {
    let prompt = bound(bound_conversation());
    let marked = EncodeOptions { cache: PromptCache::Hour.marker(), ..manner(BOUND) };
    let marked = encode::request(&prompt, &marked);
    assert!(json_of(&marked).to_string().contains("cache_control"));
    assert_eq!(marked.fingerprint, encoded(&prompt).fingerprint);
    assert_eq!(encoded(&super::requests::prompt(OLD, vec![user("a")])).fingerprint, None);
}

/// Paths of the blocks that have cache markers.
fn marked(body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut look = |place: String, block: &Value| {
        if block.get("cache_control").is_some() {
            found.push(place);
        }
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for (at, tool) in list(&body["tools"]).iter().enumerate() {
        look(format!("tools {at}"), tool);
    }
    for (at, block) in list(&body["system"]).iter().enumerate() {
        look(format!("system {at}"), block);
    }
    for (at, message) in list(&body["messages"]).iter().enumerate() {
        for (part, block) in list(&message["content"]).iter().enumerate() {
            look(format!("message {at}.{part}"), block);
        }
    }
    found
}

#[test]
fn markers_stand_after_instructions_and_where_the_last_two_requests_end() {
    let with_cache = |prompt: &Prompt| {
        let manner = EncodeOptions { cache: PromptCache::FiveMinutes.marker(), ..manner(&prompt.model) };
        json_of(&encode::request(prompt, &manner))
    };
    let mut messages = vec![user("Look.")];
    let blocks = ["System.", "# notes\nTea.", "# more\nMore."].map(str::to_owned);
    let at = |messages: &[Message]| {
        marked(&with_cache(&Prompt {
            system: blocks.to_vec(),
            tools: vec![tool("look")],
            ..prompt(OLD, messages.to_vec())
        }))
    };
    assert_eq!(at(&messages), ["system 0", "system 2", "message 0.0"]);
    messages.push(said(OLD, None, vec![call("a", "{}"), call("b", "{}")]));
    messages.push(results(&[("a", "1"), ("b", "2")]));
    assert_eq!(at(&messages), ["system 0", "system 2", "message 0.0", "message 2.1"], "what was written can be read");
    messages.push(said(OLD, None, vec![thought("Hm.", "s"), call("c", "{}")]));
    messages.push(results(&[("c", "3")]));
    assert_eq!(at(&messages), ["system 0", "system 2", "message 2.1", "message 4.0"]);
    let bare = Prompt { tools: vec![tool("look"), tool("list")], ..prompt(OLD, vec![user("Look.")]) };
    assert_eq!(marked(&with_cache(&bare)), ["tools 1", "message 0.0"]);
}

#[test]
fn items_go_back_to_their_provider_and_calls_without_results_do_not() {
    let asked = item(
        "server_tool_use",
        &json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}),
    );
    let found =
        item("web_search_tool_result", &json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}));
    let kinds = |messages: Vec<Message>| {
        let mut sent = sent(OLD, messages);
        let content = sent[1]["content"].take();
        let kinds = content.as_array().expect("blocks").iter();
        kinds.map(|block| block["type"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let asks = said(OLD, None, vec![Part::text("I search."), asked]);
    let goes_on = said(OLD, None, vec![found.clone(), Part::text("Found.")]);
    assert_eq!(kinds(vec![user("Hm?"), asks.clone()]), ["text", "server_tool_use"], "the service goes on with it");
    assert_eq!(
        kinds(vec![user("Hm?"), asks.clone(), goes_on, user("And?")]),
        ["text", "server_tool_use", "web_search_tool_result", "text"]
    );
    assert_eq!(kinds(vec![user("Hm?"), asks, user("Never mind.")]), ["text"], "it never got a result");
    let mut foreign = found;
    if let Content::ProviderItem(item) = &mut foreign.content {
        item.provider = "other".to_owned();
    }
    let foreign = said(OLD, None, vec![foreign, Part::text("Found.")]);
    assert_eq!(kinds(vec![user("Hm?"), foreign, user("And?")]), ["text"]);
}

/// A server tool call.
fn hosted_call(kind: &str, id: &str) -> Part {
    item(kind, &json!({"type": kind, "id": id, "name": "fetch", "input": {}}))
}

fn hosted_result(kind: &str, id: &str, content: &Value) -> Part {
    item(kind, &json!({"type": kind, "tool_use_id": id, "content": content}))
}

#[test]
fn calls_of_the_services_own_tools_have_their_results_anywhere_in_the_tool_loop() {
    let found = || hosted_result("web_search_tool_result", "s", &json!([]));
    let calls = || {
        let parts = vec![hosted_call("server_tool_use", "s"), call("a", "{}")];
        said(OLD, None, parts)
    };
    let begins = || vec![user("Hm?"), calls(), results(&[("a", "seen")])];
    let check = |after: Vec<Message>, expected: &[&str]| {
        let messages = [begins(), after].concat();
        assert_eq!(speakers(&sent(OLD, messages)), expected);
    };
    let ends = || said(OLD, None, vec![found(), Part::text("Found.")]);
    let both = "assistant: server_tool_use, tool_use";
    check(vec![], &["user: Hm?", both, "user: tool_result"]);
    let whole = "assistant: web_search_tool_result, Found.";
    check(vec![ends(), user("So?")], &["user: Hm?", both, "user: tool_result", whole, "user: So?"]);
    check(
        vec![user("Stop."), ends(), user("So?")],
        &["user: Hm?", "assistant: tool_use", "user: tool_result, Stop.", "assistant: Found.", "user: So?"],
    );
    let orphan = said(OLD, None, vec![found(), Part::text("Found."), found()]);
    assert_eq!(
        speakers(&sent(OLD, vec![user("Hm?"), orphan, user("So?")])),
        ["user: Hm?", "assistant: Found.", "user: So?"]
    );
    let mcp = said(OLD, None, vec![hosted_call("mcp_tool_use", "m"), Part::text("Well.")]);
    let result = said(OLD, None, vec![hosted_result("mcp_tool_result", "m", &json!([]))]);
    assert_eq!(
        speakers(&sent(OLD, vec![user("Hm?"), mcp.clone(), user("So?")])),
        ["user: Hm?", "assistant: Well.", "user: So?"]
    );
    assert_eq!(
        speakers(&sent(OLD, vec![user("Hm?"), mcp, result, user("So?")])),
        ["user: Hm?", "assistant: mcp_tool_use, Well., mcp_tool_result", "user: So?"]
    );
}

#[test]
fn a_call_names_the_services_code_that_made_it_only_where_that_goes_back() {
    let caller = json!({"type": "code_execution_20250825", "tool_id": "s"});
    let called =
        Part { provider_metadata: Some(json!({"anthropic": {"caller": caller}}).to_string()), ..call("a", "{}") };
    let calls = said(OLD, None, vec![hosted_call("server_tool_use", "s"), called]);
    let messages = vec![user("Hm?"), calls, results(&[("a", "seen")])];
    let sent_caller = |messages: Vec<Message>| {
        let mut sent = sent(OLD, messages);
        let blocks = sent[1]["content"].as_array_mut().expect("blocks");
        blocks.last_mut().expect("a call")["caller"].take()
    };
    assert_eq!(sent_caller(messages.clone()), caller);
    let over = messages.into_iter().chain([user("Stop.")]).collect();
    assert_eq!(sent_caller(over), Value::Null);
}

#[test]
fn a_result_that_was_not_kept_stays_away_with_its_call_and_its_sources() {
    let cited = Part {
        citations: vec![Citation {
            url: String::new(),
            title: String::new(),
            cited_text: "So.".to_owned(),
            start_byte: 0,
            end_byte: 0,
            provider_metadata: Some(r#"{"type":"char_location","document_index":0}"#.to_owned()),
        }],
        ..Part::text("Read.")
    };
    let answer = |content: &Value| {
        let parts = vec![
            hosted_call("server_tool_use", "s"),
            hosted_result("web_fetch_tool_result", "s", content),
            cited.clone(),
        ];
        vec![user("Hm?"), said(OLD, None, parts), user("So?")]
    };
    let whole = sent(OLD, answer(&json!({"type": "web_fetch_result"})));
    assert_eq!(speakers(&whole)[1], "assistant: server_tool_use, web_fetch_tool_result, Read.");
    assert!(whole.to_string().contains("char_location"));
    let lost = sent(OLD, answer(&Value::Null));
    assert_eq!(lost[1]["content"], json!([text("Read.")]));
}
