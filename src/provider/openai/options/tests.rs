//! Tests of generation settings: how each is sent to each service, and which cannot be sent.

use serde_json::json;

use super::*;
use crate::{
    context::testing::{assert_linear_time, wide_schema},
    model::generation::{Temperature, ToolChoice, TopP},
    provider::openai::{
        dialect,
        tests::requests::{asked, body},
    },
};

fn everything() -> Generation {
    Generation {
        temperature: Temperature::new(0.5),
        top_p: TopP::new(0.25),
        top_k: Some(7),
        stop_sequences: vec!["END".to_owned()],
        seed: Some(3),
        reasoning_effort: Some(ReasoningEffort::High),
        reasoning_budget_tokens: Some(500),
        tool_choice: Some(ToolChoice::Required),
        parallel_tool_calls: Some(false),
        response_format: Some(ResponseFormat {
            schema: Some("{}".to_owned()),
            name: "answer".to_owned(),
            strict: None,
        }),
        provider_options: None,
    }
}

fn refused(dialect: &str, model: &str, wanted: &Generation) -> Vec<&'static str> {
    let refused = unsupported_settings(dialect::named(dialect).expect("a dialect"), &ModelInfo::unknown(model), wanted);
    assert!(refused.iter().all(|it| !it.why.is_empty()));
    refused.iter().map(|it| it.setting.path().trim_start_matches("generation.")).collect()
}

#[test]
fn every_generation_parameter_has_its_request_field() {
    let body = body("openai", &asked(everything(), true));
    assert_eq!(body["temperature"], 0.5);
    assert_eq!(body["top_p"], 0.25);
    assert_eq!(body["top_k"], 7);
    assert_eq!(body["stop"], json!(["END"]));
    assert_eq!(body["seed"], 3);
    assert_eq!(body["reasoning_effort"], "high");
    assert_eq!(body["tool_choice"], "required");
    assert_eq!(body["parallel_tool_calls"], false);
    assert_eq!(body["response_format"]["type"], "json_schema");
}

#[test]
fn unsupported_parameters_are_reported_by_name() {
    let all = everything();
    assert_eq!(refused("openai", "gpt-4o", &all), ["top_k", "reasoning_effort", "reasoning_budget_tokens"]);
    let thinking = ["temperature", "top_p", "top_k", "stop_sequences", "reasoning_budget_tokens"];
    assert_eq!(refused("openai", "gpt-5.1", &all), thinking);
    assert_eq!(refused("openai", "o3-mini", &all), [&thinking[..], &["parallel_tool_calls"]].concat());
    assert_eq!(refused("openrouter", "openai/o3", &all), [""; 0]);
    assert_eq!(
        refused("deepseek", "deepseek-v4", &all),
        ["top_k", "reasoning_budget_tokens", "tool_choice", "response_format"]
    );
    let calm = Generation { reasoning_effort: Some(ReasoningEffort::None), response_format: None, ..all.clone() };
    assert_eq!(refused("deepseek", "deepseek-v4", &calm), ["top_k", "reasoning_budget_tokens"]);
    assert_eq!(refused("llamacpp", "any", &all), [""; 0]);
    assert_eq!(refused("together", "any", &all), ["reasoning_effort", "reasoning_budget_tokens"]);
    let levels = ModelInfo { reasoning_efforts: Some(vec![ReasoningEffort::High]), ..ModelInfo::unknown("our-own") };
    let refused_of = unsupported_settings(dialect::openai(), &levels, &all);
    assert!(refused_of.iter().all(|it| it.setting != Setting::ReasoningEffort), "{refused_of:?}");
    assert_eq!(refused("vllm", "any", &all), [""; 0]);
    let stops = Generation { stop_sequences: vec!["a".to_owned(); 5], ..Generation::default() };
    assert_eq!(refused("openai", "gpt-4o", &stops), ["stop_sequences"]);
    assert_eq!(refused("groq", "any", &stops), ["stop_sequences"]);
    assert_eq!(refused("together", "any", &stops), [""; 0]);
    assert_eq!(refused("openai", "gpt-4o", &Generation::default()), [""; 0]);
}

