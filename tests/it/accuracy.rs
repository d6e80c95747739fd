//! Compares predicted prompt sizes with the sizes that providers reported for recorded requests, against the error
//! goals, regardless of the prices in the table.

#[path = "../../examples/accuracy/cases.rs"]
mod cases;
#[path = "../../examples/accuracy/score.rs"]
mod score;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use contextd::{
    codec::{
        self,
        field::{Field as _, unless_default},
    },
    context::template::Template,
    model::{Message, Prompt, Role, ToolSet},
    pb::{self, event::Payload},
    provider::{ModelInfo, Provider, ResponseStream},
};
use futures_util::{StreamExt as _, stream};
use score::{Continued, Pair, Score};
use tonic::Code;

use crate::harness::{Host, Options, requests::turn, transcripts::append};

fn recorded() -> Vec<cases::Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/accuracy/cases.jsonl.gz");
    cases::load(&path).unwrap()
}

/// Row A11
#[test]
fn first_prompts_are_predicted_within_the_error_goal() {
    let pairs: Vec<Pair> = recorded().iter().map(score::cold).collect();
    let score = Score::of(&pairs);
    assert!(score.count >= 667, "{score:?}");
    assert!(score.median <= 1.0 && score.p90 <= 10.0, "{score:?}");
    assert!(score.bias.abs() <= 0.5, "{score:?}");
    assert!(score.close >= 90.0 && score.covered >= 90.0, "{score:?}");
}

/// Row P10
#[test]
fn p10_prompts_after_a_usage_report_are_predicted_more_closely_with_tool_rounds_too() {
    let cases = recorded();
    // Few pairs have no tool calls, and most of their responses have only a few tokens.
    for (calls, least, p90) in [(&[true, false][..], 78, 5.0), (&[true][..], 58, 5.0), (&[false][..], 15, 10.0)] {
        let pairs = score::continued(&cases).into_iter();
        let pairs = pairs.filter(|pair| calls.contains(&pair.has_calls()));
        let score = Score::of(&pairs.map(Continued::predict).collect::<Vec<_>>());
        assert!(score.count >= least, "{calls:?}: {score:?}");
        assert!(score.median <= 0.5 && score.p90 <= p90, "{calls:?}: {score:?}");
        assert!(score.close >= 90.0, "{calls:?}: {score:?}");
        assert!(score.bias.abs() <= 0.5, "{calls:?}: {score:?}");
        assert!(calls.len() == 1 || score.close >= 95.0, "{score:?}");
    }
}

/// The error margin that a model family declares must hold: nearly every family with enough recordings stays within it.
#[test]
fn model_families_stay_within_their_error_margins() {
    let cases = recorded();
    for template in Template::all() {
        let own = |case: &&cases::Case| {
            Template::of(case.service(), &case.recorded.model).name == template.name && !case.is_superseded()
        };
        let pairs: Vec<Pair> = cases.iter().filter(own).map(score::cold).collect();
        if pairs.len() >= 10 {
            let score = Score::of(&pairs);
            assert!(score.covered >= 85.0, "{}: {score:?}", template.name);
        }
    }
}

/// A provider whose responses fail immediately.
#[derive(Debug)]
struct Mute(String);

impl Provider for Mute {
    fn kind(&self) -> &'static str {
        "openai"
    }

    fn service(&self) -> Option<&str> {
        Some(&self.0)
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        Some(ModelInfo::unknown(name))
    }

    fn models(&self) -> Vec<ModelInfo> {
        Vec::new()
    }

    fn call(&self, _: Arc<Prompt>) -> ResponseStream {
        Box::pin(stream::empty())
    }
}

fn role(role: Role) -> pb::Role {
    match role {
        Role::System => pb::Role::System,
        Role::User => pb::Role::User,
        Role::Assistant => pb::Role::Assistant,
        Role::Tool => pb::Role::Tool,
    }
}

fn said(message: &Message) -> pb::InputMessage {
    let parts = message.parts.iter().map(codec::part::to_pb).collect();
    pb::InputMessage { role: role(message.role).into(), parts, ..pb::InputMessage::default() }
}

/// The sizes predicted for a recorded request before any call: by GetContextStats, by CountTokens, and by the step that
/// would send it.
struct Sizes {
    stats: Pair,
    counted: Pair,
    started: Option<i32>,
}

