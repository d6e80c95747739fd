//! RenderContext: the next prompt as it will be sent, and notes about what it does not contain.

use contextd::pb::{self, PromptFormat, PromptNoteKind, part};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::harness::{
    Host,
    errors::refusal,
    events::until_action,
    host::{MODEL, answering, script},
    requests::{result, tool, tools, turn},
    transcripts::{append, calls, ids, message, one_turn, says},
    upstream::{Reply, Upstream, event, finished, said as answer},
};

const MAIN: &str = "main/gpt-4o";

fn of(session: &str, format: PromptFormat) -> pb::RenderContextRequest {
    pb::RenderContextRequest { session_id: session.to_owned(), format: format.into(), ..Default::default() }
}

async fn try_render(host: &Host, request: pb::RenderContextRequest) -> Result<pb::Prompt, Status> {
    Ok(host.contexts().render_context(request).await?.into_inner().prompt.unwrap())
}

async fn render(host: &Host, request: pb::RenderContextRequest) -> pb::Prompt {
    try_render(host, request).await.unwrap()
}

/// A session with everything that a prompt can contain.
fn rich() -> pb::Session {
    let notes = pb::PinnedBlock { name: "notes".to_owned(), text: "Likes tea.".to_owned(), ..Default::default() };
    let later = pb::Tool { deferred: true, ..tool("later") };
    let host_tools = vec![tool("look"), tool("write"), later];
    pb::Session {
        session_id: "s".to_owned(),
        model: MAIN.to_owned(),
        system_prompt: "Be brief.".to_owned(),
        pinned_blocks: vec![notes],
        tools: Some(pb::ToolSet { host_tools, ..pb::ToolSet::default() }),
        generation: Some(pb::Generation { temperature: Some(0.5), ..Default::default() }),
        limits: Some(pb::TurnLimits { max_output_tokens: 99, ..Default::default() }),
        ..pb::Session::default()
    }
}

fn thinks() -> pb::InputMessage {
    let reasoning = pb::Reasoning { text: "They want to know.".to_owned(), redacted: false };
    let thought = pb::Part { content: Some(part::Content::Reasoning(reasoning)), ..Default::default() };
    let mut asks = calls(&["c1", "c2"]);
    asks.parts.insert(0, thought);
    asks
}

fn conversation() -> Vec<pb::InputMessage> {
    let results = ["c1", "c2"].map(|call| pb::Part {
        content: Some(part::Content::ToolResult(result(call, "a \"cat\"\n"))),
        ..Default::default()
    });
    let seen = message(pb::Role::Tool, results.to_vec());
    vec![says(pb::Role::User, "What is there?"), thinks(), seen]
}

fn go_on() -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { input: None, session: None, continue_transcript: true, ..turn("s", MAIN, "") }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shown_request_is_byte_for_byte_what_the_service_gets_next() {
    for dialect in ["openai", "compatible", "deepseek", "openrouter", "mistral", "llamacpp"] {
        let upstream = Upstream::start().await;
        let host = Host::with(upstream.options(dialect)).await;
        host.create(rich()).await;
        host.append("s", conversation()).await;
        let native = render(&host, of("s", PromptFormat::Native)).await;
        let chat = render(&host, of("s", PromptFormat::OpenaiChat)).await;
        assert_eq!(native, chat, "{dialect}");
        upstream.answer(Reply::events(answer(&["A cat."])));
        host.run(go_on()).await;
        assert_eq!(upstream.requests()[0].body, native.request_json, "{dialect}");
        assert_eq!(native.model, MAIN);
        let shown: Value = serde_json::from_str(&native.request_json).unwrap();
        let names: Vec<&str> =
            shown["tools"].as_array().unwrap().iter().filter_map(|it| it["function"]["name"].as_str()).collect();
        assert_eq!(names, ["look", "write"], "{dialect}: deferred tools are left out");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn render_context_during_a_turn_shows_its_next_request() {
    let upstream = Upstream::start().await;
    let host = Host::with(upstream.options("openai")).await;
    host.create(rich()).await;
    let call = json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "dig", "arguments": "{}"}}]});
    let mut asks = event(&call);
    asks.extend(finished("tool_calls"));
    upstream.answer(Reply::events(asks));
    upstream.answer(Reply::events(answer(&["Gold."])).after("go"));
    let limits = Some(pb::TurnLimits { max_output_tokens: 55, ..Default::default() });
    let request = pb::ExecuteTurnRequest { tools: tools(&["dig"]), limits, session: None, ..turn("s", MAIN, "Dig.") };
    let mut stream = host.execute(request).await;
    until_action(&mut stream).await;
    let open = refusal(&try_render(&host, of("s", PromptFormat::Native)).await.unwrap_err());
    assert_eq!((open.code, open.reason.as_str()), (Code::FailedPrecondition, "TRANSCRIPT_OPEN"));
    assert_eq!(open.metadata["call_ids"], host.pending("s").await.join(","));
    let pending = host.pending("s").await;
    host.submit("s", vec![result(&pending[0], "a nugget")]).await;
    upstream.asked(2).await;
    let shown = render(&host, of("s", PromptFormat::Native)).await;
    assert_eq!(upstream.requests()[1].body, shown.request_json);
    let shown: Value = serde_json::from_str(&shown.request_json).unwrap();
    assert_eq!(shown["max_completion_tokens"], 55);
    upstream.release("go");
    host.at_rest().await;
}