#[test]
fn reasoning_models_are_recognized_by_name() {
    let table = [
        ("o1", true),
        ("o3-mini", true),
        ("o4-mini-2025", true),
        ("gpt-5", true),
        ("gpt-5.1-codex", true),
        ("gpt-10", true),
        ("gpt-4o", false),
        ("gpt-4.1", false),
        ("gpt-5-chat-latest", false),
        ("gpt-oss-120b", false),
        ("omni", false),
        ("", false),
    ];
    for (model, expected) in table {
        assert_eq!(is_openai_reasoning_model(model), expected, "{model}");
    }
}

#[test]
fn reasoning_effort_is_encoded_per_service() {
    use ReasoningEffort::{High, Max, Minimal, None as Not, Xhigh};
    let with = |dialect: &str, effort: Option<ReasoningEffort>, budget: Option<u32>| {
        let generation =
            Generation { reasoning_effort: effort, reasoning_budget_tokens: budget, ..Generation::default() };
        let generation =
            nearest_supported(dialect::named(dialect).expect("a dialect"), &ModelInfo::unknown("any"), &generation);
        let mut body = body(dialect, &asked(generation, false));
        let fields = ["reasoning_effort", "reasoning", "thinking", "thinking_budget_tokens", "thinking_token_budget"];
        let found = fields.iter().filter_map(|field| Some((*field, body.get_mut(field)?.take())));
        Value::from_iter(found)
    };
    let table = [
        ("openai", Some(Max), None, json!({"reasoning_effort": "high"})),
        ("openai", Some(Not), None, json!({"reasoning_effort": "low"})),
        ("groq", Some(Minimal), None, json!({"reasoning_effort": "low"})),
        ("groq", Some(Xhigh), None, json!({"reasoning_effort": "high"})),
        ("openrouter", Some(High), None, json!({"reasoning": {"effort": "high"}})),
        ("openrouter", Some(High), Some(9), json!({"reasoning": {"max_tokens": 9}})),
        ("deepseek", Some(Not), None, json!({"thinking": {"type": "disabled"}})),
        ("deepseek", Some(Minimal), None, json!({"thinking": {"type": "enabled"}, "reasoning_effort": "high"})),
        ("deepseek", Some(Xhigh), None, json!({"thinking": {"type": "enabled"}, "reasoning_effort": "max"})),
        ("zai", Some(High), None, json!({"thinking": {"type": "enabled"}})),
        ("llamacpp", None, Some(9), json!({"thinking_budget_tokens": 9})),
        ("llamacpp", Some(High), None, json!({"thinking_budget_tokens": 24_576})),
        ("llamacpp", Some(Not), None, json!({"thinking_budget_tokens": 0})),
        ("together", Some(High), None, json!({})),
        ("vllm", Some(High), Some(9), json!({"thinking_token_budget": 9})),
        ("vllm", Some(High), None, json!({"reasoning_effort": "high"})),
        ("openai", None, None, json!({})),
    ];
    for (dialect, effort, budget, expected) in table {
        assert_eq!(with(dialect, effort, budget), expected, "{dialect} {effort:?} {budget:?}");
    }
}

#[test]
fn reasoning_effort_uses_the_nearest_level_of_the_model() {
    use ReasoningEffort::{High, Low, Max, Medium, None as Not, Xhigh};
    let table = [
        ("openai", Some(vec![Low, High]), Medium, Some(Low)),
        ("openai", None, Max, Some(High)),
        ("openai", Some(vec![High, Max]), Max, Some(Max)),
        ("groq", Some(vec![Not, Xhigh]), High, Some(Xhigh)),
        ("groq", None, Xhigh, Some(High)),
        ("deepseek", Some(vec![High, Max]), Not, Some(Not)),
        ("deepseek", Some(vec![High, Max]), Low, Some(High)),
        ("zai", Some(vec![Low]), Not, Some(Not)),
        ("openrouter", Some(vec![Low]), Not, Some(Low)),
    ];
    for (name, levels, effort, expected) in table {
        let model = ModelInfo { reasoning_efforts: levels, ..ModelInfo::unknown("any") };
        let wanted = Generation { reasoning_effort: Some(effort), ..Generation::default() };
        let fitted = nearest_supported(dialect::named(name).expect("a dialect"), &model, &wanted);
        assert_eq!(fitted.reasoning_effort, expected, "{name} {effort:?}");
    }
}

