//! Summaries: their input and their prompt; summaries by a model of another provider, the prompt after the compaction,
//! and that a refusal of that provider ends no turn.

use std::sync::{Arc, Mutex};

use contextd::{
    model::{Content, FinishReason, Prompt},
    pb::{self, CompactionState, CompactionStrategy, event::Payload},
    provider::{self, Chunk, Finish, ModelInfo, Provider, ResponseStream},
};
use serde_json::json;

use crate::{
    compaction::{asked, assert_recount, first_words, in_short, listed, options, request, session, try_compact},
    harness::{
        Host,
        events::{all, kinds, until},
        host::MODEL,
        requests::{result, turn},
        transcripts::{message, one_turn, says},
    },
};

/// A model service of another provider. Its summary consists of the short lines of its input, or it refuses.
#[derive(Debug, Default)]
struct Scribe {
    refuses: bool,
    systems: Mutex<Vec<String>>,
}

impl Provider for Scribe {
    fn kind(&self) -> &'static str {
        "scribe"
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        Some(ModelInfo::unknown(name))
    }

    fn models(&self) -> Vec<ModelInfo> {
        Vec::new()
    }

    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
        self.systems.lock().unwrap().push(prompt.instructions());
        if self.refuses {
            let refusal = provider::Error::new(provider::error::Kind::Auth, "other", "The key is not valid.");
            return Box::pin(tokio_stream::iter([Err(refusal)]));
        }
        let words = first_words(&prompt);
        let (_, conversation) = words.split_once("<conversation>\n").unwrap();
        let (conversation, _) = conversation.split_once("\n</conversation>").unwrap();
        let short: Vec<&str> = conversation.lines().filter(|line| line.len() < 200).collect();
        let finish = Finish {
            reason: FinishReason::Stop,
            provider_reason: String::new(),
            usage: None,
            provider_model: String::new(),
            response_id: String::new(),
            metadata: None,
            prompt_usage: None,
            prompt_fingerprint: None,
        };
        Box::pin(tokio_stream::iter([Ok(Chunk::Text(short.join("\n"))), Ok(Chunk::Finished(finish))]))
    }
}

