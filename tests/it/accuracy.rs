//! Predictions against what providers reported for recorded requests: the goals, whatever the
//! prices in the table.

#[path = "../../examples/accuracy/cases.rs"]
mod cases;
#[path = "../../examples/accuracy/score.rs"]
mod score;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use contextd::{
    codec,
    context::template::Template,
    model::{Message, Prompt, Role, ToolSet},
    pb::{self, event::Payload},
    provider::{Answer, ModelInfo, Provider},
};
use futures_util::{StreamExt as _, stream};
use score::{Pair, Score};
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

#[test]
fn prompts_after_a_usage_report_are_predicted_more_closely() {
    let cases = recorded();
    let pairs: Vec<Pair> = score::anchored(&cases)
        .into_iter()
        .map(|(_, pair)| pair)
        .collect();
    let score = Score::of(&pairs);
    assert!(score.count >= 80, "{score:?}");
    assert!(score.median <= 0.5 && score.p90 <= 5.0, "{score:?}");
    assert!(score.bias.abs() <= 0.5, "{score:?}");
}

/// What a family says of its own accuracy must not be wishful: nearly every family with enough
/// recordings keeps its margin.
#[test]
fn model_families_stay_within_their_error_margins() {
    let cases = recorded();
    for template in Template::all() {
        let own = |case: &&cases::Case| {
            Template::of(case.service(), &case.recorded.model).name == template.name
                && !case.is_superseded()
        };
        let pairs: Vec<Pair> = cases.iter().filter(own).map(score::cold).collect();
        if pairs.len() >= 10 {
            let score = Score::of(&pairs);
            assert!(score.covered >= 85.0, "{}: {score:?}", template.name);
        }
    }
}

/// A service whose answers break off at once.
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

    fn call(&self, _: Arc<Prompt>) -> Answer {
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
    pb::InputMessage {
        role: role(message.role).into(),
        parts,
        ..pb::InputMessage::default()
    }
}

/// What is said of a recorded request before any call: by GetContextStats, by CountTokens, and by
/// the step that would send it.
struct Sizes {
    stats: Pair,
    counted: Pair,
    started: Option<i32>,
}

/// The sizes of a request; none: the API does not take it.
async fn sizes(host: &Host, case: &cases::Case) -> Option<Sizes> {
    let cases::Case { recorded, prompt } = case;
    let made = |session_id: String| pb::Session {
        session_id,
        model: format!("{}/{}", case.service(), recorded.model),
        system_prompt: prompt.instructions(),
        tools: Some(codec::tools::to_pb(&ToolSet {
            tools: prompt.tools.clone(),
            ..ToolSet::default()
        })),
        generation: codec::generation::to_stored(&prompt.generation),
        ..pb::Session::default()
    };
    let taken = |status: tonic::Status| {
        assert_eq!(
            status.code(),
            Code::InvalidArgument,
            "{}: {status:?}",
            recorded.id
        );
        None::<Sizes>
    };
    let create = |id: &str| {
        let request = pb::CreateSessionRequest {
            session: Some(made(id.to_owned())),
            request_id: String::new(),
        };
        async { host.sessions().create_session(request).await }
    };
    if let Err(status) = create(&recorded.id).await {
        return taken(status);
    }
    let messages: Vec<pb::InputMessage> = prompt.transcript.messages().iter().map(said).collect();
    if let Err(status) = host
        .sessions()
        .append_messages(append(&recorded.id, messages.clone()))
        .await
    {
        return taken(status);
    }
    let stats = host.stats(&recorded.id).await;
    let request = pb::CountTokensRequest {
        session_id: recorded.id.clone(),
        ..pb::CountTokensRequest::default()
    };
    let counted = host
        .contexts()
        .count_tokens(request)
        .await
        .unwrap()
        .into_inner()
        .total
        .unwrap();
    let total: i32 = stats
        .categories
        .iter()
        .filter(|share| share.in_total)
        .map(|share| share.tokens)
        .sum();
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
                host.sessions()
                    .append_messages(append(&id, before.to_vec()))
                    .await
                    .unwrap();
            }
            let events = host
                .run(pb::ExecuteTurnRequest {
                    input: Some(last.clone()),
                    ..turn(&id, "", "")
                })
                .await;
            events.iter().find_map(|event| match &event.payload {
                Some(Payload::StepStarted(step)) => {
                    Some(step.context_tokens.as_ref().unwrap().tokens)
                }
                _ => None,
            })
        }
        _ => None,
    };
    Some(Sizes {
        stats: pair(&used),
        counted: pair(&counted),
        started,
    })
}

/// Rows A11 and I6
#[tokio::test(flavor = "multi_thread")]
async fn context_stats_and_steps_before_the_first_call_are_as_close_as_count_tokens() {
    let cases = recorded();
    let services: BTreeMap<String, ()> = cases
        .iter()
        .map(|case| (case.service().to_owned(), ()))
        .collect();
    let mut options = Options {
        call_attempts: 1,
        workers: false,
        ..Options::default()
    };
    for service in services.into_keys() {
        options = options.provider(&service.clone(), Arc::new(Mute(service)));
    }
    let host = Host::with(options).await;
    let host = &host;
    let sized = |case| async move { (case, sizes(host, case).await) };
    let measured: Vec<(&cases::Case, Option<Sizes>)> =
        stream::iter(&cases).map(sized).buffered(4).collect().await;
    let measured: Vec<_> = measured
        .into_iter()
        .filter_map(|(case, sizes)| Some((case, sizes?)))
        .collect();
    let mut steps = 0;
    for (
        case,
        Sizes {
            stats,
            counted: _,
            started,
        },
    ) in &measured
    {
        steps += started.iter().count();
        let same = started.is_none_or(|started| started.cast_unsigned() == stats.predicted);
        assert!(
            same,
            "{}: the step says {started:?}, the statistics {stats:?}",
            case.recorded.id
        );
    }
    let with_tools = |tools: bool| {
        let chosen =
            move |(case, _): &&(&cases::Case, Sizes)| !tools || !case.prompt.tools.is_empty();
        let stats: Vec<Pair> = measured
            .iter()
            .filter(chosen)
            .map(|(_, sizes)| sizes.stats)
            .collect();
        let counted: Vec<Pair> = measured
            .iter()
            .filter(chosen)
            .map(|(_, sizes)| sizes.counted)
            .collect();
        (Score::of(&stats), Score::of(&counted))
    };
    for (tools, least) in [(false, 600), (true, 350)] {
        let (stats, counted) = with_tools(tools);
        assert!(
            stats.count >= least && steps >= 300,
            "{stats:?}, {steps} steps"
        );
        // Each part is rounded by itself where it is stored: a median of none may be that.
        assert!(
            stats.median <= counted.median * 1.2 + 0.02,
            "{stats:?}, {counted:?}"
        );
        assert!(stats.p90 <= counted.p90 * 1.2, "{stats:?}, {counted:?}");
        assert!(
            100.0 - stats.close <= (100.0 - counted.close) * 1.2,
            "{stats:?}, {counted:?}"
        );
    }
}

/// The score itself, on numbers that can be checked by hand.
#[test]
fn accuracy_score_reports_the_actual_error() {
    let pair = |predicted, actual| Pair {
        predicted,
        margin: 5,
        actual,
    };
    let pairs = [pair(100, 100), pair(110, 100), pair(1000, 1250), pair(9, 6)];
    let score = Score::of(&pairs);
    assert_eq!((score.count, score.median, score.largest), (4, 15.0, 50.0));
    assert_eq!((score.bias, score.close, score.covered), (5.0, 50.0, 50.0));
}
