//! Images and files: stored once, sent to the model at their place in the conversation, and replaced by text for a
//! model that does not support them.

use std::sync::Arc;

use contextd::model::DeclaredModel;
use contextd::{
    model::{TenantId, config::ContextPolicy, derive},
    pb::{self, PromptFormat, PromptNoteKind, event::Payload, media::Source, part::Content},
    provider::{openai::OpenAi, openai::dialect},
};
use serde_json::{Value, json};

use crate::harness::{
    Host, Options, as_worker,
    errors::refusal,
    events::{kinds, message_text, messages, requested, until, until_action, until_written},
    host::{MODEL, call, until as eventually},
    requests::{enqueue, result, text, tools, turn},
    transcripts::{append, calls, check_counters, fork, message},
    upstream::{Reply, Upstream, finished, said as answer},
};

/// The beginning of a GIF image of 320 x 240 pixels.
const PICTURE: &[u8] = b"GIF89a\x40\x01\xf0\x00 a picture";
/// [`PICTURE`] in the format that is sent to a service.
const PICTURE_URL: &str = "data:image/gif;base64,R0lGODlhQAHwACBhIHBpY3R1cmU=";
/// The text that a model receives in place of unsupported content.
const UNSUPPORTED: &str = "[unsupported content]";

fn medium(media_type: &str, source: Source) -> pb::Part {
    let media = pb::Media {
        media_type: media_type.to_owned(),
        source: Some(source),
        filename: "look".to_owned(),
        ..pb::Media::default()
    };
    pb::Part { content: Some(Content::Media(media)), ..pb::Part::default() }
}

fn picture() -> pb::Part {
    medium("image/gif", Source::Data(PICTURE.to_vec()))
}

/// An image that differs from those with other names.
fn picture_of(name: &str) -> pb::Part {
    medium("image/gif", Source::Data([PICTURE, name.as_bytes()].concat()))
}

fn media(part: &pb::Part) -> &pb::Media {
    match &part.content {
        Some(Content::Media(media)) => media,
        other => panic!("not a medium: {other:?}"),
    }
}

fn blob(part: &pb::Part) -> String {
    match &media(part).source {
        Some(Source::BlobId(id)) => id.clone(),
        other => panic!("not a blob: {other:?}"),
    }
}

fn asks(session: &str, model: &str, parts: Vec<pb::Part>) -> pb::ExecuteTurnRequest {
    let mut request = turn(session, model, "");
    request.input = Some(pb::InputMessage { parts, ..pb::InputMessage::default() });
    request
}

/// A model of a service that accepts images and records its requests.
fn seeing(upstream: &Upstream, dialect: &str) -> Options {
    let takes = vec!["image/*".to_owned(), "application/pdf".to_owned()];
    let declared = DeclaredModel { input_media: Some(takes), ..DeclaredModel::default() };
    let models = [("gpt-4o".to_owned(), declared)].into();
    let provider = OpenAi::new("main", upstream.settings(), dialect::named(dialect).unwrap(), models).unwrap();
    Options::default().provider("main", Arc::new(provider))
}

fn reply(words: &str) -> Reply {
    Reply::events([answer(&[words]), finished("stop")].concat())
}

/// Scripts that echo their input: one model that accepts images, and one that accepts only text.
fn echoing() -> Options {
    let steps = json!([{"say": [{"echo_prompt": true}]}]);
    let sees = json!({"input_media_types": ["image/*"], "steps": steps});
    Options::default().script("sees", sees.to_string()).script("blind", json!({"steps": steps}).to_string())
}

/// The last user message that an echoing model received.
fn told(events: &[pb::Event]) -> Value {
    let said = messages(events).into_iter().rfind(|message| message.role() == pb::Role::Assistant).map(message_text);
    let prompt: Value = serde_json::from_str(&said.expect("an answer")).unwrap();
    let messages = prompt["messages"].as_array().unwrap();
    messages.iter().rfind(|message| message["role"] == "user").unwrap()["parts"].clone()
}

