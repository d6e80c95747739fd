//! Tests that requests of every dialect and family match the rules that are reported for them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    context::testing::{self, message, response, user},
    model::{
        CallId, Content, Message, ModelResponse, Part, Prompt, Role, ToolCall, ToolOutcome, ToolResult,
        generation::ToolChoice,
        service_rules::{EffortForm, EncryptedReasoning, ReasoningBack, ReasoningField, SignedReasoning},
    },
    provider::{
        ModelInfo, Provider,
        anthropic::Anthropic,
        gemini::Gemini,
        http::Settings,
        openai::{OpenAi, dialect as chat, rules::KIND_FOR_REASONING_WITH_TOOLS},
        responses::{Responses, dialect as responses},
    },
};

/// A model of a provider, and its rules.
struct Case {
    name: String,
    provider: Arc<dyn Provider>,
    model: ModelInfo,
    rules: Rules,
}

impl Case {
    fn new(name: &str, provider: Arc<dyn Provider>, model: &str) -> Self {
        let model = provider.model(model).expect("a model");
        let rules = provider.rules(&model).expect("rules");
        let name = format!("{name} {}", model.name);
        Self { name, provider, model, rules }
    }

    /// The request for messages with these settings, as far as the model accepts them.
    fn sent(&self, messages: Vec<Message>, wanted: &Generation, tools: bool) -> Value {
        let mut generation = self.provider.nearest_supported(&self.model, wanted);
        let mut refused = self.provider.unsupported_settings(&self.model, &generation);
        if tools {
            refused.extend(self.provider.unsupported_settings_with_tools(&self.model, &generation));
        } else {
            generation.clear(Setting::ToolChoice);
        }
        for it in refused {
            generation.clear(it.setting);
        }
        let prompt = Prompt {
            model: self.model.name.clone(),
            tools: tools.then(|| testing::tool("look")).into_iter().collect(),
            // Large enough for the budgets of all levels.
            max_output_tokens: Some(100_000),
            generation,
            ..testing::prompt(messages)
        };
        let body = self.provider.request(&prompt).expect("a request").body;
        serde_json::from_slice(&body).expect("JSON")
    }

    /// The request for a user message.
    fn asks(&self, wanted: &Generation, tools: bool) -> Value {
        self.sent(vec![user("Hello.")], wanted, tools)
    }
}

/// Every dialect, and gateways with combinations of rules that no dialect has.
fn chat_dialects() -> Vec<chat::Dialect> {
    let gateways = [ReasoningField::ReasoningContent, ReasoningField::Reasoning].into_iter().flat_map(|field| {
        [ReasoningBack::InLoop, ReasoningBack::WhileCalls].map(|kept| chat::Dialect {
            reasoning_back: kept,
            reasoning_field: field,
            reasoning_placeholder: true,
            own_call_ids: true,
            effort: EffortForm::Listed,
            max_stops: Some(2),
            ..chat::COMPATIBLE
        })
    });
    chat::DIALECTS.iter().copied().chain(gateways).collect()
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dialect in chat_dialects() {
        let provider = OpenAi::new("main", Settings::nowhere(), &dialect, BTreeMap::new());
        let provider: Arc<dyn Provider> = Arc::new(provider.expect("a provider"));
        for model in [
            "m",
            "gpt-4o",
            "gpt-5",
            "gpt-5.4",
            "deepseek-chat",
            "kimi-k2.6",
            "anthropic/claude-opus-4.7",
            "anthropic/claude-opus-5.5",
        ] {
            cases.push(Case::new(dialect.name, Arc::clone(&provider), model));
        }
    }
    let never = responses::Dialect { encrypted_reasoning: EncryptedReasoning::Never, ..responses::OPENAI };
    for dialect in responses::DIALECTS.iter().chain([&never]) {
        let provider = Responses::new("main", Settings::nowhere(), dialect, BTreeMap::new());
        let provider: Arc<dyn Provider> = Arc::new(provider.expect("a provider"));
        for model in ["m", "gpt-4o", "gpt-5", "gpt-5.4"] {
            let name = format!("responses {}", dialect.name);
            cases.push(Case::new(&name, Arc::clone(&provider), model));
        }
    }
    let said = [None, Some(SignedReasoning::Never), Some(SignedReasoning::Signed), Some(SignedReasoning::Unsigned)];
    for reasoning in said {
        let provider = Anthropic::new("main", Settings::nowhere(), BTreeMap::new()).expect("a provider");
        let provider: Arc<dyn Provider> = Arc::new(provider.with_reasoning_back(reasoning));
        for model in [
            "claude-3-5-sonnet",
            "claude-haiku-4-5",
            "claude-sonnet-4-6",
            "claude-opus-4-7",
            "claude-fable-5",
            "claude-opus-5-5",
            "claude-haiku-5-5",
            "deepseek-v4",
        ] {
            let name = format!("anthropic {reasoning:?}");
            cases.push(Case::new(&name, Arc::clone(&provider), model));
        }
    }
    let provider = Gemini::new("main", Settings::nowhere(), BTreeMap::new()).expect("a provider");
    let provider: Arc<dyn Provider> = Arc::new(provider);
    for model in ["gemini-2.0-flash", "gemini-2.5-flash", "gemini-2.5-pro", "gemini-3-pro", "gemma-3"] {
        cases.push(Case::new("gemini", Arc::clone(&provider), model));
    }
    cases
}

