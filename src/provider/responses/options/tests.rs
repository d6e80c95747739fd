//! Tests of the settings in requests.

use super::*;
use crate::{
    context::testing::{self, user},
    model::generation::{ResponseFormat, Temperature, ToolChoice, TopP},
    provider::{
        info::Source,
        responses::{
            dialect::{self, named},
            encode,
        },
    },
};

fn asked(generation: Generation, tools: bool) -> Prompt {
    let tools = if tools { vec![testing::tool("look")] } else { Vec::new() };
    Prompt { model: "gpt-5".to_owned(), generation, tools, ..testing::prompt(vec![user("Hello")]) }
}

fn body(dialect: &str, reasons: bool, prompt: &Prompt) -> Value {
    let form = EncodeOptions {
        dialect: named(dialect).expect("a dialect"),
        provider: "main",
        reasons,
        with_own_items: true,
        summaries: named(dialect).is_some_and(|it| it.openai_models),
    };
    serde_json::from_slice(&encode::request(prompt, form).body).expect("JSON")
}

/// A field of the request for these settings.
fn field(dialect: &str, reasons: bool, generation: Generation, name: &str) -> Value {
    body(dialect, reasons, &asked(generation, true))[name].take()
}

fn options(own: Value) -> Generation {
    Generation {
        provider_options: Some(json!({KIND: own, "openai": {"user": "u"}}).to_string()),
        ..Generation::default()
    }
}

fn everything() -> Generation {
    Generation {
        temperature: Temperature::new(0.5),
        top_p: TopP::new(0.5),
        top_k: Some(1),
        stop_sequences: vec!["a".to_owned()],
        seed: Some(1),
        reasoning_effort: Some(ReasoningEffort::High),
        reasoning_budget_tokens: Some(9),
        tool_choice: Some(ToolChoice::Required),
        parallel_tool_calls: Some(false),
        response_format: None,
        provider_options: None,
    }
}

#[test]
fn encrypted_reasoning_is_asked_for_where_models_reason() {
    let table = [("openai", true, true), ("openai", false, false), ("xai", false, true), ("compatible", false, false)];
    for (dialect, reasons, asks) in table {
        let include = field(dialect, reasons, Generation::default(), "include");
        let expected = if asks { json!([ENCRYPTED]) } else { Value::Null };
        assert_eq!(include, expected, "{dialect}");
    }
    let own = options(json!({"include": ["file_search_call.results"]}));
    assert_eq!(
        field("openai", true, own, "include"),
        json!(["file_search_call.results", ENCRYPTED]),
        "what the host wants is added"
    );
}

#[test]
fn effort_and_summary_are_said_together() {
    let reasoning = |dialect: &str, reasons, effort: Option<ReasoningEffort>| {
        let generation = Generation { reasoning_effort: effort, ..Generation::default() };
        field(dialect, reasons, generation, "reasoning")
    };
    let high = Some(ReasoningEffort::High);
    assert_eq!(reasoning("openai", true, high), json!({"effort": "high", "summary": "auto"}));
    assert_eq!(reasoning("openai", true, None), json!({"summary": "auto"}));
    assert_eq!(reasoning("openai", true, Some(ReasoningEffort::None)), json!({"effort": "none"}));
    assert_eq!(reasoning("openai", false, None), Value::Null);
    assert_eq!(reasoning("xai", true, high), json!({"effort": "high"}));
}

#[test]
fn a_model_whose_levels_are_not_known_is_asked_for_one_that_it_has() {
    use ReasoningEffort::{High, Low, Max, Minimal, None as Not, Xhigh};
    let table = [
        ("openai", None, Max, High),
        ("openai", None, Not, Low),
        ("azure", None, Minimal, Low),
        ("compatible", None, Xhigh, High),
        ("compatible", None, Not, Not),
        ("openai", Some(vec![Not, Max]), Xhigh, Max),
    ];
    for (name, levels, effort, expected) in table {
        let model = ModelInfo { reasoning_efforts: levels, ..ModelInfo::unknown("o9") };
        let wanted = Generation { reasoning_effort: Some(effort), ..Generation::default() };
        let fitted = nearest_supported(named(name).expect("a dialect"), &model, &wanted);
        assert_eq!(fitted.reasoning_effort, Some(expected), "{name} {effort:?}");
    }
}

/// llama.cpp ignores `text.format`, as measured with b11434.
#[test]
fn llamacpp_is_told_the_form_of_an_answer_as_in_chat_completions() {
    let schema = r#"{"type":"object"}"#;
    let generation = Generation {
        response_format: Some(ResponseFormat {
            schema: Some(schema.to_owned()),
            name: "answer".to_owned(),
            strict: Some(true),
        }),
        ..Generation::default()
    };
    let sent = body("llamacpp", false, &asked(generation, false));
    assert_eq!(
        sent["response_format"],
        json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": true}})
    );
    assert_eq!(sent["text"], Value::Null);
    let generation = Generation { response_format: Some(ResponseFormat::default()), ..Generation::default() };
    assert_eq!(body("llamacpp", false, &asked(generation, false))["response_format"], json!({"type": "json_object"}));
}

#[test]
fn tool_choice_has_the_form_of_the_service() {
    let table = [
        (ToolChoice::Auto, json!("auto")),
        (ToolChoice::None, json!("none")),
        (ToolChoice::Required, json!("required")),
        (ToolChoice::Tool("look".to_owned()), json!({"type": "function", "name": "look"})),
    ];
    for (choice, expected) in table {
        let generation =
            Generation { tool_choice: Some(choice), parallel_tool_calls: Some(false), ..Generation::default() };
        let with = body("openai", true, &asked(generation.clone(), true));
        assert_eq!(with["tool_choice"], expected);
        assert_eq!(with["parallel_tool_calls"], false);
        let without = body("openai", true, &asked(generation, false));
        assert_eq!(without["tool_choice"], Value::Null);
        assert_eq!(without["parallel_tool_calls"], Value::Null);
    }
}