#[test]
fn tool_choice_is_sent_only_with_tools() {
    let choose = |choice: ToolChoice, tools: bool| {
        let generation = Generation { tool_choice: Some(choice), ..Generation::default() };
        body("openai", &asked(generation, tools)).get("tool_choice").cloned()
    };
    assert_eq!(choose(ToolChoice::Auto, true), Some(json!("auto")));
    assert_eq!(choose(ToolChoice::None, true), Some(json!("none")));
    let look = json!({"type": "function", "function": {"name": "look"}});
    assert_eq!(choose(ToolChoice::Tool("look".to_owned()), true), Some(look));
    assert_eq!(choose(ToolChoice::Auto, false), None);
}

#[test]
fn a_schema_is_strict_where_the_service_supports_it() {
    let strict = |dialect: &str, schema: Value, strict: Option<bool>| {
        let format = ResponseFormat { schema: Some(schema.to_string()), name: "answer".to_owned(), strict };
        let generation = Generation { response_format: Some(format), ..Generation::default() };
        let body = body(dialect, &asked(generation, false));
        assert_eq!(body["response_format"]["json_schema"]["schema"], schema);
        body["response_format"]["json_schema"].get("strict").and_then(Value::as_bool)
    };
    let closed = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let nested = json!({"type": "object", "properties": {"a": open}, "required": ["a"], "additionalProperties": false});
    assert_eq!(strict("openai", closed.clone(), None), Some(true));
    assert_eq!(strict("openai", open.clone(), None), None);
    assert_eq!(strict("openai", nested, None), None);
    assert_eq!(strict("openai", closed.clone(), Some(false)), Some(false));
    assert_eq!(strict("openai", open, Some(true)), Some(true));
    assert_eq!(strict("vllm", closed, None), None);
    let any = Generation {
        response_format: Some(ResponseFormat { schema: None, name: "answer".to_owned(), strict: None }),
        ..Generation::default()
    };
    assert_eq!(body("openai", &asked(any, false))["response_format"], json!({"type": "json_object"}));
}

#[test]
fn provider_options_override_parameters_but_never_messages() {
    let options = json!({
        "openai": {"temperature": 1.5, "service_tier": "flex", "big": 12345678901234567890_u64, "model": "x", "messages": [], "tools": [],
                   "stream": false, "stream_options": {"include_usage": false}, "n": 5},
        "anthropic": {"speed": "fast"},
    });
    let generation = Generation { provider_options: Some(options.to_string()), ..everything() };
    let body = body("openai", &asked(generation, true));
    assert_eq!((&body["temperature"], &body["service_tier"]), (&json!(1.5), &json!("flex")));
    assert_eq!(body["big"], json!(12345678901234567890_u64));
    assert_eq!((&body["model"], &body["stream"]), (&json!("gpt"), &json!(true)));
    // The basis of billing for each call.
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
    assert_eq!(body.get("n"), None);
    assert_eq!(
        (body["messages"][0]["content"].as_str(), body["tools"].as_array().map(Vec::len)),
        (Some("Hello"), Some(1))
    );
    assert_eq!(body.get("speed"), None);
}

#[test]
fn a_hundred_thousand_properties_are_not_compared_with_as_many_required_ones() {
    let schema = serde_json::from_str(&wide_schema(100_000)).unwrap();
    assert!(assert_linear_time("can_be_strict", || can_be_strict(&schema)));
}