/// Reasoning number `n`, signed in the form of every protocol, or unsigned.
fn thought(n: u32, signed: bool) -> Part {
    let text = format!("thought-{n}!");
    let metadata = json!({
        "openai": {"reasoning_details": [{"type": "reasoning.text", "text": text}]},
        "openai-responses": {"encrypted_content": "secret"},
        "anthropic": {"signature": "secret"},
        "gemini": {"thoughtSignature": "secret"},
    });
    Part {
        provider_metadata: signed.then(|| metadata.to_string()),
        ..Part::new(Content::Reasoning { text, redacted: false })
    }
}

fn call(id: &str) -> Part {
    Part::new(Content::ToolCall(ToolCall { id: CallId::new(id), name: "look".to_owned(), arguments: "{}".to_owned() }))
}

fn found(id: &str) -> Message {
    let result = ToolResult {
        call: CallId::new(id),
        name: "look".to_owned(),
        parts: vec!["found".into()],
        outcome: ToolOutcome::Success,
        truncation: None,
        display_text: String::new(),
    };
    message(Role::Tool, vec![Part::new(Content::ToolResult(result))])
}

/// A response of the model that is called, or of another one.
fn answer(model: &ModelInfo, own: bool, parts: Vec<Part>) -> Message {
    let provider = if own { "main" } else { "other" };
    let response = ModelResponse { provider: provider.to_owned(), ..response(&format!("{provider}/{}", model.name)) };
    Message { response: Some(response), ..message(Role::Assistant, parts) }
}

/// An id generated by the model that is called, which few services accept.
const ODD: &str = "functions.look:0";
/// An id generated by another model, which few services accept.
const FOREIGN: &str = "their odd id!";
/// An id that most services accept.
const SHORT: &str = "call_short-1";
/// An id that all services accept.
const NINE: &str = "abcDEF123";
/// The id of the call without reasoning.
const BARE: &str = "bareCALL9";

/// The properties of each reasoning part in [`conversation`]: number, own, signed, in the tool
/// loop, in a turn with calls.
const THOUGHTS: [(u32, bool, bool, bool, bool); 9] = [
    (1, true, false, false, false),
    (2, true, true, false, false),
    (3, false, false, false, false),
    (4, true, false, false, true),
    (5, false, true, false, true),
    (6, true, true, false, true),
    (7, true, false, true, true),
    (8, true, true, true, true),
    (9, false, false, true, true),
];

fn conversation(model: &ModelInfo) -> Vec<Message> {
    let by = |own, parts| answer(model, own, parts);
    let given = Part { provider_metadata: Some(json!({"gemini": {"id": ODD}}).to_string()), ..call(ODD) };
    let said = |text: &str| Part::text(text);
    vec![
        user("One."),
        by(true, vec![thought(1, false), said("a")]),
        by(true, vec![thought(2, true), said("b")]),
        by(false, vec![thought(3, false), said("c")]),
        user("Two."),
        by(true, vec![thought(4, false), call(NINE)]),
        found(NINE),
        by(false, vec![thought(5, true), call("theirs")]),
        found("theirs"),
        by(true, vec![thought(6, true), said("d")]),
        user("Three."),
        by(true, vec![thought(7, false), given]),
        found(ODD),
        by(true, vec![thought(8, true), call(SHORT)]),
        found(SHORT),
        by(false, vec![thought(9, false), call(FOREIGN)]),
        found(FOREIGN),
        by(true, vec![call(BARE)]),
        found(BARE),
    ]
}

fn effort(effort: ReasoningEffort) -> Generation {
    Generation { reasoning_effort: Some(effort), ..Generation::default() }
}

fn budget() -> Generation {
    Generation { reasoning_budget_tokens: Some(2_048), ..Generation::default() }
}

fn forced(reasoning: Generation) -> Generation {
    Generation { tool_choice: Some(ToolChoice::Required), ..reasoning }
}