/// A session that would send this request.
fn session(case: &cases::Case, session_id: String) -> pb::Session {
    let cases::Case { recorded, prompt } = case;
    pb::Session {
        session_id,
        model: format!("{}/{}", case.service(), recorded.model),
        system_prompt: prompt.instructions(),
        tools: Some(ToolSet { tools: prompt.tools.clone(), ..ToolSet::default() }.to_field()),
        generation: unless_default::to_field(&prompt.generation),
        ..pb::Session::default()
    }
}

/// The predicted sizes of a request. Returns `None` if the API rejects the request.
async fn sizes(host: &Host, case: &cases::Case) -> Option<Sizes> {
    let cases::Case { recorded, prompt } = case;
    let taken = |status: tonic::Status| {
        assert_eq!(status.code(), Code::InvalidArgument, "{}: {status:?}", recorded.id);
        None::<Sizes>
    };
    let create = |id: &str| {
        let request =
            pb::CreateSessionRequest { session: Some(session(case, id.to_owned())), request_id: String::new() };
        async { host.sessions().create_session(request).await }
    };
    if let Err(status) = create(&recorded.id).await {
        return taken(status);
    }
    let messages: Vec<pb::InputMessage> = prompt.transcript.messages().iter().map(said).collect();
    if let Err(status) = host.sessions().append_messages(append(&recorded.id, messages.clone())).await {
        return taken(status);
    }
    let stats = host.stats(&recorded.id).await;
    let request = pb::CountTokensRequest { session_id: recorded.id.clone(), ..pb::CountTokensRequest::default() };
    let counted = host.contexts().count_tokens(request).await.unwrap().into_inner().total.unwrap();
    let total: i32 = stats.categories.iter().filter(|share| share.in_total).map(|share| share.tokens).sum();
    let pair = |count: &pb::TokenCount| Pair {
        predicted: count.tokens.cast_unsigned(),
        margin: count.margin.cast_unsigned(),
        actual: recorded.input_tokens_actual,
    };
    let used = stats.used.unwrap();
    assert_eq!(total, used.tokens, "{}: the shares add up", recorded.id);
    let started = match messages.split_last() {
        Some((last, before)) if last.role() == pb::Role::User => {
            let id = format!("{}-turn", recorded.id);
            create(&id).await.unwrap();
            if !before.is_empty() {
                host.sessions().append_messages(append(&id, before.to_vec())).await.unwrap();
            }
            let events = host.run(pb::ExecuteTurnRequest { input: Some(last.clone()), ..turn(&id, "", "") }).await;
            events.iter().find_map(|event| match &event.payload {
                Some(Payload::StepStarted(step)) => Some(step.context_tokens.as_ref().unwrap().tokens),
                _ => None,
            })
        }
        _ => None,
    };
    Some(Sizes { stats: pair(&used), counted: pair(&counted), started })
}

/// A host with the models of these cases. Their calls return no response.
async fn mute(cases: &[cases::Case]) -> Host {
    let services: BTreeMap<String, ()> = cases.iter().map(|case| (case.service().to_owned(), ())).collect();
    let mut options = Options { call_attempts: 1, workers: false, ..Options::default() };
    for service in services.into_keys() {
        options = options.provider(&service.clone(), Arc::new(Mute(service)));
    }
    Host::with(options).await
}

/// The size that GetContextStats predicts for a request after the usage of the earlier one was reported. Returns `None`
/// if the API rejects the request, or if a session would send it differently, with another tool choice.
async fn after_report(host: &Host, pair: Continued<'_>) -> Option<u32> {
    let Continued { earlier, later } = pair;
    let (answer, rest) = pair.since().split_at(1);
    let is_same = earlier.prompt.generation == later.prompt.generation;
    if !is_same || answer[0].role != Role::Assistant {
        return None;
    }
    let id = format!("{}-after", later.recorded.id);
    let request = pb::CreateSessionRequest { session: Some(session(earlier, id.clone())), request_id: String::new() };
    host.sessions().create_session(request).await.ok()?;
    let store = async |messages: &[Message]| {
        let messages = messages.iter().map(said).collect();
        host.sessions().append_messages(append(&id, messages)).await
    };
    store(earlier.prompt.transcript.messages()).await.ok()?;
    let request = pb::RenderContextRequest { session_id: id.clone(), ..pb::RenderContextRequest::default() };
    let rendered = host.contexts().render_context(request).await.unwrap();
    let context_version = rendered.into_inner().prompt.unwrap().context_version;
    let wrote = store(answer).await.ok()?.into_inner();
    store(rest).await.ok()?;
    let tokens = |tokens: u32| i32::try_from(tokens).unwrap();
    let request = pb::RecordUsageRequest {
        session_id: id.clone(),
        message_id: wrote.message_ids[0].clone(),
        context_version,
        usage: Some(pb::Usage {
            input_tokens: tokens(earlier.recorded.input_tokens_actual),
            output_tokens: tokens(earlier.recorded.output_tokens.unwrap_or_default()),
            reasoning_tokens: tokens(earlier.recorded.reasoning_tokens.unwrap_or_default()),
            ..pb::Usage::default()
        }),
        ..pb::RecordUsageRequest::default()
    };
    host.contexts().record_usage(request).await.unwrap();
    let stats = host.stats(&id).await;
    Some(stats.used.unwrap().tokens.cast_unsigned())
}

