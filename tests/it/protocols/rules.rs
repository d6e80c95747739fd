//! Checks every dialect and family of models against the latest refusals of its service (`tests/fixtures/rules`): a
//! conversation with tools, reasoning, an earlier model, an image, settings that some models do not support, and a
//! forced call.

use std::{collections::BTreeMap, sync::Arc};

use contextd::{
    model::service_rules::{ReasoningBack, ReasoningField},
    pb::{self, ReasoningEffort, part::Content, tool_choice::Choice},
    provider::{
        Provider,
        anthropic::Anthropic,
        gemini::Gemini,
        openai::dialect::{DIALECTS, Dialect},
        responses::{Responses, dialect as of_responses},
    },
};
use serde_json::{Value, json};

use super::{
    picture,
    speaks::{Protocol, Says},
};
use crate::harness::{
    Host, Options,
    requests::{result, tools, turn},
    upstream::{Reply, Upstream, event, finished},
    validate::Api,
};

/// A service, the format of its responses, and its models. Each of the other models continues a session that had a turn
/// with the first one.
struct Played {
    name: String,
    provider: Arc<dyn Provider>,
    upstream: Upstream,
    speaks: Speaks,
    models: &'static [&'static str],
}

/// The format of the responses of a service.
enum Speaks {
    /// Chat Completions, with the reasoning format of the dialect.
    Chat(&'static Dialect),
    /// Any other protocol.
    Other(Protocol),
}

impl Speaks {
    fn answer(&self, thought: &str, text: &str, calls: &[&str]) -> Reply {
        let input = json!({"at": "a"});
        match self {
            Self::Chat(dialect) => chat(dialect, thought, text, calls),
            Self::Other(protocol) => {
                let mut says = if thought.is_empty() { Says::default() } else { Says::thinking(thought) };
                if !text.is_empty() {
                    says = says.text(text);
                }
                for id in calls {
                    says = says.call(id, "look", &input);
                }
                protocol.answer(says)
            }
        }
    }
}

/// A response of Chat Completions.
fn chat(dialect: &Dialect, thought: &str, text: &str, calls: &[&str]) -> Reply {
    let thinking = match (dialect.reasoning_back, dialect.reasoning_field) {
        (ReasoningBack::Details, _) => json!({"reasoning_details": [{
            "type": "reasoning.text", "text": thought, "signature": "ours", "index": 0,
        }]}),
        (ReasoningBack::InLoop | ReasoningBack::WhileCalls, ReasoningField::Reasoning) => json!({"reasoning": thought}),
        (_, _) => json!({"reasoning_content": thought}),
    };
    let mut deltas = Vec::new();
    if !thought.is_empty() {
        deltas.push(thinking);
    }
    if !text.is_empty() {
        deltas.push(json!({"content": text}));
    }
    for (index, id) in calls.iter().enumerate() {
        let function = json!({"name": "look", "arguments": r#"{"at":"a"}"#});
        let call = json!({"index": index, "id": id, "type": "function", "function": function});
        deltas.push(json!({"tool_calls": [call]}));
    }
    let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    let mut body: Vec<u8> = deltas.iter().flat_map(event).collect();
    body.extend(finished(reason));
    Reply::events(body)
}

/// The models of the service with this dialect of Chat Completions.
fn chat_models(dialect: &str) -> &'static [&'static str] {
    match dialect {
        "openai" => &["gpt-4o", "o3", "gpt-5", "gpt-5.6"],
        "openrouter" => &["openai/gpt-4o", "anthropic/claude-opus-4.7", "openai/gpt-5.6"],
        "deepseek" => &["deepseek-chat", "deepseek-reasoner", "deepseek-v4-pro"],
        "groq" => &["llama-3.3-70b-versatile", "openai/gpt-oss-120b", "qwen/qwen3-32b"],
        "xai" => &[
            "grok-4.20-non-reasoning",
            "grok-4.20-reasoning",
            "grok-build-0.1",
            "grok-4-fast-reasoning",
            "grok-4.3",
            "grok-4.6",
        ],
        "mistral" => &["mistral-large-latest", "magistral-medium-latest"],
        "moonshot" => &["moonshot-v1-8k", "kimi-k2.5", "kimi-k2.6", "kimi-k2.7-code", "kimi-k3"],
        "zai" => &["glm-4.5-air", "glm-4.7", "glm-5"],
        "perplexity" => &["sonar", "sonar-reasoning-pro"],
        _ => &["m", "gpt-oss-120b"],
    }
}

/// The models of the service with this dialect of the Responses API.
fn responses_models(dialect: &str) -> &'static [&'static str] {
    match dialect {
        "xai" => &["grok-4-fast-reasoning", "grok-4.3", "grok-4.6"],
        "deepseek" => &["deepseek-chat", "deepseek-v4-pro"],
        "llamacpp" | "lmstudio" | "compatible" => &["m", "gpt-oss-120b"],
        "openrouter" => &["openai/gpt-4.1", "openai/gpt-5.6"],
        _ => &["gpt-4.1", "o3", "gpt-5", "gpt-5.6"],
    }
}

async fn services() -> Vec<Played> {
    let mut services = Vec::new();
    for dialect in DIALECTS {
        let upstream = Upstream::start().await;
        upstream.plays(dialect.name);
        let name = format!("chat-{}", dialect.name);
        services.push(Played {
            provider: Arc::new(upstream.provider(&name, dialect.name)),
            speaks: Speaks::Chat(dialect),
            models: chat_models(dialect.name),
            name,
            upstream,
        });
    }
    for dialect in of_responses::DIALECTS {
        let upstream = Upstream::start().await;
        let name = format!("responses-{}", dialect.name);
        let settings = upstream.settings_for(Api::Responses);
        let provider = Responses::new(&name, settings, dialect, BTreeMap::new()).unwrap();
        services.push(Played {
            provider: Arc::new(provider),
            speaks: Speaks::Other(Protocol::Responses),
            models: responses_models(dialect.name),
            name,
            upstream,
        });
    }
    let upstream = Upstream::start().await;
    let settings = upstream.settings_for(Api::Anthropic);
    services.push(Played {
        name: "anthropic".to_owned(),
        provider: Arc::new(Anthropic::new("anthropic", settings, BTreeMap::new()).unwrap()),
        speaks: Speaks::Other(Protocol::Anthropic),
        models: &[
            "claude-haiku-4-5",
            "claude-sonnet-4-5",
            "claude-opus-4-5",
            "claude-opus-4-6",
            "claude-sonnet-4-6",
            "claude-opus-4-7",
            "claude-opus-4-8",
            "claude-sonnet-5",
            "claude-opus-5",
            "claude-haiku-5-5",
            "claude-sonnet-5-5",
            "claude-opus-5-5",
            "claude-fable-5-2",
            "claude-mythos-5-2",
        ],
        upstream,
    });
    let upstream = Upstream::start().await;
    let settings = upstream.settings_for(Api::Gemini);
    services.push(Played {
        name: "gemini".to_owned(),
        provider: Arc::new(Gemini::new("gemini", settings, BTreeMap::new()).unwrap()),
        speaks: Speaks::Other(Protocol::Gemini),
        models: &[
            "gemini-2.0-flash",
            "gemini-2.5-flash",
            "gemini-2.5-pro",
            "gemini-3-pro-preview",
            "gemini-3-flash",
            "gemini-3.7-flash",
        ],
        upstream,
    });
    services
}

impl Played {
    /// The turns of a session with the planned responses of the service.
    fn turns(&self, model: &str) -> Vec<(pb::ExecuteTurnRequest, Vec<Reply>)> {
        let of = |model: &str, words: &str, effort: ReasoningEffort| {
            let mut request = turn(model, &format!("{}/{model}", self.name), words);
            request.session_id = format!("{}-{}", self.name, model.replace('/', "-"));
            request.tools = tools(&["look"]);
            request.generation = Some(pb::Generation { reasoning_effort: effort.into(), ..pb::Generation::default() });
            request
        };
        let answer = |thought: &str, text: &str, calls: &[&str]| self.speaks.answer(thought, text, calls);
        let session = of(model, "", ReasoningEffort::High).session_id;
        let mut before = of(self.models[0], "Look.", ReasoningEffort::Unspecified);
        before.session_id.clone_from(&session);
        let mut shown = of(model, "And this?", ReasoningEffort::Medium);
        shown.input.get_or_insert_default().parts.push(picture());
        let mut forced = of(model, "Look again.", ReasoningEffort::Max);
        let generation = forced.generation.get_or_insert_default();
        generation.tool_choice =
            Some(pb::ToolChoice { choice: Some(Choice::Mode(pb::ToolChoiceMode::Required.into())) });
        generation.stop_sequences = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        generation.temperature = Some(0.5);
        generation.top_p = Some(0.5);
        let mut bare = of(model, "Thanks!", ReasoningEffort::Minimal);
        bare.tools = tools(&[]);
        let mut off = of(model, "Bye.", ReasoningEffort::None);
        off.generation.get_or_insert_default().stop_sequences = vec!["a".to_owned()];
        vec![
            (before, vec![answer("", "", &["c0"]), answer("", "Seen.", &[])]),
            (
                of(model, "Look twice.", ReasoningEffort::High),
                vec![
                    answer("Both.", "I look.", &["c1", "c2"]),
                    answer("Once more.", "", &["c3"]),
                    answer("", "Done.", &[]),
                ],
            ),
            (shown, vec![answer("Hm.", "A picture.", &[])]),
            (forced, vec![answer("", "", &["c4"]), answer("", "Again.", &[])]),
            (bare, vec![answer("", "Welcome.", &[])]),
            (off, vec![answer("", "Bye.", &[])]),
        ]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_dialect_and_family_of_models_is_sent_what_its_service_takes_today() {
    let services = services().await;
    let options =
        services.iter().fold(Options::default(), |options, it| options.provider(&it.name, Arc::clone(&it.provider)));
    let host = Host::with(options).await;
    let mut refused: Vec<String> = Vec::new();
    for service in &services {
        service.upstream.expect_refusals();
        for model in service.models {
            for (request, answers) in service.turns(model) {
                let words = format!("{} {model}: {}", service.name, asked(&request));
                let planned = answers.len();
                for answer in answers {
                    service.upstream.answer(answer);
                }
                let before = service.upstream.count();
                host.run_with(request, |call| result(&call.call_id, "found")).await;
                let sent = service.upstream.count() - before;
                let all = service.upstream.refused();
                let new = all.iter().filter(|it| !refused.contains(it));
                let new: Vec<String> = new.cloned().collect();
                if !new.is_empty() || sent != planned {
                    // The rest of the conversation would no longer match the plan.
                    refused.extend(new);
                    refused.push(format!("{words}: {sent} requests of {planned}"));
                    service.upstream.plans_nothing();
                    break;
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", summary(&refused));
}

/// The text of the input.
fn asked(request: &pb::ExecuteTurnRequest) -> String {
    let parts = request.input.iter().flat_map(|input| &input.parts);
    let texts = parts.filter_map(|part| match &part.content {
        Some(Content::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// One line per refusal, with the beginning of its request.
fn summary(refused: &[String]) -> String {
    let line = |refused: &String| refused.chars().take(700).collect::<String>();
    refused.iter().map(line).collect::<Vec<_>>().join("\n\n")
}

#[test]
fn the_conversation_is_one_that_some_services_refuse() {
    let body = |thought: Value| {
        json!({"model": "kimi-k2.6", "messages": [{"role": "user", "content": "?"}, {
            "role": "assistant", "reasoning_content": thought, "tool_calls": [{
                "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"},
            }],
        }, {"role": "tool", "tool_call_id": "c1", "content": "red"}]})
    };
    let refusal = |thought| Api::Chat.refusal("moonshot", "", &body(thought), "");
    assert!(refusal(json!("Hm.")).is_none());
    assert!(refusal(Value::Null).is_some());
}