/// The reasoning settings of a request.
fn reasoning_settings(body: &Value) -> Value {
    let fields = [
        "/reasoning_effort",
        "/thinking",
        "/thinking_budget_tokens",
        "/thinking_token_budget",
        "/reasoning",
        "/output_config",
        "/generationConfig/thinkingConfig",
    ];
    fields.iter().map(|field| body.pointer(field).cloned().unwrap_or_default()).collect()
}

fn is_forced(body: &Value) -> bool {
    body["tool_choice"] == "required"
        || body["tool_choice"]["type"] == "any"
        || body["toolConfig"]["functionCallingConfig"]["mode"] == "ANY"
}

/// How often a string is a value in JSON.
fn times(json: &Value, text: &str) -> usize {
    match json {
        Value::String(found) => usize::from(found == text),
        Value::Array(items) => items.iter().map(|item| times(item, text)).sum(),
        Value::Object(fields) => fields.values().map(|field| times(field, text)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Whether any object in the JSON has a field with this name.
fn has_field(json: &Value, name: &str) -> bool {
    match json {
        Value::Array(items) => items.iter().any(|item| has_field(item, name)),
        Value::Object(fields) => fields.contains_key(name) || fields.values().any(|field| has_field(field, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[test]
fn reasoning_is_sent_as_the_rules_list_it() {
    for case in cases() {
        let rules = &case.rules;
        let body = case.sent(conversation(&case.model), &Generation::default(), true);
        let text = body.to_string();
        for (n, own, signed, in_loop, calling) in THOUGHTS {
            let here = match rules.reasoning.kept {
                ReasoningKept::Never => false,
                ReasoningKept::InLoop => in_loop,
                ReasoningKept::WhileCalls => in_loop || calling,
                ReasoningKept::Always => true,
            };
            let by = match rules.reasoning.of {
                ReasoningAuthor::AnyModel => true,
                ReasoningAuthor::SameModel => own,
                ReasoningAuthor::SameModelSigned => own && signed,
            };
            // These responses have no fingerprint of the prompt that they followed.
            let expected = here && by && !rules.reasoning_bound_to_prefix;
            let sent = text.contains(&format!("thought-{n}!"));
            assert_eq!(sent, expected, "{}: thought {n}: {text}", case.name);
        }
        let conversation = ["messages", "input", "contents"].map(|field| &body[field]);
        let has = |name: &str| conversation.iter().any(|it| has_field(it, name));
        let never = rules.reasoning.kept == ReasoningKept::Never;
        assert_eq!(rules.reasoning_field.is_empty(), never, "{}", case.name);
        if !never && !rules.reasoning_bound_to_prefix {
            let of_type = |it: &&Value| times(it, rules.reasoning_field) > 0;
            let is_there = has(rules.reasoning_field) || conversation.iter().any(of_type);
            assert!(is_there, "{}: {text}", case.name);
        }
        for other in ["reasoning_content", "reasoning", "reasoning_details"] {
            let listed = other == rules.reasoning_field;
            assert!(listed || !has(other), "{}: {other}: {text}", case.name);
        }
    }
}

#[test]
fn a_call_without_reasoning_is_sent_as_the_rules_list_it() {
    let texts = ["[Not kept.]", "skip_thought_signature_validator"];
    for case in cases() {
        let body = case.sent(conversation(&case.model), &Generation::default(), true);
        let expected = match case.rules.missing_reasoning {
            MissingReasoning::Placeholder(text) => Some(text),
            MissingReasoning::Nothing | MissingReasoning::NoBudget => None,
        };
        for text in texts {
            let sent = times(&body, text) > 0;
            assert_eq!(sent, expected == Some(text), "{}: {body}", case.name);
        }
        for wanted in [effort(ReasoningEffort::High), budget()] {
            let plain = reasoning_settings(&case.asks(&wanted, true));
            let after = reasoning_settings(&case.sent(conversation(&case.model), &wanted, true));
            let has_budget = times(&plain, "enabled") > 0 && has_field(&plain, "budget_tokens");
            if case.rules.missing_reasoning == MissingReasoning::NoBudget && has_budget {
                assert!(!has_field(&after, "budget_tokens"), "{}", case.name);
            } else {
                assert_eq!(after, plain, "{}: {wanted:?}", case.name);
            }
        }
    }
}

#[test]
fn ids_of_calls_are_sent_as_the_rules_list_them() {
    for case in cases() {
        let rules = &case.rules;
        let body = case.sent(conversation(&case.model), &Generation::default(), true);
        let (short, nine) = match rules.call_ids {
            Some(CallIdRule::Short) => (true, true),
            Some(CallIdRule::Nine) => (false, true),
            None => (false, false),
        };
        let own = rules.keeps_own_call_ids;
        let kept = own && rules.call_ids.is_some();
        let table = [(ODD, own), (FOREIGN, false), (SHORT, short || kept), (NINE, nine || kept)];
        for (id, expected) in table {
            // Once in the call, and once in its result.
            let expected = if expected { 2 } else { 0 };
            assert_eq!(times(&body, id), expected, "{}: {id}: {body}", case.name);
        }
    }
}

#[test]
fn stop_sequences_are_sent_up_to_the_number_that_the_rules_list() {
    for case in cases() {
        for count in 0..=16 {
            let wanted = Generation {
                stop_sequences: (0..count).map(|n| format!("stop-{n}")).collect(),
                ..Generation::default()
            };
            let body = case.asks(&wanted, false);
            let sent = ["/stop", "/stop_sequences", "/generationConfig/stopSequences"]
                .iter()
                .find_map(|field| body.pointer(field)?.as_array())
                .map_or(0, Vec::len);
            let most = case.rules.max_stop_sequences;
            let expected = if most.is_none_or(|most| count <= most) { count } else { 0 };
            assert_eq!(sent, expected, "{}: {count}: {body}", case.name);
        }
    }
}

#[test]
fn forced_calls_are_sent_beside_reasoning_as_the_rules_list_it() {
    for case in cases() {
        let table =
            [(effort(ReasoningEffort::High), case.rules.forced_with_effort), (budget(), case.rules.forced_with_budget)];
        for (wanted, rule) in table {
            let free = reasoning_settings(&case.asks(&wanted, true));
            let unset = reasoning_settings(&case.asks(&Generation::default(), true));
            let body = case.asks(&forced(wanted.clone()), true);
            let sent = (is_forced(&body), reasoning_settings(&body));
            let expected = match rule {
                ForcedCalls::Both => (true, free),
                ForcedCalls::WithoutReasoning => {
                    assert_ne!(free, unset, "{}: {wanted:?}", case.name);
                    (true, unset)
                }
                ForcedCalls::NotForced | ForcedCalls::Never => (false, free),
            };
            assert_eq!(sent, expected, "{}: {wanted:?}: {body}", case.name);
        }
        let alone = case.asks(&forced(effort(ReasoningEffort::None)), true);
        let never = case.rules.forced_with_effort == ForcedCalls::Never;
        assert_eq!(is_forced(&alone), !never, "{}: {alone}", case.name);
    }
}

#[test]
fn efforts_are_sent_as_the_rules_list_them() {
    for case in cases() {
        let lists = [(&case.rules.efforts, false), (&case.rules.efforts_with_tools, true)];
        for (listed, tools) in lists {
            let sent = |level| reasoning_settings(&case.asks(&effort(level), tools));
            let unset = reasoning_settings(&case.asks(&Generation::default(), tools));
            let of_listed: Vec<Value> = listed.iter().map(|level| sent(*level)).collect();
            for (at, settings) in of_listed.iter().enumerate() {
                let again = of_listed.iter().filter(|it| *it == settings).count();
                assert_eq!(again, 1, "{}: {:?} is listed twice", case.name, listed[at]);
            }
            for level in EFFORTS {
                let settings = sent(level);
                assert!(
                    settings == unset || of_listed.contains(&settings),
                    "{}: {level:?} is sent as {settings}, which is not listed: {listed:?}",
                    case.name
                );
            }
        }
        let differ = case.rules.efforts != case.rules.efforts_with_tools;
        let kind = case.rules.kind_for_reasoning_with_tools;
        assert_eq!(kind.is_some(), differ, "{}", case.name);
    }
}

#[test]
fn the_kind_that_sends_more_levels_beside_tools_is_listed_by_its_name() {
    let provider = Responses::new("main", Settings::nowhere(), &responses::OPENAI, BTreeMap::new());
    let provider = provider.expect("a provider");
    assert_eq!(provider.kind(), KIND_FOR_REASONING_WITH_TOOLS);
    let openai = chat::openai();
    let chat = OpenAi::new("main", Settings::nowhere(), openai, BTreeMap::new()).expect("a provider");
    for (model, expected) in [("gpt-5", None), ("gpt-5.4", Some(KIND_FOR_REASONING_WITH_TOOLS))] {
        let info = chat.model(model).expect("a model");
        let rules = chat.rules(&info).expect("rules");
        assert_eq!(rules.kind_for_reasoning_with_tools, expected, "{model}");
        let wider = provider.rules(&info).expect("rules").efforts_with_tools;
        assert!(wider.len() > 1, "{wider:?}");
    }
}