/// Rows P10 and I6
#[tokio::test(flavor = "multi_thread")]
async fn p10_context_stats_after_a_usage_report_are_what_is_predicted_from_it() {
    let cases = recorded();
    let host = &mute(&cases).await;
    let sized = |pair| async move { (pair, after_report(host, pair).await) };
    let sized: Vec<_> = stream::iter(score::continued(&cases)).map(sized).buffered(4).collect().await;
    let mut pairs = Vec::new();
    for (pair, used) in sized {
        let Some(used) = used else { continue };
        let predicted = pair.predict();
        let id = &pair.later.recorded.id;
        assert_eq!(used, predicted.predicted, "{id}");
        pairs.push(predicted);
    }
    let score = Score::of(&pairs);
    assert!(score.count >= 60, "{score:?}");
    assert!(score.median <= 0.5 && score.p90 <= 5.0, "{score:?}");
    assert!(score.close >= 95.0, "{score:?}");
}

/// Rows A11 and I6
#[tokio::test(flavor = "multi_thread")]
async fn context_stats_and_steps_before_the_first_call_are_as_close_as_count_tokens() {
    let cases = recorded();
    let host = &mute(&cases).await;
    let sized = |case| async move { (case, sizes(host, case).await) };
    let measured: Vec<(&cases::Case, Option<Sizes>)> = stream::iter(&cases).map(sized).buffered(4).collect().await;
    let measured: Vec<_> = measured.into_iter().filter_map(|(case, sizes)| Some((case, sizes?))).collect();
    let mut steps = 0;
    for (case, Sizes { stats, counted: _, started }) in &measured {
        steps += started.iter().count();
        let same = started.is_none_or(|started| started.cast_unsigned() == stats.predicted);
        assert!(same, "{}: the step says {started:?}, the statistics {stats:?}", case.recorded.id);
    }
    let with_tools = |tools: bool| {
        let chosen = move |(case, _): &&(&cases::Case, Sizes)| !tools || !case.prompt.tools.is_empty();
        let stats: Vec<Pair> = measured.iter().filter(chosen).map(|(_, sizes)| sizes.stats).collect();
        let counted: Vec<Pair> = measured.iter().filter(chosen).map(|(_, sizes)| sizes.counted).collect();
        (Score::of(&stats), Score::of(&counted))
    };
    for (tools, least) in [(false, 600), (true, 350)] {
        let (stats, counted) = with_tools(tools);
        assert!(stats.count >= least && steps >= 300, "{stats:?}, {steps} steps");
        // Sizes are rounded per part when they are stored, which alone can move the median this much.
        assert!(stats.median <= counted.median * 1.2 + 0.02, "{stats:?}, {counted:?}");
        assert!(stats.p90 <= counted.p90 * 1.2, "{stats:?}, {counted:?}");
        assert!(100.0 - stats.close <= (100.0 - counted.close) * 1.2, "{stats:?}, {counted:?}");
    }
}

/// Checks the score itself with numbers that can be verified by hand.
#[test]
fn accuracy_score_reports_the_actual_error() {
    let pair = |predicted, actual| Pair { predicted, margin: 5, actual };
    let pairs = [pair(100, 100), pair(110, 100), pair(1000, 1250), pair(9, 6)];
    let score = Score::of(&pairs);
    assert_eq!((score.count, score.median, score.largest), (4, 15.0, 50.0));
    assert_eq!((score.bias, score.close, score.covered), (5.0, 50.0, 50.0));
}
