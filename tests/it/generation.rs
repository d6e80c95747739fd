//! Generation settings: what a host sets reaches the model, field by field, as far as the model supports it.

use contextd::{
    model::{
        Generation,
        generation::{ReasoningEffort, ResponseFormat, Temperature, ToolChoice, TopP},
    },
    pb::{self, event::Payload, json_schema::Schema, tool_choice::Choice},
};
use serde_json::json;
use tonic::Code;

use crate::harness::{
    Host,
    events::completed,
    host::{MODEL, call, refusal},
    requests::{result, tool, tools, turn},
};

fn choose(choice: Choice) -> Option<pb::ToolChoice> {
    Some(pb::ToolChoice { choice: Some(choice) })
}

fn required() -> Option<pb::ToolChoice> {
    choose(Choice::Mode(pb::ToolChoiceMode::Required.into()))
}

/// Settings with a value in every field.
fn wishing() -> pb::Generation {
    pb::Generation {
        temperature: Some(0.5),
        top_p: Some(0.25),
        top_k: Some(40),
        stop_sequences: vec!["STOP".to_owned(), "\n\n".to_owned()],
        seed: Some(-7),
        reasoning_effort: pb::ReasoningEffort::High.into(),
        reasoning_budget_tokens: Some(1_024),
        tool_choice: choose(Choice::ToolName("look".to_owned())),
        parallel_tool_calls: Some(true),
        response_format: Some(pb::ResponseFormat {
            json_schema: Some(pb::JsonSchema { schema: Some(Schema::Json(r#"{"type": "object"}"#.to_owned())) }),
            name: String::new(),
            strict: Some(true),
        }),
        provider_options_json: r#"{"scripted": {"x": 1.50}}"#.to_owned(),
    }
}

/// The same settings as the model receives them.
fn wished() -> Generation {
    Generation {
        temperature: Temperature::new(0.5),
        top_p: TopP::new(0.25),
        top_k: Some(40),
        stop_sequences: vec!["STOP".to_owned(), "\n\n".to_owned()],
        seed: Some(-7),
        reasoning_effort: Some(ReasoningEffort::High),
        reasoning_budget_tokens: Some(1_024),
        tool_choice: Some(ToolChoice::Tool("look".to_owned())),
        parallel_tool_calls: Some(true),
        response_format: Some(ResponseFormat {
            schema: Some(r#"{"type": "object"}"#.to_owned()),
            name: "answer".to_owned(),
            strict: Some(true),
        }),
        provider_options: Some(r#"{"scripted": {"x": 1.50}}"#.to_owned()),
    }
}

/// A turn in the session `s`, which is created with a value in every field.
fn asks(generation: Option<pb::Generation>) -> pb::ExecuteTurnRequest {
    let session = pb::Session { generation: Some(wishing()), tools: tools(&["look"]), ..pb::Session::default() };
    pb::ExecuteTurnRequest { session: Some(session), generation, ..turn("s", MODEL, "Hello") }
}

/// The settings of each model call, oldest first.
fn prompted(host: &Host) -> Vec<Generation> {
    host.replica.scripted.prompts().iter().map(|prompt| prompt.generation.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn turn_generation_settings_override_the_sessions_per_field_and_reach_the_model() {
    let host = Host::scripted(&[json!([{"text": "Fine."}])]).await;
    let turns_own = pb::Generation {
        temperature: Some(0.0),
        stop_sequences: vec!["END".to_owned()],
        reasoning_effort: pb::ReasoningEffort::None.into(),
        tool_choice: choose(Choice::Mode(pb::ToolChoiceMode::None.into())),
        parallel_tool_calls: Some(false),
        ..pb::Generation::default()
    };
    for generation in [None, Some(turns_own), Some(pb::Generation::default())] {
        host.run(asks(generation)).await;
    }
    let mixed = Generation {
        temperature: Temperature::new(0.0),
        stop_sequences: vec!["END".to_owned()],
        reasoning_effort: Some(ReasoningEffort::None),
        tool_choice: Some(ToolChoice::None),
        parallel_tool_calls: Some(false),
        ..wished()
    };
    assert_eq!(prompted(&host), [wished(), mixed, wished()]);
    let shown = host.session("s").await.generation.unwrap();
    let format = shown.response_format.clone().map(|format| pb::ResponseFormat { name: String::new(), ..format });
    assert_eq!(pb::Generation { response_format: format, ..shown }, wishing());
}

#[tokio::test(flavor = "multi_thread")]
async fn generation_parameters_are_part_of_the_request_hash() {
    let host = Host::scripted(&[json!([{"text": "Fine."}])]).await;
    let first = asks(Some(pb::Generation { temperature: Some(0.5), ..pb::Generation::default() }));
    host.run(first.clone()).await;
    host.run(first.clone()).await;
    assert_eq!(prompted(&host).len(), 1, "the same request attaches");
    let warmer = Some(pb::Generation { temperature: Some(0.6), ..pb::Generation::default() });
    let other = pb::ExecuteTurnRequest { generation: warmer, ..first.clone() };
    let status = host.try_execute(other).await.unwrap_err();
    let expected = (Code::InvalidArgument, "IDEMPOTENCY_MISMATCH".to_owned(), first.request_id);
    assert_eq!(refusal(&status, "request_id"), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_tool_choice_applies_to_the_first_step_of_a_turn_only() {
    let host = Host::scripted(&[json!([call("look")]), json!([{"text": "Done."}])]).await;
    for choice in [required(), choose(Choice::ToolName("look".to_owned()))] {
        let generation = Some(pb::Generation { tool_choice: choice, ..pb::Generation::default() });
        let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), generation, ..turn("s", MODEL, "Look") };
        host.run_with(request, |call| result(&call.call_id, "a tree")).await;
    }
    let choices: Vec<_> = prompted(&host).into_iter().map(|generation| generation.tool_choice.unwrap()).collect();
    let look = ToolChoice::Tool("look".to_owned());
    assert_eq!(choices, [ToolChoice::Required, ToolChoice::Auto, look, ToolChoice::Auto]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_choice_of_an_unknown_tool_is_dropped_and_reported() {
    let host = Host::scripted(&[json!([{"text": "Fine."}])]).await;
    let hidden = pb::Tool { deferred: true, ..tool("later") };
    let offered = pb::ToolSet { host_tools: vec![tool("look"), hidden], ..pb::ToolSet::default() };
    let named = |name: &str| choose(Choice::ToolName(name.to_owned()));
    let rows = [
        (named("look"), Some(offered.clone()), Some(ToolChoice::Tool("look".to_owned())), false),
        (named("list"), Some(offered.clone()), None, true),
        (named("later"), Some(offered), None, true),
        (required(), Some(pb::ToolSet::default()), None, true),
        (choose(Choice::Mode(pb::ToolChoiceMode::Auto.into())), Some(pb::ToolSet::default()), None, false),
    ];
    for (tool_choice, tools, told, reported) in rows {
        let generation = pb::Generation { tool_choice, temperature: Some(1.0), ..pb::Generation::default() };
        let request = pb::ExecuteTurnRequest { tools, generation: Some(generation), ..turn("s", MODEL, "Hello") };
        let events = host.run(request.clone()).await;
        let last = prompted(&host).pop().unwrap();
        assert_eq!((last.tool_choice, last.temperature), (told, Temperature::new(1.0)), "{request:?}");
        let reports: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.payload {
                Some(Payload::UnsupportedInput(report)) => Some((report, event.seq > 0)),
                _ => None,
            })
            .collect();
        assert_eq!(reports.len(), usize::from(reported), "{request:?}");
        for (report, durable) in reports {
            assert!(durable && !report.errors.is_empty(), "{report:?}");
            let seen = (report.field.as_str(), report.part_index, report.provider.as_str(), report.model.as_str());
            assert_eq!(seen, ("generation.tool_choice", -1, "scripted", MODEL));
        }
        completed(&events);
    }
}
