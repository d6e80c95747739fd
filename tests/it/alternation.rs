//! Services with a strict chat template: no two consecutive messages of the same role, instructions only at the
//! beginning, and an assistant message between tool results and the user. The next request conforms to these rules
//! after any history of the session.

use std::sync::Arc;

use contextd::model::DeclaredModel;
use contextd::{
    pb::{self, media::Source, part::Content},
    provider::openai::{
        OpenAi,
        dialect::{DIALECTS, Dialect, MessageOrder},
    },
};
use serde_json::{Value, json};

use crate::harness::{
    Host, Options,
    events::{completed, failed, kind},
    requests::{result, tools, turn},
    transcripts::{calls, one_turn, results, says},
    upstream::{Reply, Upstream, event, finished, said as answer},
};

/// A replica with one service per dialect, named after it. Each has a model `m` that accepts images.
async fn services(dialects: &[&'static Dialect]) -> (Vec<Upstream>, Host) {
    let mut upstreams = Vec::new();
    let mut options = Options::default();
    for dialect in dialects {
        let upstream = Upstream::start().await;
        let declared = DeclaredModel { input_media: Some(vec!["image/*".to_owned()]), ..DeclaredModel::default() };
        let models = [("m".to_owned(), declared)].into();
        let provider = OpenAi::new(dialect.name, upstream.settings(), dialect, models).unwrap();
        options = options.provider(dialect.name, Arc::new(provider));
        upstreams.push(upstream);
    }
    (upstreams, Host::with(options).await)
}

fn roles(messages: &Value) -> Vec<&str> {
    messages.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect()
}

fn calls_look() -> Reply {
    let calls = json!([{"index": 0, "id": "call00001", "function": {"name": "look", "arguments": "{}"}}]);
    Reply::events([event(&json!({"tool_calls": calls})), finished("tool_calls")].concat())
}

fn picture(call: &pb::ToolCall) -> pb::ToolResult {
    let source = Some(Source::Data(b"GIF89a\x40\x01\xf0\x00 a picture".to_vec()));
    let media = pb::Media { media_type: "image/gif".to_owned(), source, ..pb::Media::default() };
    let part = pb::Part { content: Some(Content::Media(media)), ..pb::Part::default() };
    pb::ToolResult { parts: vec![part], ..result(&call.call_id, "") }
}

/// Compacts the given session.
async fn compact(host: &Host, session: &str) {
    let request =
        pb::CompactRequest { session_id: session.into(), request_id: "c".into(), wait: true, ..Default::default() };
    host.contexts().compact(request).await.unwrap();
}

/// Runs a session through all events that affect the order of messages. The upstream fails the test if a request
/// violates the order.
async fn lives_through_everything(dialect: &'static Dialect, upstream: &Upstream, host: &Host) {
    upstream.strict();
    let name = dialect.name;
    let model = format!("{}/m", dialect.name);
    let asks = |words: &str| pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn(name, &model, words) };
    let session = pb::Session { session_id: name.to_owned(), model: model.clone(), ..pb::Session::default() };
    host.create(pb::Session { system_prompt: "Be brief.".to_owned(), ..session }).await;
    host.append(name, vec![says(pb::Role::Assistant, "Welcome."), says(pb::Role::Assistant, "What is it?")]).await;
    for call in ["call10001", "call10002", "call10003", "call10004", "call10005"] {
        host.append(name, one_turn(call, 1_000)).await;
    }
    host.append(name, vec![says(pb::Role::System, "Now in French."), says(pb::Role::User, "Oui?")]).await;
    let said = |words: &str| upstream.answer(Reply::events(answer(&[words])));
    said("Here.");
    completed(&host.run(asks("One.")).await);

    // A failed turn leaves a user message. An empty response leaves nothing.
    upstream.answer(Reply::error(400, "invalid", "No."));
    failed(&host.run(asks("Two.")).await);
    upstream.answer(Reply::events(finished("stop")));
    completed(&host.run(asks("Three.")).await);
    said("Again.");
    completed(&host.run(asks("Four.")).await);

    // A tool result with an image, then tool results after which the turn fails.
    upstream.answer(calls_look());
    said("A picture.");
    completed(&host.run_with(asks("Five."), picture).await);
    upstream.answer(calls_look());
    upstream.answer(Reply::error(400, "invalid", "No."));
    failed(&host.run_with(asks("Six."), |call| result(&call.call_id, "seen")).await);
    said("Seen.");
    completed(&host.run(asks("Seven.")).await);

    // A summary is sent as a user message. The message after it may be one too.
    said("In short: they looked.");
    compact(host, name).await;
    said("Fine.");
    let events = host.run(turn(name, &model, "Eight.")).await;
    completed(&events);
    let requests = upstream.requests();
    let last = &requests.last().unwrap().json["messages"];
    assert_eq!(roles(last)[..2], ["system", "user"], "{name}: {last}");
    assert!(last[1]["content"].to_string().contains("[Previous conversation summary]"), "{last}");
    assert_eq!(requests.len(), 11, "{name}");

    // RenderContext returns what was sent.
    let at_seq = events.iter().find(|event| kind(event) == "step_started").unwrap().seq;
    let format = pb::PromptFormat::Native.into();
    let request = pb::RenderContextRequest { session_id: name.into(), at_seq, format, ..Default::default() };
    let shown = host.contexts().render_context(request).await.unwrap().into_inner().prompt.unwrap();
    assert_eq!(shown.request_json, requests.last().unwrap().body, "{name}");
}