/// Row D4
#[tokio::test(flavor = "multi_thread")]
async fn render_context_notes_pruned_and_cut_parts_and_changes_nothing() {
    let upstream = Upstream::start().await;
    let host = Host::with(upstream.options("openai")).await;
    let limits = pb::ToolOutputLimits { max_output_chars: 100, ..Default::default() };
    let cuts = pb::Tool { output_limits: Some(limits), ..tool("look") };
    let tools = Some(pb::ToolSet { host_tools: vec![cuts], ..pb::ToolSet::default() });
    host.create(pb::Session { tools, ..rich() }).await;
    let mut said = one_turn("old", 300);
    said.extend([says(pb::Role::User, "Again."), thinks()]);
    let results = ["c1", "c2"].map(|call| pb::Part {
        content: Some(part::Content::ToolResult(result(call, if call == "c1" { "short" } else { "" }))),
        ..Default::default()
    });
    said.push(message(pb::Role::Tool, results.to_vec()));
    said.extend(one_turn("new", 200));
    let wrote = host.append("s", said).await;
    let prune = pb::PruneToolOutputsRequest {
        session_id: "s".to_owned(),
        minimum_tokens: Some(0),
        protect_tokens: Some(60),
        protect_turns: Some(0),
        ..Default::default()
    };
    let cleared = host.contexts().prune_tool_outputs(prune).await.unwrap().into_inner().report.unwrap();
    assert_eq!(cleared.call_ids, ["old"]);
    let before = host.database.row_counts().await;
    let prompt = render(&host, of("s", PromptFormat::Native)).await;
    let noted: Vec<(PromptNoteKind, &str, i32)> =
        prompt.notes.iter().map(|note| (note.kind(), note.message_id.as_str(), note.part_index)).collect();
    let id = |n: usize| wrote.message_ids[n].as_str();
    assert_eq!(
        noted,
        [
            (PromptNoteKind::Pruned, id(2), 0),
            (PromptNoteKind::Truncated, id(9), 0),
            (PromptNoteKind::Dropped, id(5), 0),
        ]
    );
    assert_eq!(prompt.notes[0].text, "The result of look had 32 tokens and was cleared.");
    assert!(prompt.notes.iter().all(|note| note.text.ends_with('.')), "{:?}", prompt.notes);
    let neutral = render(&host, of("s", PromptFormat::Neutral)).await;
    assert_eq!(neutral.notes, prompt.notes[..2], "neutral messages keep their reasoning");
    assert_eq!(host.database.row_counts().await, before);
    assert!(upstream.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_neutral_prompt_is_the_live_view_with_its_size_and_version() {
    let host = Host::with(answering(&[json!([{"text": "Fine."}])])).await;
    host.create(pb::Session { model: MODEL.to_owned(), ..rich() }).await;
    let wrote = host.append("s", conversation()).await;
    let prompt = render(&host, of("s", PromptFormat::Unspecified)).await;
    assert_eq!(prompt.system_prompt, "Be brief.\n\n# notes\nLikes tea.");
    assert_eq!(prompt.messages, host.messages("s").await);
    assert_eq!(ids(&prompt.messages), wrote.message_ids);
    let names: Vec<String> = prompt.tools.as_ref().unwrap().host_tools.iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(names, ["look", "write"]);
    assert_eq!(prompt.tokens, host.stats("s").await.used);
    assert_eq!(prompt.context_version, host.stats("s").await.context_version);
    let then = pb::AppendMessagesRequest {
        context_version: prompt.context_version,
        ..append("s", vec![says(pb::Role::Assistant, "A cat.")])
    };
    host.try_append(then).await.unwrap();
    assert_eq!(render(&host, of("s", PromptFormat::Native)).await.messages.len(), 4, "a script reads it as it is");
    let chat = render(&host, of("s", PromptFormat::OpenaiChat)).await;
    let chat: Value = serde_json::from_str(&chat.request_json).unwrap();
    assert_eq!((&chat["model"], chat["messages"].as_array().unwrap().len()), (&json!("it"), 6));
}

/// Row I5
#[tokio::test(flavor = "multi_thread")]
async fn render_context_as_of_a_seq_shows_the_next_prompt_at_that_time() {
    let upstream = Upstream::start().await;
    let host = Host::with(upstream.options("openai").script("it", script(&[json!([{"text": "Fine."}])]))).await;
    host.create(rich()).await;
    host.append("s", one_turn("c1", 300)).await;
    let first = render(&host, of("s", PromptFormat::Native)).await;
    let at_seq = host.session("s").await.last_seq;
    let update = pb::UpdateSessionRequest {
        session: Some(pb::Session {
            session_id: "s".to_owned(),
            system_prompt: "Be kind.".to_owned(),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["system_prompt".to_owned()] }),
        ..Default::default()
    };
    host.sessions().update_session(update).await.unwrap();
    let prune = pb::PruneToolOutputsRequest {
        session_id: "s".to_owned(),
        minimum_tokens: Some(0),
        protect_tokens: Some(0),
        protect_turns: Some(0),
        ..Default::default()
    };
    host.contexts().prune_tool_outputs(prune).await.unwrap();
    host.append("s", vec![says(pb::Role::User, "And now?")]).await;
    let now = render(&host, of("s", PromptFormat::Native)).await;
    assert_ne!(now.request_json, first.request_json);
    let back = render(&host, pb::RenderContextRequest { at_seq, ..of("s", PromptFormat::Native) }).await;
    assert_eq!((back.request_json.as_str(), back.context_version), (first.request_json.as_str(), 0));
    assert_eq!(back.notes, first.notes);
    let inside = pb::RenderContextRequest { at_seq: 2, ..of("s", PromptFormat::Native) };
    assert_eq!(refusal(&try_render(&host, inside).await.unwrap_err()).reason, "TRANSCRIPT_OPEN");
    let ahead = pb::RenderContextRequest { at_seq: 99, ..of("s", PromptFormat::Native) };
    assert_eq!(refusal(&try_render(&host, ahead).await.unwrap_err()).reason, "CURSOR_AHEAD");
    let other = pb::RenderContextRequest { model: MODEL.to_owned(), ..of("s", PromptFormat::Neutral) };
    assert_eq!(render(&host, other).await.model, MODEL);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rendered_prompt_too_large_for_a_response_is_a_blob() {
    let upstream = Upstream::start().await;
    let host = Host::with(upstream.options("openai")).await;
    host.create(rich()).await;
    for _ in 0..3 {
        host.append("s", vec![says(pb::Role::User, &"x".repeat(1_000_000))]).await;
    }
    for format in [PromptFormat::Native, PromptFormat::Neutral] {
        let prompt = render(&host, of("s", format)).await;
        assert!(prompt.messages.is_empty() && prompt.request_json.is_empty());
        let blob = prompt.request_blob.unwrap();
        assert_eq!(blob.media_type, "application/json");
        let get = pb::GetBlobRequest { blob_id: blob.blob_id, ..Default::default() };
        let (_, whole) = host.replica.blob(get).await;
        assert_eq!(i64::try_from(whole.len()).unwrap(), blob.size_bytes);
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        match format {
            PromptFormat::Native => assert_eq!(whole["messages"].as_array().unwrap().len(), 4),
            _ => assert_eq!(
                (&whole["systemPrompt"], whole["messages"].as_array().unwrap().len()),
                (&json!("Be brief.\n\n# notes\nLikes tea."), 3)
            ),
        }
    }
}
