//! Tests which generation settings are accepted.

use super::*;
use crate::model::{
    Generation,
    generation::{ReasoningEffort, ResponseFormat, Temperature, ToolChoice, TopP},
};
use pb::{json_schema::Schema, tool_choice::Choice};

fn read(change: impl FnOnce(&mut pb::Generation)) -> Result<Generation, RequestError> {
    let mut generation = pb::Generation::default();
    change(&mut generation);
    decoded(turn_with(|r| r.generation = Some(generation))).map(|(command, _)| command.request.generation)
}

fn choose(choice: Choice) -> Option<pb::ToolChoice> {
    Some(pb::ToolChoice { choice: Some(choice) })
}

fn schema(json: &str) -> Option<pb::JsonSchema> {
    Some(pb::JsonSchema { schema: Some(Schema::Json(json.into())) })
}

#[test]
fn empty_generation_parameters_are_all_unset() {
    assert_eq!(decoded(hello()).unwrap().0.request.generation, Generation::default());
    assert_eq!(read(|_| {}).unwrap(), Generation::default());
}

#[test]
fn every_generation_parameter_is_decoded() {
    let read = read(|g| {
        *g = pb::Generation {
            temperature: Some(0.0),
            top_p: Some(1.0),
            top_k: Some(0),
            stop_sequences: vec!["\n".into(), "END".into()],
            seed: Some(-1),
            reasoning_effort: pb::ReasoningEffort::Xhigh.into(),
            reasoning_budget_tokens: Some(0),
            tool_choice: choose(Choice::ToolName("look".into())),
            parallel_tool_calls: Some(false),
            response_format: Some(pb::ResponseFormat {
                json_schema: schema("{\"type\": \"object\"}"),
                name: "city".into(),
                strict: Some(false),
            }),
            provider_options_json: "{\"openai\": {\"a\": 1.50}}".into(),
        };
    });
    let expected = Generation {
        temperature: Temperature::new(0.0),
        top_p: TopP::new(1.0),
        top_k: Some(0),
        stop_sequences: vec!["\n".into(), "END".into()],
        seed: Some(-1),
        reasoning_effort: Some(ReasoningEffort::Xhigh),
        reasoning_budget_tokens: Some(0),
        tool_choice: Some(ToolChoice::Tool("look".into())),
        parallel_tool_calls: Some(false),
        response_format: Some(ResponseFormat {
            schema: Some("{\"type\": \"object\"}".into()),
            name: "city".into(),
            strict: Some(false),
        }),
        provider_options: Some("{\"openai\": {\"a\": 1.50}}".into()),
    };
    assert_eq!(read.unwrap(), expected);
}

#[test]
fn an_empty_tool_choice_is_auto() {
    let mode = |mode: pb::ToolChoiceMode| choose(Choice::Mode(mode.into()));
    let table = [
        (None, None),
        (Some(pb::ToolChoice { choice: None }), Some(ToolChoice::Auto)),
        (mode(pb::ToolChoiceMode::Unspecified), Some(ToolChoice::Auto)),
        (mode(pb::ToolChoiceMode::Auto), Some(ToolChoice::Auto)),
        (mode(pb::ToolChoiceMode::None), Some(ToolChoice::None)),
        (mode(pb::ToolChoiceMode::Required), Some(ToolChoice::Required)),
    ];
    for (choice, expected) in table {
        assert_eq!(read(|g| g.tool_choice = choice.clone()).unwrap().tool_choice, expected, "{choice:?}");
    }
}

#[test]
fn a_schema_without_a_name_is_an_answer() {
    let format = read(|g| g.response_format = Some(pb::ResponseFormat::default())).unwrap().response_format;
    assert_eq!(format, Some(ResponseFormat { schema: None, name: "answer".into(), strict: None }));
}

#[test]
fn generation_parameters_have_ranges() {
    let check_wish = |wish: fn(&mut pb::Generation), expected: &[(&str, FieldReason)]| {
        let paths: Vec<_> = expected.iter().map(|(field, reason)| (format!("generation.{field}"), *reason)).collect();
        let paths: Vec<_> = paths.iter().map(|(field, reason)| (field.as_str(), *reason)).collect();
        check(read(wish), &paths);
    };
    check_wish(|g| g.temperature = Some(2.1), &[("temperature", OutOfRange)]);
    check_wish(|g| g.temperature = Some(f64::NAN), &[("temperature", OutOfRange)]);
    check_wish(|g| g.top_p = Some(-0.1), &[("top_p", OutOfRange)]);
    check_wish(|g| g.top_p = Some(1.1), &[("top_p", OutOfRange)]);
    check_wish(|g| g.top_k = Some(-1), &[("top_k", OutOfRange)]);
    check_wish(|g| g.stop_sequences = vec!["x".into(), String::new()], &[("stop_sequences[1]", Required)]);
    check_wish(|g| g.stop_sequences = vec!["ü".repeat(256); 16], &[]);
    check_wish(|g| g.stop_sequences = vec!["x".into(); 17], &[("stop_sequences", TooLarge)]);
    check_wish(|g| g.stop_sequences = vec!["ü".repeat(257)], &[("stop_sequences[0]", TooLarge)]);
    check_wish(|g| g.reasoning_effort = 99, &[("reasoning_effort", Unknown)]);
    check_wish(|g| g.reasoning_budget_tokens = Some(-1), &[("reasoning_budget_tokens", OutOfRange)]);
    check_wish(|g| g.tool_choice = choose(Choice::Mode(9)), &[("tool_choice.mode", Unknown)]);
    check_wish(|g| g.tool_choice = choose(Choice::ToolName("a b".into())), &[("tool_choice.tool_name", Invalid)]);
    check_wish(|g| g.tool_choice = choose(Choice::ToolName(String::new())), &[("tool_choice.tool_name", Required)]);
    for options in ["[]", "{", "{\"openai\": 1}", "{\"openai\": {}, \"gemini\": null}"] {
        check(read(|g| g.provider_options_json = options.into()), &[("generation.provider_options_json", NotJson)]);
    }
    check_wish(
        |g| g.provider_options_json = format!("{{\"openai\": {{\"x\": \"{}\"}}}}", "x".repeat(64 * 1024)),
        &[("provider_options_json", TooLarge)],
    );
    check_wish(
        |g| {
            g.response_format = Some(pb::ResponseFormat {
                json_schema: Some(pb::JsonSchema::default()),
                name: "a b".into(),
                strict: None,
            });
        },
        &[("response_format.name", Invalid), ("response_format.json_schema", Invalid)],
    );
    check_wish(
        |g| g.response_format = Some(pb::ResponseFormat { json_schema: schema("[]"), ..Default::default() }),
        &[("response_format.json_schema.json", NotJson)],
    );
}