#[test]
fn an_answer_can_be_held_to_a_schema() {
    let format = |schema: Option<&str>, strict| Generation {
        response_format: Some(ResponseFormat { schema: schema.map(str::to_owned), name: "answer".to_owned(), strict }),
        ..Generation::default()
    };
    let closed = r#"{"type":"object","properties":{},"additionalProperties":false}"#;
    let open = r#"{"type":"object","properties":{}}"#;
    let text = |dialect: &str, generation| field(dialect, true, generation, "text")["format"].take();
    assert_eq!(text("openai", format(None, None)), json!({"type": "json_object"}));
    let held = text("openai", format(Some(closed), None));
    assert_eq!(
        (&held["type"], &held["name"], &held["strict"]),
        (&json!("json_schema"), &json!("answer"), &json!(true))
    );
    assert_eq!(held["schema"]["additionalProperties"], false);
    assert_eq!(text("openai", format(Some(open), None))["strict"], Value::Null);
    assert_eq!(text("openai", format(Some(open), Some(false)))["strict"], false);
    assert_eq!(text("lmstudio", format(Some(closed), None))["strict"], Value::Null);
}

#[test]
fn a_limit_of_the_answer_is_not_below_what_the_service_takes() {
    let limit = |dialect: &str, most: u32| {
        let prompt = Prompt { max_output_tokens: Some(most), ..asked(everything(), false) };
        let mut body = body(dialect, false, &prompt);
        (body["max_output_tokens"].take(), body["temperature"].take())
    };
    assert_eq!(limit("openai", 99), (json!(99), json!(0.5)));
    assert_eq!(limit("openai", 1), (json!(16), json!(0.5)));
    assert_eq!(limit("chatgpt", 99), (Value::Null, Value::Null));
}

#[test]
fn provider_options_win_over_settings_but_not_over_the_conversation() {
    let own = options(json!({
        "store": true,
        "service_tier": "flex",
        "reasoning": {"summary": "detailed"},
        "text": {"verbosity": "low"},
        "prompt_cache_key": "mine",
        "tool_choice": "none",
        "model": "other", "input": [], "instructions": "x", "tools": [], "stream": false,
        "previous_response_id": "r", "conversation": "c", "prompt": {}, "background": true,
    }));
    let generation = Generation {
        reasoning_effort: Some(ReasoningEffort::Low),
        tool_choice: Some(ToolChoice::Auto),
        response_format: Some(ResponseFormat::default()),
        ..own
    };
    let body = body("openai", true, &asked(generation, true));
    assert_eq!(body["store"], true);
    assert_eq!(body["service_tier"], "flex");
    assert_eq!(body["prompt_cache_key"], "mine");
    assert_eq!(body["tool_choice"], "none");
    assert_eq!(body["reasoning"], json!({"effort": "low", "summary": "detailed"}));
    assert_eq!(body["text"], json!({"format": {"type": "json_object"}, "verbosity": "low"}));
    assert_eq!(body["model"], "gpt-5");
    assert_eq!(body["stream"], true);
    assert_eq!(body["input"].as_array().map(Vec::len), Some(1));
    assert_eq!(body["tools"].as_array().map(Vec::len), Some(1));
    for field in ["instructions", "previous_response_id", "conversation", "prompt", "background", "user"] {
        assert_eq!(body[field], Value::Null, "{field}");
    }
    let none = field("openai", true, options(json!({"reasoning": null})), "reasoning");
    assert_eq!(none, Value::Null, "the host can take a field away");
}

#[test]
fn settings_that_a_service_or_a_model_does_not_have_are_refused() {
    let refused = |dialect: &str, model: &str| {
        let model = ModelInfo::unknown(model);
        unsupported_settings(named(dialect).expect("known"), &model, &everything())
            .into_iter()
            .map(|it| it.setting)
            .collect::<Vec<_>>()
    };
    use Setting::*;
    assert_eq!(refused("openai", "gpt-5.2"), [Temperature, TopP, TopK, Seed, StopSequences, ReasoningBudget]);
    assert_eq!(refused("openai", "gpt-4.1"), [TopK, Seed, StopSequences, ReasoningEffort, ReasoningBudget]);
    assert_eq!(
        refused("openai", "o3"),
        [Temperature, TopP, TopK, Seed, StopSequences, ReasoningBudget, ParallelToolCalls]
    );
    assert_eq!(refused("chatgpt", "gpt-5"), [Temperature, TopP, TopK, Seed, StopSequences, ReasoningBudget]);
    assert_eq!(refused("xai", "grok-4"), [TopK, Seed, StopSequences, ReasoningEffort, ReasoningBudget]);
    let model = ModelInfo::unknown("gpt-5");
    assert_eq!(unsupported_settings(&dialect::OPENAI, &model, &Generation::default()), []);
}

#[test]
fn a_model_reasons_by_what_is_known_of_it_or_by_its_name() {
    let table = [
        ("o3-mini", None, true),
        ("openai/gpt-5.1", None, true),
        ("gpt-4.1", None, false),
        ("mine", None, false),
        ("mine", Some(vec![ReasoningEffort::High]), true),
        ("gpt-5", Some(vec![]), false),
    ];
    for (name, efforts, expected) in table {
        let model = ModelInfo { reasoning_efforts: efforts, source: Source::Configured, ..ModelInfo::unknown(name) };
        assert_eq!(is_reasoning_model(&model), expected, "{name}");
    }
}
