//! Tests of how requests encode generation settings.

use super::*;

#[test]
fn a_model_under_another_name_is_asked_to_think_as_its_service_lists() {
    let wanted = Generation { reasoning_effort: Some(ReasoningEffort::High), ..Generation::default() };
    let prompt =
        Prompt { generation: wanted.clone(), max_output_tokens: Some(20_000), ..prompt("best", vec![user("Hello")]) };
    let manner = EncodeOptions {
        model: ModelInfo { thinking: Some(vec![Thinking::Adaptive]), ..ModelInfo::unknown("best") },
        ..manner("best")
    };
    let body = json_of(&encode::request(&prompt, &manner));
    assert_eq!(body["thinking"]["type"], "adaptive");
    assert_eq!(body["output_config"]["effort"], "high");
    let budget = Generation { reasoning_budget_tokens: Some(2_000), ..wanted };
    let refused = options::unsupported_settings(&manner.model, &budget);
    assert_eq!(refused.iter().map(|it| it.setting).collect::<Vec<_>>(), [Setting::ReasoningBudget]);
}

fn wanting(model: &str, generation: Generation) -> Value {
    body(&Prompt {
        generation,
        tools: vec![tool("look")],
        max_output_tokens: Some(20_000),
        ..prompt(model, vec![user("Hello")])
    })
}

#[test]
fn reasoning_effort_becomes_what_the_model_has() {
    use ReasoningEffort::{High, Low, Max, Medium, Minimal, None as Off, Xhigh};
    let adaptive = json!({"type": "adaptive", "display": "summarized"});
    let budget = |tokens: u32| json!({"type": "enabled", "budget_tokens": tokens});
    let table = [
        ("claude-sonnet-4-5", Off, Value::Null, Value::Null),
        ("claude-sonnet-4-5", Minimal, budget(1_024), Value::Null),
        ("claude-sonnet-4-5", Medium, budget(8_192), Value::Null),
        ("claude-sonnet-4-5", Max, budget(19_999), Value::Null),
        ("claude-3-5-haiku", High, Value::Null, Value::Null),
        ("claude-sonnet-4-6", Off, json!({"type": "disabled"}), Value::Null),
        ("claude-sonnet-4-6", Max, adaptive.clone(), json!("high")),
        ("claude-opus-4-7", Minimal, adaptive.clone(), json!("low")),
        ("claude-opus-5-5", Off, adaptive.clone(), json!("low")),
        ("claude-opus-5-5", Low, adaptive, json!("low")),
        ("some-other-model", Low, budget(2_048), Value::Null),
    ];
    for (model, effort, thinking, level) in table {
        let info = ModelInfo::unknown(model);
        let wanted = Generation { reasoning_effort: Some(effort), ..Generation::default() };
        let mut fitted = options::nearest_supported(&info, &wanted);
        for refused in options::unsupported_settings(&info, &fitted) {
            fitted.clear(refused.setting);
        }
        let body = wanting(model, fitted);
        assert_eq!(body["thinking"], thinking, "{model} {effort:?}");
        assert_eq!(body["output_config"]["effort"], level, "{model} {effort:?}");
    }
    let levels = ModelInfo {
        reasoning_efforts: Some(vec![Low, Medium, High, Xhigh, Max]),
        ..ModelInfo::unknown("claude-opus-4-7")
    };
    let wanted = Generation { reasoning_effort: Some(Xhigh), ..Generation::default() };
    assert_eq!(options::nearest_supported(&levels, &wanted).reasoning_effort, Some(Xhigh));
}

#[test]
fn a_call_that_stands_without_its_reasoning_switches_a_budget_off() {
    let generation = Generation { reasoning_effort: Some(ReasoningEffort::High), ..Generation::default() };
    let loops = |parts: Vec<Part>| {
        let messages = vec![user("Look."), said(OLD, None, parts), results(&[("look", "seen")])];
        body(&Prompt {
            generation: generation.clone(),
            max_output_tokens: Some(20_000),
            ..prompt(OLD, messages)
        })["thinking"]["type"]
            .take()
    };
    assert_eq!(loops(vec![thought("Hm.", "s"), call("look", "{}")]), "enabled");
    assert_eq!(loops(vec![call("look", "{}")]), Value::Null);
}

