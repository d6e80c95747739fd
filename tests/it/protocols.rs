//! The same conversation over every protocol: a turn of several steps with reasoning, parallel calls, an image of the
//! user and one of a tool, a retry, a prompt that is too long, a cancel during a response, a compaction, and another
//! model in between. Every request is checked against what the real API of its protocol refuses.

mod rules;
pub(crate) mod speaks;

use contextd::pb::{self, CompletionReason, media::Source, part::Content, tool_choice::Choice};
use serde_json::{Value, json};

use crate::harness::{
    Host, Options,
    events::{all, completed, kind, kinds, message_text, messages, until_written},
    requests::{input, text, tools, turn},
    transcripts::says,
    upstream::Upstream,
};
use speaks::{Protocol, Says};

pub(crate) const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\x40\0\0\0\xf0\x08\x02\0\0\0 a picture";

pub(crate) fn picture() -> pb::Part {
    pb::Part {
        content: Some(Content::Media(pb::Media {
            media_type: "image/png".to_owned(),
            source: Some(Source::Data(PICTURE.to_vec())),
            ..pb::Media::default()
        })),
        ..pb::Part::default()
    }
}

/// The result of a tool: text that is worth clearing, or an image.
pub(crate) fn gives(call: &pb::ToolCall) -> pb::ToolResult {
    let parts = match call.tool_name.as_str() {
        "list" => vec![text("As shown:"), picture()],
        _ => vec![text(&"x".repeat(8_000))],
    };
    pb::ToolResult { call_id: call.call_id.clone(), parts, ..pb::ToolResult::default() }
}

/// A turn in a session with this model.
fn asks(model: &str, words: &str, parts: Vec<pb::Part>) -> pb::ExecuteTurnRequest {
    let mut request = turn("s", model, words);
    let input = request.input.get_or_insert_default();
    input.parts.extend(parts);
    pb::ExecuteTurnRequest {
        session: Some(pb::Session {
            system_prompt: "Be brief.".to_owned(),
            tools: tools(&["look", "list"]),
            generation: Some(pb::Generation {
                reasoning_effort: pb::ReasoningEffort::Low.into(),
                ..pb::Generation::default()
            }),
            ..pb::Session::default()
        }),
        ..request
    }
}

/// A service for each protocol, and a host that calls all of them.
pub(crate) async fn served() -> (Vec<(Protocol, Upstream)>, Host) {
    let mut options = Options { call_attempts: 2, ..Options::default() };
    let mut services = Vec::new();
    for protocol in Protocol::ALL {
        let upstream = Upstream::start().await;
        options = options.provider(protocol.name(), protocol.provider(&upstream));
        services.push((protocol, upstream));
    }
    (services, Host::with(options).await)
}

/// The number of reasoning items in a request.
fn thoughts(protocol: Protocol, body: &Value) -> usize {
    let body = body.to_string();
    protocol.thought().map_or(0, |mark| body.matches(mark).count())
}