fn left_out(events: &[pb::Event]) -> Vec<&pb::UnsupportedInput> {
    let payloads = events.iter().filter_map(|event| event.payload.as_ref());
    payloads
        .filter_map(|payload| match payload {
            Payload::UnsupportedInput(left_out) => Some(left_out),
            _ => None,
        })
        .collect()
}

/// A commit that does not write references to stored content.
fn without_references(commit: &str) -> String {
    commit.replace("if 'media' = any", "if false and 'media' = any")
}

async fn count(host: &Host, table: &str) -> i64 {
    let client = host.database.client().await;
    client.query_one(&format!("select count(*) from {table}"), &[]).await.unwrap().get(0)
}

/// Row D5
#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_stored_once_and_sent_with_every_prompt() {
    let upstream = Upstream::start().await;
    let sees = json!({"input_media_types": ["image/*"], "steps": [{"say": [{"text": "Yes."}]}]});
    let host = Host::with(seeing(&upstream, "openai").script("sees", sees.to_string())).await;
    for words in ["A cat.", "Yes.", "The same."] {
        upstream.answer(reply(words));
    }
    let events = host.run(asks("s", "main/gpt-4o", vec![text("What is this?"), picture()])).await;
    let said = messages(&events)[0];
    assert_eq!(said.parts[0].content, text("What is this?").content);
    let shown = media(&said.parts[1]);
    assert_eq!((shown.size_bytes, shown.width, shown.height, shown.filename.as_str()), (20, 320, 240, "look"));
    assert_eq!(said.parts[1].tokens.as_ref().unwrap().tokens, 258);
    let id = blob(&said.parts[1]);
    let request = pb::GetBlobRequest { blob_id: id.clone(), ..pb::GetBlobRequest::default() };
    assert_eq!(host.replica.blob(request).await.1, PICTURE);

    host.run(turn("s", "main/gpt-4o", "Sure?")).await;
    let again = medium("image/gif", Source::BlobId(id.clone()));
    let other = host.run(asks("t", "main/gpt-4o", vec![again, picture()])).await;
    assert_eq!(messages(&other)[0].parts.iter().map(blob).collect::<Vec<_>>(), [id.clone(), id]);
    assert_eq!((count(&host, "blobs").await, count(&host, "part_blobs").await), (1, 3));

    let sent: Vec<Value> = upstream.requests().iter().map(|request| request.json["messages"].clone()).collect();
    let image = json!({"type": "image_url", "image_url": {"url": PICTURE_URL}});
    let first = json!({"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]});
    assert_eq!(sent[0], json!([first]));
    assert_eq!(sent[1][0], first);
    assert_eq!(sent[2], json!([{"role": "user", "content": [image, image]}]));
    let of_model = pb::GetContextStatsRequest {
        session_id: "s".to_owned(),
        model: "scripted/sees".to_owned(),
        ..Default::default()
    };
    let stats = host.contexts().get_context_stats(of_model).await.unwrap().into_inner().stats.unwrap();
    let of_media = stats.categories.iter().find(|it| it.category() == pb::ContextCategory::Media).unwrap();
    assert!(of_media.count == 1 && (200..300).contains(&of_media.tokens), "{of_media:?}");
    check_counters(&host.database.client().await, "s").await;
}

/// Rows D4 and D5
#[tokio::test(flavor = "multi_thread")]
async fn unsupported_media_are_sent_as_text_and_reported_once() {
    let host = Host::with(echoing()).await;
    let events = host.run(asks("s", "scripted/blind", vec![text("This:"), picture(), text("What is it?")])).await;
    assert_eq!(told(&events), json!([{"text": "This:"}, {"text": UNSUPPORTED}, {"text": "What is it?"}]));
    let input = messages(&events)[0];
    let expected = pb::UnsupportedInput {
        message_id: input.message_id.clone(),
        part_index: 1,
        field: String::new(),
        provider: "scripted".to_owned(),
        model: "scripted/blind".to_owned(),
        media_type: "image/gif".to_owned(),
        filename: "look".to_owned(),
        errors: vec!["The model is not known to accept image/gif.".to_owned()],
        replacement: UNSUPPORTED.to_owned(),
    };
    assert_eq!(left_out(&events), [&expected]);
    assert_eq!(left_out(&host.run(turn("s", "scripted/blind", "Well?")).await), [] as [&pb::UnsupportedInput; 0]);
    let url = medium("image/gif", Source::Url("https://example.org/cat.gif".to_owned()));
    let seen =
        host.run(asks("s", "scripted/sees", vec![picture(), url, medium("video/mp4", Source::Data(vec![1]))])).await;
    let shown = told(&seen);
    assert_eq!((&shown[0]["media"]["bytes"], &shown[0]["media"]["media_type"]), (&json!(20), &json!("image/gif")));
    assert_eq!(shown[1]["media"]["url"], "https://example.org/cat.gif");
    assert_eq!(shown[2], json!({"text": UNSUPPORTED}));
    let parts: Vec<i32> = left_out(&seen).iter().map(|left_out| left_out.part_index).collect();
    assert_eq!(parts, [2], "the picture of the first turn is taken now");
    let back = host.run(turn("s", "scripted/blind", "And now?")).await;
    assert_eq!(left_out(&back).len(), 3, "it saw the first picture before, and not the three of the last turn");
}

/// Rows D4 and S1
#[tokio::test(flavor = "multi_thread")]
async fn unsupported_media_fill_the_window_as_their_placeholder_text() {
    let steps = json!([
        {"when": {"user_contains": "wait"}, "say": [{"text": "Well, "}, {"wait_for": "go"}, {"text": "done."}]},
        {"when": {"otherwise": true}, "say": [{"text": "Fine."}]}
    ]);
    let small = json!({"context_window": 8_192, "max_output": 1_000, "steps": steps});
    let options = Options::default().script("it", small.to_string());
    let host = Host::with(Options { context: ContextPolicy::default(), ..options }).await;
    let shows = |words: &str| vec![text(words), medium("application/pdf", Source::Data(vec![b'x'; 600_000]))];
    let events = host.run(asks("s", MODEL, shows("Read this."))).await;
    assert_eq!(kinds(&events).last(), Some(&"turn_completed"), "{events:?}");

    let mut stream = host.execute(turn("s", MODEL, "Please wait.")).await;
    let head = until_written(&mut stream, "Well, ").await;
    let message = Some(pb::InputMessage { parts: shows("And this."), ..pb::InputMessage::default() });
    host.enqueue(pb::EnqueueMessageRequest { message, ..enqueue("s", "") }).await;
    host.release("go");
    let tail = crate::harness::events::all(&mut stream).await;
    assert_eq!(kinds(&tail).last(), Some(&"turn_completed"));
    let taken = messages(&tail).into_iter().rfind(|message| message.role() == pb::Role::User).unwrap();
    assert_eq!((taken.parts.len(), media(&taken.parts[1]).size_bytes), (2, 600_000));
    let sizes = events.iter().chain(&head).chain(&tail).filter_map(|event| match &event.payload {
        Some(Payload::StepStarted(it)) => it.context_tokens.as_ref().map(|it| it.tokens),
        _ => None,
    });
    let sizes: Vec<i32> = sizes.collect();
    assert!(sizes.len() == 3 && sizes.iter().all(|size| (10..200).contains(size)), "{sizes:?}");
    assert!((10..200).contains(&host.stats("s").await.used.unwrap().tokens));

    host.create(pb::Session { session_id: "own".to_owned(), model: MODEL.to_owned(), ..Default::default() }).await;
    let appended = host.append("own", vec![self::message(pb::Role::User, shows("Read this too."))]).await;
    let prepare = pb::PrepareContextRequest { session_id: "own".to_owned(), ..Default::default() };
    let size = host.contexts().prepare_context(prepare).await.unwrap().into_inner().prompt.unwrap().tokens.unwrap();
    assert!((10..50).contains(&size.tokens), "{size:?}");
    let stats = host.stats("own").await;
    assert_eq!((&appended.context_tokens, &stats.used), (&Some(size.clone()), &Some(size.clone())));
    let of_media = stats.categories.iter().find(|it| it.category() == pb::ContextCategory::Media).unwrap();
    assert!((1..size.tokens).contains(&of_media.tokens), "{of_media:?}");
    check_counters(&host.database.client().await, "s").await;
}

/// Row D4
#[tokio::test(flavor = "multi_thread")]
async fn a_rendered_prompt_notes_each_replaced_medium() {
    let host = Host::with(echoing()).await;
    let session =
        |model: &str| pb::Session { session_id: "s".to_owned(), model: model.to_owned(), ..Default::default() };
    host.create(session("scripted/blind")).await;
    let shown = pb::ToolResult { parts: vec![text("a cat"), picture()], ..result("c1", "") };
    let given = pb::Part { content: Some(Content::ToolResult(shown)), ..pb::Part::default() };
    let said = vec![message(pb::Role::User, vec![text("Look."), picture()]), calls(&["c1"])];
    let wrote = host.append("s", [said, vec![message(pb::Role::Tool, vec![given])]].concat()).await.message_ids;
    let shown = async |model: &str, format: PromptFormat| {
        let session_id = "s".to_owned();
        let model = model.to_owned();
        let request = pb::RenderContextRequest { session_id, model, format: format.into(), at_seq: 0 };
        host.contexts().render_context(request).await.unwrap().into_inner().prompt.unwrap()
    };
    let noted = |prompt: &pb::Prompt| -> Vec<(PromptNoteKind, String, i32, String)> {
        let note = |note: &pb::PromptNote| (note.kind(), note.message_id.clone(), note.part_index, note.text.clone());
        prompt.notes.iter().map(note).collect()
    };
    let why = "look (image/gif) is not sent. The model is not known to accept image/gif.".to_owned();
    let each = [(&wrote[0], 1), (&wrote[2], 0)];
    let expected = each.map(|(id, part)| (PromptNoteKind::Unsupported, id.clone(), part, why.clone()));
    for format in [PromptFormat::Neutral, PromptFormat::Native, PromptFormat::OpenaiChat] {
        assert_eq!(noted(&shown("", format).await), expected, "{format:?}");
    }
    host.run(turn("s", "scripted/blind", "Well?")).await;
    assert_eq!(noted(&shown("", PromptFormat::Neutral).await), expected, "each time, not only the first");
    assert_eq!(noted(&shown("scripted/sees", PromptFormat::OpenaiChat).await).len(), 0, "it takes them");

    host.database.client().await.execute("delete from blob_chunks", &[]).await.unwrap();
    let neutral = shown("scripted/sees", PromptFormat::Neutral).await;
    assert_eq!(noted(&neutral), [], "it refers to content, and none is read for it");
    assert_eq!(media(&neutral.messages[0].parts[1]).size_bytes, 20);
    let lost = shown("scripted/sees", PromptFormat::OpenaiChat).await;
    assert_eq!(noted(&lost)[0].3, "look (image/gif) is not sent. Its content is lost.");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_blob_can_be_referenced() {
    let host = Host::with(echoing()).await;
    let id = derive::blob(b"");
    host.replica.engine.store().put_blob(&TenantId::new("default"), &id, "image/gif", b"").await.unwrap();
    let named = medium("image/gif", Source::BlobId(id.to_string()));
    let events = host.run(asks("s", "scripted/blind", vec![text("This:"), named])).await;
    assert_eq!(media(&messages(&events)[0].parts[1]).size_bytes, 0);
    assert_eq!(told(&events), json!([{"text": "This:"}, {"text": UNSUPPORTED}]));
}

/// Rows D4 and D5: Chat Completions has no media in results.
#[tokio::test(flavor = "multi_thread")]
async fn media_of_results_are_sent_in_a_following_user_message() {
    for (dialect, between) in [("openai", None), ("mistral", Some(json!({"role": "assistant", "content": "OK"})))] {
        let upstream = Upstream::start().await;
        let host = Host::with(seeing(&upstream, dialect)).await;
        let call = json!({"index": 0, "id": "c12345678", "function": {"name": "look", "arguments": "{}"}});
        let asked = crate::harness::upstream::event(&json!({"tool_calls": [call]}));
        upstream.answer(Reply::events([asked, finished("tool_calls")].concat()));
        upstream.answer(reply("A cat."));
        let mut request = asks("s", "main/gpt-4o", vec![text("Look.")]);
        request.tools = tools(&["look"]);
        let mut stream = host.execute(request).await;
        let open = requested(&until_action(&mut stream).await.0);
        let given = pb::ToolResult { parts: vec![text("before"), picture(), text("after")], ..result(&open[0], "") };
        host.submit("s", vec![given]).await;
        let events = until(&mut stream, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
        assert_eq!(left_out(&events), [] as [&pb::UnsupportedInput; 0]);

        let listed = host.messages("s").await;
        let Some(Content::ToolResult(stored)) = &listed[2].parts[0].content else { panic!("no result") };
        assert_eq!((&stored.parts[0], &stored.parts[2]), (&text("before"), &text("after")));
        assert_eq!(media(&stored.parts[1]).width, 320);
        assert_eq!(count(&host, "part_blobs").await, 1);
        let mut expected = vec![
            json!("before\n[look (image/gif): shown after the results]\nafter"),
            json!([
                {"type": "text", "text": "[From the result of look: look (image/gif)]"},
                {"type": "image_url", "image_url": {"url": PICTURE_URL}}
            ]),
        ];
        if let Some(between) = between {
            expected.insert(1, between["content"].clone());
        }
        let sent = upstream.requests()[1].json["messages"].clone();
        let contents: Vec<Value> = sent.as_array().unwrap()[2..].iter().map(|it| it["content"].clone()).collect();
        assert_eq!(contents, expected, "{dialect}");
        check_counters(&host.database.client().await, "s").await;
    }
}

/// Row D8
#[tokio::test(flavor = "multi_thread")]
async fn queued_media_are_stored_as_blobs_and_applied_in_place() {
    let script = json!({"input_media_types": ["image/*"], "steps": [
        {"when": {"user_contains": "wait"}, "say": [{"text": "Well, "}, {"wait_for": "go"}, {"text": "done."}]},
        {"when": {"user_shows": "image/gif"}, "say": [{"echo_prompt": true}]},
        {"when": {"otherwise": true}, "say": [{"text": "I see nothing."}]}
    ]});
    let host = Host::with(Options::default().script("it", script.to_string())).await;
    let mut stream = host.execute(turn("s", MODEL, "Please wait.")).await;
    until_written(&mut stream, "Well, ").await;
    let shows = |parts: Vec<pb::Part>| {
        let message = Some(pb::InputMessage { parts, ..pb::InputMessage::default() });
        pb::EnqueueMessageRequest { message, ..enqueue("s", "") }
    };
    for parts in [vec![text("One"), picture_of("one")], vec![picture_of("two"), picture_of("three")]] {
        let queued = host.enqueue(shows(parts)).await.queued_message.unwrap();
        assert!(queued.message.unwrap().parts.iter().any(|part| matches!(&part.content, Some(Content::Media(_)))));
    }
    let waiting: Vec<String> = host
        .queued("s")
        .await
        .iter()
        .flat_map(|queued| &queued.message.as_ref().unwrap().parts)
        .filter(|part| matches!(&part.content, Some(Content::Media(_))))
        .map(blob)
        .collect();
    assert_eq!(waiting.len(), 3);
    assert_eq!(count(&host, "part_blobs").await, 3, "content is kept for what waits");
    host.release("go");
    let events = crate::harness::events::all(&mut stream).await;
    let taken = messages(&events).into_iter().rfind(|message| message.role() == pb::Role::User).unwrap();
    let words: Vec<String> = taken
        .parts
        .iter()
        .map(|part| match &part.content {
            Some(Content::Text(text)) => text.clone(),
            _ => blob(part),
        })
        .collect();
    assert_eq!(words, ["First: ", "One", &waiting[0], "\n\n", "Also: ", &waiting[1], &waiting[2]]);
    let shown = told(&events);
    let bytes: Vec<i64> = shown.as_array().unwrap().iter().filter_map(|part| part["media"]["bytes"].as_i64()).collect();
    assert_eq!(bytes, [23, 23, 25], "the model got the content");
    check_counters(&host.database.client().await, "s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn appended_media_are_sent_counted_and_forked_like_others() {
    let host = Host::with(echoing()).await;
    host.create(pb::Session { session_id: "s".to_owned(), ..pb::Session::default() }).await;
    let shown = pb::ToolResult { parts: vec![picture(), text("a cat"), picture()], ..result("c1", "") };
    let given = pb::Part { content: Some(Content::ToolResult(shown)), ..pb::Part::default() };
    let conversation = vec![
        message(pb::Role::User, vec![text("Look."), picture_of("user")]),
        calls(&["c1"]),
        message(pb::Role::Tool, vec![given]),
        message(pb::Role::Assistant, vec![text("I drew this."), picture_of("assistant")]),
    ];
    host.try_append(append("s", conversation)).await.unwrap();
    host.try_fork(fork("s", 0, "branch")).await.unwrap();
    let client = host.database.client().await;
    for session in ["s", "branch"] {
        let listed = host.messages(session).await;
        assert_eq!(media(&listed[0].parts[1]).size_bytes, 24);
        let Some(Content::ToolResult(given)) = &listed[2].parts[0].content else { panic!("no result") };
        assert_eq!((given.parts[1].clone(), blob(&given.parts[0])), (text("a cat"), blob(&given.parts[2])));
        check_counters(&client, session).await;
        let kept =
            client.query_one("select count(*) from part_blobs where session_id = $1", &[&session]).await.unwrap();
        assert_eq!(kept.get::<_, i64>(0), 3, "one for each part that refers to it");
    }
    let events = host.run(turn("branch", "scripted/sees", "And?")).await;
    assert_eq!(told(&events), json!([{"text": "And?"}]));
    assert_eq!(left_out(&events), [] as [&pb::UnsupportedInput; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_has_the_newest_media_up_to_its_byte_limit() {
    let mut options = echoing();
    options.blobs.max_prompt_bytes = 50;
    let host = Host::with(options).await;
    let all = vec![picture_of("a"), picture_of("b"), picture_of("c")];
    let events = host.run(asks("s", "scripted/sees", all)).await;
    let shown = told(&events);
    let bytes: Vec<Option<i64>> =
        shown.as_array().unwrap().iter().map(|part| part["media"]["bytes"].as_i64()).collect();
    assert_eq!(bytes, [None, Some(21), Some(21)]);
    assert_eq!(left_out(&events)[0].errors, ["With it, the media in the prompt would exceed their maximum size."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_is_kept_while_referenced_and_one_day_longer() {
    let host = Host::with(echoing()).await;
    let events = host.run(asks("s", "scripted/sees", vec![picture()])).await;
    let used = blob(&messages(&events)[0].parts[0]);
    let missing = turn("nobody", "scripted/none", "");
    host.try_execute(pb::ExecuteTurnRequest { input: asks("", "", vec![picture_of("lost")]).input, ..missing })
        .await
        .unwrap_err();
    assert_eq!(count(&host, "blobs").await, 2, "content is stored before anything refers to it");
    let client = host.database.client().await;
    let age = async |hours: i32| {
        let sql = "update blobs set touched_at = now() - make_interval(hours => $1)";
        client.execute(sql, &[&hours]).await.unwrap();
    };
    let engine = &host.replica.engine;
    age(25).await;
    as_worker(engine.sessions.sweep_blobs()).await.unwrap();
    assert_eq!(count(&host, "blobs").await, 2, "too young");
    age(27).await;
    as_worker(engine.sessions.sweep_blobs()).await.unwrap();
    let left = client.query_one("select array_agg(distinct blob_id::text) from blob_chunks", &[]).await.unwrap();
    assert_eq!(left.get::<_, Vec<String>>(0), [used.as_str()]);

    age(27).await;
    let again = medium("image/gif", Source::BlobId(used));
    host.run(asks("t", "scripted/sees", vec![again])).await;
    for session in ["s", "t"] {
        let delete = pb::DeleteSessionRequest { session_id: session.to_owned(), ..pb::DeleteSessionRequest::default() };
        host.sessions().delete_session(delete).await.unwrap();
    }
    client.execute("update session_run set version = version + 1, lease_until = '-infinity'", &[]).await.unwrap();
    eventually("the rows are gone", async || {
        as_worker(engine.sessions.purge()).await.unwrap();
        count(&host, "part_blobs").await == 0
    })
    .await;
    as_worker(engine.sessions.sweep_blobs()).await.unwrap();
    assert_eq!(count(&host, "blobs").await, 1, "it was named again an hour ago at most");
    age(27).await;
    as_worker(engine.sessions.sweep_blobs()).await.unwrap();
    assert_eq!((count(&host, "blobs").await, count(&host, "blob_chunks").await), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_repeated_after_a_takeover_includes_its_media() {
    let script = json!({"input_media_types": ["image/*"], "steps": [
        {"when": {"call": 0, "user_shows": "image/*"}, "say": [call("look")]},
        {"when": {"otherwise": true}, "say": [{"echo_prompt": true}]}
    ]});
    let options = || Options::default().script("it", script.to_string());
    let host = Host::with(options()).await;
    let mut request = asks("s", MODEL, vec![picture()]);
    request.tools = tools(&["look"]);
    let mut stream = host.execute(request).await;
    let open = requested(&until_action(&mut stream).await.0);
    let other = host.beside(options()).await;
    host.replica.stop_workers();
    other.submit("s", vec![result(&open[0], "seen")]).await;
    let mut stream = other.watch("s", "", 0).await;
    let events = until(&mut stream, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    assert!(kinds(&events).contains(&"turn_completed"));
    assert_eq!(told(&events)[0]["media"]["bytes"], 20);
}

/// Shows why messages reference blobs.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_reference_guard_a_referenced_blob_is_swept() {
    let host = Host::with(echoing()).await;
    let database = &host.database;
    database.replace_commit_function(without_references).await;
    host.run(asks("s", "scripted/sees", vec![picture()])).await;
    let client = host.database.client().await;
    client.execute("update blobs set touched_at = now() - interval '27 hours'", &[]).await.unwrap();
    as_worker(host.replica.engine.sessions.sweep_blobs()).await.unwrap();
    assert_eq!(count(&host, "blobs").await, 0);
    let events = host.run(turn("s", "scripted/sees", "And now?")).await;
    assert_eq!(kinds(&events).last(), Some(&"turn_completed"), "the model is told words instead");
}

/// Invariant I10
#[tokio::test(flavor = "multi_thread")]
async fn a_blob_of_another_tenant_is_not_found() {
    let host = Host::with(echoing()).await;
    let events = host.run(asks("s", "scripted/sees", vec![picture()])).await;
    let id = blob(&messages(&events)[0].parts[0]);
    let client = host.database.client().await;
    client.batch_execute("
        insert into blobs (tenant_id, blob_id, media_type, size_bytes, touched_at)
        select 'other', blob_id, media_type, size_bytes, touched_at from blobs;
        insert into blob_chunks (tenant_id, blob_id, idx, bytes) select 'other', blob_id, idx, bytes from blob_chunks;
        delete from part_blobs; delete from blob_chunks where tenant_id = 'default'; delete from blobs where tenant_id = 'default'").await.unwrap();
    let named = asks("t", "scripted/sees", vec![medium("image/gif", Source::BlobId(id))]);
    let refused = refusal(&host.try_execute(named).await.unwrap_err());
    assert_eq!(refused.fields, [("input.parts[0].media.blob_id".to_owned(), "UNKNOWN".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn count_tokens_counts_media_as_the_model_reads_them() {
    let host = Host::with(echoing()).await;
    let count = async |model: &str| {
        let request = pb::CountTokensRequest {
            model: model.to_owned(),
            messages: vec![message(pb::Role::User, vec![picture()])],
            ..pb::CountTokensRequest::default()
        };
        host.contexts().count_tokens(request).await.unwrap().into_inner().total.unwrap().tokens
    };
    let sees = count("scripted/sees").await;
    let blind = count("scripted/blind").await;
    assert!((258..300).contains(&sees) && blind < 30, "{sees} {blind}");
    assert_eq!(self::count(&host, "blobs").await, 0, "nothing is stored");
}