#[test]
fn what_a_model_does_not_take_is_named() {
    let all = Generation {
        temperature: Some(Temperature::new(1.5).unwrap()),
        top_p: Some(TopP::new(0.9).unwrap()),
        top_k: Some(5),
        seed: Some(1),
        reasoning_budget_tokens: Some(2_000),
        tool_choice: Some(ToolChoice::Required),
        response_format: Some(ResponseFormat {
            schema: Some(r#"{"type":"object"}"#.to_owned()),
            name: "answer".to_owned(),
            strict: None,
        }),
        ..Generation::default()
    };
    use Setting::{
        ReasoningBudget, ResponseFormat as Format, Seed, Temperature as Heat, ToolChoice as Choice, TopK, TopP as P,
    };
    let table = [
        ("claude-3-5-haiku", vec![Seed, ReasoningBudget, Format]),
        ("claude-opus-4-5", vec![Heat, P, TopK, Seed, Choice]),
        ("claude-opus-4-7", vec![Heat, P, TopK, Seed, ReasoningBudget]),
        ("claude-opus-5-5", vec![Heat, P, TopK, Seed, ReasoningBudget, Choice]),
    ];
    for (model, expected) in table {
        let refused = options::unsupported_settings(&ModelInfo::unknown(model), &all);
        let refused: Vec<Setting> = refused.into_iter().map(|it| it.setting).collect();
        assert_eq!(refused, expected, "{model}");
    }
    let json = Generation {
        response_format: Some(ResponseFormat { schema: None, name: "answer".to_owned(), strict: None }),
        ..Generation::default()
    };
    assert_eq!(options::unsupported_settings(&ModelInfo::unknown(OLD), &json).len(), 1);
}

#[test]
fn settings_are_written_in_the_words_of_the_service() {
    let body = wanting(
        OLD,
        Generation {
            temperature: Some(Temperature::new(1.5).unwrap()),
            top_k: Some(5),
            stop_sequences: vec!["END".to_owned(), " ".to_owned()],
            tool_choice: Some(ToolChoice::Tool("look".to_owned())),
            parallel_tool_calls: Some(false),
            response_format: Some(ResponseFormat {
                schema: Some(r#"{"type":"object"}"#.to_owned()),
                name: "answer".to_owned(),
                strict: None,
            }),
            provider_options: Some(
                r#"{"anthropic":{"service_tier":"auto","top_k":7,"stream":false},"openai":{"n":2}}"#.to_owned(),
            ),
            ..Generation::default()
        },
    );
    let settings =
        ["temperature", "top_k", "stop_sequences", "tool_choice", "output_config", "service_tier", "stream", "n"]
            .map(|field| body[field].clone());
    assert_eq!(
        settings,
        [
            json!(1.0),
            json!(7),
            json!(["END"]),
            json!({"type": "tool", "name": "look", "disable_parallel_tool_use": true}),
            json!({"format": {"type": "json_schema", "schema": {"type": "object"}}}),
            json!("auto"),
            json!(true),
            Value::Null,
        ]
    );
}

#[test]
fn betas_are_switched_on_by_a_header() {
    let generation = Generation {
        provider_options: Some(r#"{"anthropic":{"betas":["a-1","b-2"]}}"#.to_owned()),
        ..Generation::default()
    };
    let encoded = encoded(&Prompt { generation, ..prompt(OLD, vec![user("Hello")]) });
    assert_eq!(encoded.headers["anthropic-beta"], "a-1,b-2");
    assert_eq!(json_of(&encoded).get("betas"), None);
}

#[test]
fn the_answer_is_bounded_by_the_model_and_by_the_room_in_the_window() {
    let limit = |tokens| Some(Limit::new(tokens, Source::Shipped));
    let of = |asked: Option<u32>, output: Option<u32>, window: Option<u32>, size: u32| {
        let prompt = Prompt {
            max_output_tokens: asked,
            size: TokenCount { tokens: size, ..testing::prompt(vec![user("a")]).size },
            ..prompt(OLD, vec![user("Hello")])
        };
        let manner = EncodeOptions {
            model: ModelInfo {
                max_output: output.and_then(limit),
                context_window: window.and_then(limit),
                ..ModelInfo::unknown(OLD)
            },
            ..manner(OLD)
        };
        json_of(&encode::request(&prompt, &manner))["max_tokens"].take()
    };
    assert_eq!(of(Some(99), Some(64_000), None, 0), 99);
    assert_eq!(of(None, Some(64_000), None, 0), 64_000);
    assert_eq!(of(None, None, None, 0), 8_192);
    let room = of(None, Some(64_000), Some(200_000), 150_000).as_u64().unwrap();
    assert!((40_000..=50_000).contains(&room), "{room}");
    assert_eq!(of(None, Some(64_000), Some(200_000), 300_000), 1_024);
}

#[test]
fn the_container_of_the_services_code_goes_on_within_its_tool_loop() {
    let worked = |model: &str| {
        let mut message = said(model, None, vec![call("look", "{}")]);
        if let Some(response) = &mut message.response {
            response.provider_metadata = Some(r#"{"anthropic":{"container":{"id":"c1","expires_at":"x"}}}"#.to_owned());
        }
        vec![user("Count."), message, results(&[("look", "seen")])]
    };
    assert_eq!(body(&prompt(OLD, worked(OLD)))["container"], "c1");
    let over = worked(OLD).into_iter().chain([user("And now?")]).collect();
    assert_eq!(body(&prompt(OLD, over))["container"], Value::Null);
    assert_eq!(body(&prompt(OLD, worked("other")))["container"], Value::Null);
}