/// Rows D5, D20 and D27
#[tokio::test(flavor = "multi_thread")]
async fn a_whole_conversation_is_the_same_over_every_protocol() {
    let (services, host) = served().await;
    for (protocol, upstream) in &services {
        let session = protocol.name();
        let asks = |words: &str, parts| pb::ExecuteTurnRequest {
            session_id: session.to_owned(),
            ..asks(&protocol.model(), words, parts)
        };

        let first = Says::thinking("Both at once.").text("I look.");
        let first = first.call("c1", "look", &json!({"at": "a"}));
        upstream.answer(protocol.answer(first.call("c2", "list", &json!({}))));
        upstream.answer(protocol.limited());
        let second = Says::thinking("Once more.").call("c3", "look", &json!({"at": "b"}));
        upstream.answer(protocol.answer(second));
        upstream.answer(protocol.answer(Says::thinking("").text("All done.")));
        let seen = host.run_with(asks("What is this?", vec![picture()]), gives).await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{session}");
        assert!(kinds(&seen).contains(&"turn_retrying"), "{session}");
        assert_eq!(message_text(messages(&seen).last().unwrap()), "All done.", "{session}");
        let sent = upstream.requests();
        assert_eq!(sent.len(), 4, "{session}");
        assert_eq!(sent[1].json, sent[2].json, "a retry sends the same: {session}");
        let seen_thoughts: Vec<usize> = sent.iter().map(|request| thoughts(*protocol, &request.json)).collect();
        if protocol.thought().is_some() {
            assert_eq!(seen_thoughts, [0, 1, 1, 2], "{session}");
        }
        assert_eq!(protocol.pictures(&sent[3].json), 2, "the user's and the tool's: {session}");

        upstream.answer(protocol.too_long());
        upstream.answer(protocol.answer(Says::default().text("Shorter now.")));
        let seen = host.run(asks("And this?", Vec::new())).await;
        assert!(kinds(&seen).contains(&"context_pruned"), "{session}");
        assert_eq!(message_text(messages(&seen).last().unwrap()), "Shorter now.", "{session}");

        upstream.answer(protocol.begun("So far"));
        let mut stream = host.execute(asks("Go on.", Vec::new())).await;
        until_written(&mut stream, "So far").await;
        host.cancel(session, "").await;
        upstream.left(1).await;
        let seen = all(&mut stream).await;
        assert_eq!(kind(seen.last().unwrap()), "turn_cancelled", "{session}");

        upstream.answer(protocol.answer(Says::default().text("They looked twice.")));
        let mut contexts = host.contexts();
        let compacted = contexts.compact(pb::CompactRequest {
            session_id: session.to_owned(),
            request_id: format!("compact-{session}"),
            wait: true,
            ..pb::CompactRequest::default()
        });
        let compacted = compacted.await.unwrap().into_inner();
        let state = compacted.compaction.unwrap().state();
        assert_eq!(state, pb::CompactionState::Applied, "{session}");
        upstream.answer(protocol.answer(Says::thinking("After all.").text("Yes.")));
        let seen = host.run(asks("Still there?", Vec::new())).await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{session}");
        host.assert_counted(session).await;
    }
}

/// Rows D27 and A1
#[tokio::test(flavor = "multi_thread")]
async fn a_session_changes_between_all_protocols_and_back() {
    let (services, host) = served().await;
    for (from, first) in &services {
        for (to, second) in services.iter().filter(|(to, _)| to != from) {
            let session = format!("{}-{}", from.name(), to.name());
            let asks = |protocol: &Protocol, words: &str| pb::ExecuteTurnRequest {
                session_id: session.clone(),
                ..asks(&protocol.model(), words, vec![picture()])
            };
            let answers = |protocol: &Protocol, upstream: &Upstream| {
                let calls =
                    Says::thinking("Let me look.").call("c1", "look", &json!({})).call("c2", "list", &json!({}));
                upstream.answer(protocol.answer(calls));
                upstream.answer(protocol.answer(Says::thinking("Now I know.").text("So it is.")));
            };
            for (protocol, upstream) in [(from, first), (to, second), (from, first)] {
                answers(protocol, upstream);
                let seen = host.run_with(asks(protocol, "What is this?"), gives).await;
                assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{session}");
            }
            let newest = first.requests().pop().expect("a request").json;
            if from.thought().is_some() {
                assert_eq!(
                    thoughts(*from, &newest),
                    from.thoughts_after_a_switch(),
                    "its own thoughts, and no other's: {session}"
                );
            }
            assert_eq!(host.messages(&session).await.len(), 12, "{session}");
        }
    }
}