/// The text of a prompt, one line per part.
fn words_of(prompt: &Prompt) -> String {
    let parts = prompt.transcript.messages().iter().flat_map(|message| &message.parts);
    let lines = parts.map(|part| match &part.part.content {
        Content::Text(text) => text.clone(),
        Content::ToolCall(call) => format!("{} {}", call.name, call.arguments),
        Content::ToolResult(result) => result.texts().collect::<Vec<_>>().join("\n"),
        other => panic!("{other:?}"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A tool call, its long result, and the response of the model to it.
fn worked(tool: &str, arguments: &str, outcome: &str, words: &str) -> Vec<pb::InputMessage> {
    let call = pb::ToolCall {
        call_id: format!("call-{tool}"),
        tool_name: tool.to_owned(),
        arguments_json: arguments.to_owned(),
        arguments_blob: None,
    };
    let answer = result(&call.call_id, &format!("{outcome}\n{}", "x".repeat(6_000)));
    let part = |content| pb::Part { content: Some(content), ..pb::Part::default() };
    vec![
        message(pb::Role::Assistant, vec![part(pb::part::Content::ToolCall(call))]),
        message(pb::Role::Tool, vec![part(pb::part::Content::ToolResult(answer))]),
        says(pb::Role::Assistant, words),
    ]
}

/// A session with an older turn that deployed something and two small turns after it, in a window that is too small for
/// all of it. Its summaries are written by a model of another provider.
async fn deployed(scribe: &Arc<Scribe>) -> Host {
    let options = options(&in_short()).provider("other", Arc::clone(scribe) as Arc<dyn Provider>);
    let host = Host::with(options).await;
    let compaction = pb::CompactionPolicy { summary_model: "other/notes".to_owned(), ..Default::default() };
    let policy = pb::Policy {
        compaction: Some(compaction),
        context_window: Some(5_000),
        output_reserve: Some(1_000),
        ..pb::Policy::default()
    };
    host.create(pb::Session {
        session_id: "s".to_owned(),
        model: MODEL.to_owned(),
        system_prompt: "You operate services.".to_owned(),
        policy_overrides: Some(policy),
        ..pb::Session::default()
    })
    .await;
    host.append("s", vec![says(pb::Role::User, "Deploy alpha to staging, then run the smoke tests.")]).await;
    host.append("s", worked("deploy", r#"{"service":"alpha"}"#, "Deployed as build 42.", "Now the smoke tests.")).await;
    host.append("s", worked("smoke", "{}", "1 of 3 failed: /login answers 500.", "Next I roll build 42 back.")).await;
    for call in ["c8", "c9"] {
        host.append("s", one_turn(call, 500)).await;
    }
    host
}

/// Rows S10, S20 and L6
#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_after_a_compaction_has_the_request_the_actions_the_state_and_the_next_step() {
    let scribe = Arc::new(Scribe::default());
    let host = deployed(&scribe).await;
    host.run(turn("s", "", "Go on.")).await;
    let [made] = &listed(&host).await[..] else { panic!("not one compaction") };
    assert_eq!((made.state(), made.was_summarized), (CompactionState::Applied, true));
    assert_eq!(made.summary_model, "other/notes");
    let spent = host.stats("s").await.usage;
    let spent: Vec<_> = spent.iter().map(|it| (it.purpose(), it.model.as_str(), it.usage.unwrap().calls)).collect();
    assert_eq!(spent, [(pb::UsagePurpose::Turn, MODEL, 1), (pb::UsagePurpose::Compaction, "other/notes", 1)]);
    let [system] = &scribe.systems.lock().unwrap()[..] else { panic!("not one summary") };
    for heading in ["## Goal", "## Done", "## State", "## Next"] {
        assert!(system.contains(heading), "{heading}");
    }

    let prompts = host.replica.scripted.prompts();
    let [prompt] = &prompts[..] else { panic!("the session's own provider was asked for the summary") };
    assert_eq!(prompt.instructions(), "You operate services.");
    let words = words_of(prompt);
    let summary = first_words(prompt);
    assert!(summary.starts_with("[Previous conversation summary]\n\n"), "{summary}");
    for (what, said) in [
        ("the request", "Deploy alpha to staging, then run the smoke tests."),
        ("an action", r#"[Called deploy with: {"service":"alpha"}]"#),
        ("its outcome", "Deployed as build 42."),
        ("an action", "[Called smoke with: {}]"),
        ("the state", "1 of 3 failed: /login answers 500."),
        ("the next step", "Next I roll build 42 back."),
    ] {
        assert!(summary.contains(said), "{what} is not in {summary}");
    }
    // Recent messages are kept verbatim: the newest call with its result, and the current task.
    assert_eq!(words.matches(&"x".repeat(2_000)).count(), 1, "{words}");
    assert!(words.ends_with("Seen.\nGo on."), "{words}");
    assert!(words.len() < 6_000, "the long results went: {}", words.len());
}

/// Rows S10 and L6
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_continues_with_recent_messages_if_the_summary_model_refuses() {
    let scribe = Arc::new(Scribe { refuses: true, ..Scribe::default() });
    let host = deployed(&scribe).await;
    let events = host.run(turn("s", "", "Go on.")).await;
    assert_eq!(kinds(&events).last(), Some(&"turn_completed"));
    let [made] = &listed(&host).await[..] else { panic!("not one compaction") };
    assert_eq!((made.state(), made.strategy()), (CompactionState::Applied, CompactionStrategy::MiddleRemoval));
    assert!(!made.was_summarized);
    assert_eq!(scribe.systems.lock().unwrap().len(), 1, "what cannot pass is not asked again");
    let prompts = host.replica.scripted.prompts();
    let [prompt] = &prompts[..] else { panic!("not one call") };
    let words = words_of(prompt);
    assert_eq!(prompt.instructions(), "You operate services.");
    assert!(words.contains(&"x".repeat(2_000)) && words.ends_with("Seen.\nGo on."), "{words}");
    assert_recount(&host, "s").await;
}

/// Rows S9 and S13
#[tokio::test(flavor = "multi_thread")]
async fn a_summary_is_made_of_what_was_said_also_in_part_and_of_calls_whose_results_were_cleared() {
    let cut = json!([{"reasoning": "Secretly."}, {"text": "I was ab"}, {"wait_for": "go"}, {"text": "out"}]);
    let thinks = json!([{"reasoning": "Quietly."}, {"wait_for": "go"}, {"text": "Fine."}]);
    let steps = json!({"steps": [
        {"when": {"user_contains": "Go on"}, "say": cut},
        {"when": {"user_contains": "Think"}, "say": thinks},
    ]});
    let host = Host::with(options(&in_short()).script("it", steps.to_string())).await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[1_000]).await;
    for (words, shown) in [("Go on.", "I was ab"), ("Think.", "Quietly.")] {
        let mut stream = host.execute(turn("s", "", words)).await;
        until(&mut stream, |payload| match payload {
            Payload::TextDelta(delta) => delta.text == shown,
            Payload::ReasoningDelta(delta) => delta.text == shown,
            _ => false,
        })
        .await;
        host.cancel("s", "").await;
        all(&mut stream).await;
    }
    let prune = pb::PruneToolOutputsRequest {
        session_id: "s".to_owned(),
        minimum_tokens: Some(0),
        protect_tokens: Some(0),
        protect_turns: Some(0),
        ..Default::default()
    };
    host.contexts().prune_tool_outputs(prune).await.unwrap();
    for call in ["c7", "c8"] {
        host.append("s", one_turn(call, 300)).await;
    }
    try_compact(&host, request("1")).await.unwrap();
    let asked = asked(&host);
    let (_, conversation) = asked[0].split_once("<conversation>\n").unwrap();
    let (conversation, _) = conversation.split_once("\n</conversation>").unwrap();
    assert_eq!(
        conversation.split("\n\n").collect::<Vec<_>>(),
        [
            "User:\nLook.",
            "Assistant:\n[Called look with: {}]",
            "[look result: (cleared)]",
            "Assistant:\nSeen.",
            "User:\nGo on.",
            "Assistant:\nI was ab",
            "User:\nThink.",
        ]
    );
}

/// Row S8
#[tokio::test(flavor = "multi_thread")]
async fn a_summary_is_asked_for_by_what_it_must_hold_or_in_the_words_that_take_its_place() {
    let host = Host::with(options(&in_short())).await;
    let brief = pb::CompactionPolicy { summary_max_tokens: Some(300), ..Default::default() };
    session(&host, 100_000, brief, &[1_000; 4]).await;
    try_compact(&host, request("1")).await.unwrap();
    host.append("s", one_turn("c9", 900)).await;
    let other = pb::CompactRequest {
        instructions: "In verse.".to_owned(),
        instructions_mode: pb::InstructionsMode::Replace.into(),
        ..request("2")
    };
    try_compact(&host, other).await.unwrap();
    let prompts = host.replica.scripted.prompts();
    let bound = "\n\nUse at most 300 tokens.";
    for section in ["Goal", "Done", "State", "Decisions", "Details", "Next"] {
        let heading = format!("\n## {section}\n");
        assert!(prompts[0].instructions().contains(&heading), "{section}");
    }
    assert!(prompts[0].instructions().ends_with(bound));
    assert_eq!(prompts[1].instructions(), format!("In verse.{bound}"));
    assert!(prompts.iter().all(|prompt| prompt.max_output_tokens == Some(300)));
}