/// Row S11
#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_a_strict_template_takes_every_request_of_a_long_session() {
    let strict: Vec<&Dialect> =
        DIALECTS.iter().filter(|dialect| dialect.message_order == MessageOrder::Strict).collect();
    let (upstreams, host) = services(&strict).await;
    for (dialect, upstream) in strict.into_iter().zip(&upstreams) {
        lives_through_everything(dialect, upstream, &host).await;
    }
}

/// Row S11
#[tokio::test(flavor = "multi_thread")]
async fn a_summary_and_the_next_user_message_are_merged_for_strict_templates() {
    let dialects: Vec<&Dialect> = DIALECTS.iter().collect();
    let (upstreams, host) = services(&dialects).await;
    for (dialect, upstream) in dialects.into_iter().zip(&upstreams) {
        let name = dialect.name;
        let model = format!("{}/m", dialect.name);
        host.create(pb::Session { session_id: name.into(), model: model.clone(), ..pb::Session::default() }).await;
        for call in ["call10001", "call10002", "call10003", "call10004", "call10005"] {
            host.append(name, one_turn(call, 1_000)).await;
        }
        upstream.answer(Reply::events(answer(&["In short: they looked."])));
        compact(&host, name).await;
        upstream.answer(Reply::events(answer(&["Fine."])));
        completed(&host.run(turn(name, &model, "Well?")).await);
        let sent = upstream.requests().last().unwrap().json["messages"].clone();
        let expected: &[&str] = match dialect.message_order {
            MessageOrder::Any => &["user", "user", "assistant"],
            MessageOrder::Joined | MessageOrder::Strict => &["user", "assistant", "tool"],
        };
        assert_eq!(roles(&sent)[..3], *expected, "{name}: {sent}");
    }
}

/// Row S11
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_a_strict_template_adds_are_counted() {
    let dialects: Vec<&Dialect> = DIALECTS.iter().collect();
    let (_upstreams, host) = services(&dialects).await;
    let count = async |dialect: &Dialect, messages: Vec<pb::InputMessage>| {
        let model = format!("{}/m", dialect.name);
        let request = pb::CountTokensRequest { model, messages, ..Default::default() };
        host.contexts().count_tokens(request).await.unwrap().into_inner().total.unwrap().tokens
    };
    let user = |words: &str| says(pb::Role::User, words);
    let looked = || vec![user("Look."), calls(&["call00001"]), results(&["call00001"])];
    for dialect in dialects {
        let name = dialect.name;
        let between = count(dialect, [looked(), vec![user("And?")]].concat()).await;
        let noted = [looked(), vec![says(pb::Role::Assistant, "OK"), user("And?")]].concat();
        let noted = count(dialect, noted).await;
        assert_eq!(between == noted, dialect.message_order == MessageOrder::Strict, "{name}: {between}, {noted}");
        let two = count(dialect, vec![user("One."), user("Two.")]).await;
        let joined = count(dialect, vec![user("One.\n\nTwo.")]).await;
        match dialect.message_order {
            MessageOrder::Any => assert!(two > joined, "{name}: {two}, {joined}"),
            MessageOrder::Joined | MessageOrder::Strict => {
                assert!(two.abs_diff(joined) <= 1, "{name}: {two}, {joined}")
            }
        }
    }
}