/// Row D27
#[tokio::test(flavor = "multi_thread")]
async fn every_tool_name_that_is_accepted_can_be_sent_over_every_protocol() {
    let longest = "x".repeat(64);
    let names = ["3d", "-x", "_3d", "_", "look", &longest];
    let (services, host) = served().await;
    for (protocol, upstream) in &services {
        for (number, name) in names.iter().enumerate() {
            let session = format!("{}-{number}", protocol.name());
            let gemini = *protocol == Protocol::Gemini;
            let on_the_wire = match *name {
                "3d" | "-x" | "_3d" if gemini => format!("_{name}"),
                name => name.to_owned(),
            };
            let calls = Says::default().call("c1", &on_the_wire, &json!({}));
            upstream.answer(protocol.answer(calls));
            upstream.answer(protocol.answer(Says::default().text("Done.")));
            let asks = pb::ExecuteTurnRequest {
                session_id: session.clone(),
                tools: tools(&names),
                generation: (*protocol != Protocol::Anthropic).then(|| forces(name)),
                ..turn("s", &protocol.model(), "Call it.")
            };
            let seen = host.run_with(asks, gives).await;
            assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{session}: {name}");
            let called: Vec<_> = messages(&seen)
                .iter()
                .flat_map(|message| &message.parts)
                .filter_map(|part| match &part.content {
                    Some(Content::ToolCall(call)) => Some(call.tool_name.clone()),
                    _ => None,
                })
                .collect();
            assert_eq!(called, [*name], "{session}");
        }
    }
}

/// Row S15
#[tokio::test(flavor = "multi_thread")]
async fn render_context_shows_the_bytes_that_each_protocol_sends() {
    let (services, host) = served().await;
    for (protocol, upstream) in &services {
        let session = protocol.name();
        let calls = Says::thinking("Both at once.").text("I look.");
        let calls = calls.call("c1", "look", &json!({"at": "a"}));
        upstream.answer(protocol.answer(calls.call("c2", "list", &json!({}))));
        upstream.answer(protocol.answer(Says::thinking("").text("Done.")));
        let first = pb::ExecuteTurnRequest {
            session_id: session.to_owned(),
            ..asks(&protocol.model(), "What is this?", vec![picture()])
        };
        host.run_with(first, gives).await;
        host.append(session, vec![says(pb::Role::User, "And now?")]).await;
        let mut shown = Vec::new();
        for format in [pb::PromptFormat::Native, protocol.format()] {
            let request = pb::RenderContextRequest {
                session_id: session.to_owned(),
                model: protocol.model(),
                format: format.into(),
                ..pb::RenderContextRequest::default()
            };
            let rendered = host.contexts().render_context(request).await.unwrap();
            shown.push(rendered.into_inner().prompt.unwrap().request_json);
        }
        upstream.answer(protocol.answer(Says::default().text("The same.")));
        let go_on = pb::ExecuteTurnRequest {
            input: None,
            session: None,
            continue_transcript: true,
            ..turn(session, &protocol.model(), "")
        };
        host.run(go_on).await;
        let sent = upstream.requests().pop().expect("a request").body;
        assert_eq!(shown, [sent.clone(), sent], "{session}");
    }
}

/// Settings that force a call of this tool.
fn forces(tool: &str) -> pb::Generation {
    pb::Generation {
        tool_choice: Some(pb::ToolChoice { choice: Some(Choice::ToolName(tool.to_owned())) }),
        ..pb::Generation::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_a_model_that_is_another_path_is_refused_before_any_request() {
    let (services, host) = served().await;
    for (protocol, upstream) in &services {
        for name in ["g/../admin/keys?x=", "..", "a#b", "a%2f..", "a\nb"] {
            let model = format!("{}/{name}", protocol.name());
            let session = protocol.name();
            let refused = host.turns().execute_turn(turn(session, &model, "Hello")).await.map(drop).unwrap_err();
            assert!(
                matches!(refused.code(), tonic::Code::NotFound | tonic::Code::InvalidArgument),
                "{model}: {refused:?}"
            );
            let count = pb::CountTokensRequest {
                messages: vec![input("Hello")],
                model: model.clone(),
                exact: true,
                ..pb::CountTokensRequest::default()
            };
            let refused = host.contexts().count_tokens(count).await.unwrap_err();
            assert!(
                matches!(refused.code(), tonic::Code::NotFound | tonic::Code::InvalidArgument),
                "{model}: {refused:?}"
            );
        }
        assert!(upstream.requests().is_empty(), "{}", protocol.name());
    }
}
