//! Events that must not leave a session in a state in which every later turn is refused.

use std::{collections::BTreeMap, sync::Arc};

use contextd::{
    model::DeclaredModel,
    pb::{
        self, CompletionReason, PromptNoteKind, blob_service_client::BlobServiceClient, event::Payload, media::Source,
        part::Content, put_blob_request::Data,
    },
    provider::anthropic::Anthropic,
};
use serde_json::{Value, json};

use super::answer;
use crate::{
    harness::{
        Host, Options,
        events::{completed, failed, kinds, messages},
        requests::{result, text, tools, turn},
        upstream::{Reply, Upstream, anthropic, gemini, responses},
        validate::Api,
    },
    protocols::{
        served,
        speaks::{Protocol, Says},
    },
};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\x40\0\0\0\xf0\x08\x02\0\0\0 a picture";

fn medium(media_type: &str, data: &[u8]) -> pb::Part {
    pb::Part {
        content: Some(Content::Media(pb::Media {
            media_type: media_type.to_owned(),
            source: Some(Source::Data(data.to_vec())),
            ..pb::Media::default()
        })),
        ..pb::Part::default()
    }
}

/// Stores an image before a turn uses it.
async fn uploaded(host: &Host, data: &[u8]) -> pb::Part {
    let header = pb::BlobHeader { media_type: "image/png".to_owned(), ..pb::BlobHeader::default() };
    let chunks = data.chunks(1 << 20).map(|chunk| Data::Chunk(chunk.to_vec()));
    let messages: Vec<pb::PutBlobRequest> =
        [Data::Header(header)].into_iter().chain(chunks).map(|data| pb::PutBlobRequest { data: Some(data) }).collect();
    let mut blobs = BlobServiceClient::new(host.replica.channel().await);
    let stored = blobs.put_blob(tokio_stream::iter(messages)).await.unwrap();
    let blob = stored.into_inner().blob.unwrap();
    pb::Part {
        content: Some(Content::Media(pb::Media {
            media_type: "image/png".to_owned(),
            source: Some(Source::BlobId(blob.blob_id)),
            ..pb::Media::default()
        })),
        ..pb::Part::default()
    }
}

/// A turn whose input contains media.
fn shows(session: &str, model: &str, words: &str, media: Vec<pb::Part>) -> pb::ExecuteTurnRequest {
    let mut request = turn(session, model, words);
    request.input.get_or_insert_default().parts.extend(media);
    request
}

/// The media of a turn that were not sent to the model.
fn left_out(events: &[pb::Event]) -> Vec<&pb::UnsupportedInput> {
    let payloads = events.iter().filter_map(|event| event.payload.as_ref());
    payloads
        .filter_map(|payload| match payload {
            Payload::UnsupportedInput(left_out) => Some(left_out),
            _ => None,
        })
        .collect()
}

fn called(message: &pb::Message) -> Vec<&str> {
    let names = message.parts.iter().filter_map(|part| match &part.content {
        Some(Content::ToolCall(call)) => Some(call.tool_name.as_str()),
        _ => None,
    });
    names.collect()
}

/// A service that uses Anthropic Messages, and a host whose model reads images and PDF files.
async fn claude() -> (Upstream, Host) {
    let upstream = Upstream::start().await;
    let declared = DeclaredModel {
        input_media: Some(vec!["image/*".to_owned(), "application/pdf".to_owned()]),
        context_window: Some(200_000),
        ..DeclaredModel::default()
    };
    let models = BTreeMap::from([("claude-haiku-5-5".to_owned(), declared)]);
    let settings = upstream.settings_for(Api::Anthropic);
    let provider = Anthropic::new("main", settings, models).unwrap();
    let options = Options { call_attempts: 2, ..Options::default() };
    let host = Host::with(options.provider("main", Arc::new(provider))).await;
    (upstream, host)
}

const CLAUDE: &str = "main/claude-haiku-5-5";

#[tokio::test(flavor = "multi_thread")]
async fn n01_n02_a_call_of_an_invented_name_goes_back_under_a_name_that_the_service_takes() {
    let long = "a".repeat(300);
    let invented = ["$READFILE", "get_weather<|channel|>commentary", long.as_str()];
    let (services, host) = served().await;
    for (protocol, upstream) in &services {
        for (number, name) in invented.iter().enumerate() {
            let session = format!("{}-{number}", protocol.name());
            let asks = |words: &str| pb::ExecuteTurnRequest {
                session_id: session.clone(),
                tools: tools(&["look"]),
                ..turn(&session, &protocol.model(), words)
            };
            let calls = Says::default().call("c1", name, &json!({"path": "a"}));
            upstream.answer(protocol.answer(calls));
            upstream.answer(protocol.answer(Says::default().text("There is none.")));
            let first = host.run(asks("Read it.")).await;
            upstream.answer(protocol.answer(Says::default().text("Yes.")));
            let second = host.run(asks("And now?")).await;
            for seen in [&first, &second] {
                assert_eq!(completed(seen).reason(), CompletionReason::Stop, "{session}");
            }
            let said = messages(&first);
            assert_eq!(called(said[1]), [*name], "the history is as it was: {session}");
            let sent = upstream.requests().pop().unwrap();
            let as_it_was = format!(r#""name":{}"#, json!(name));
            assert!(!sent.body.contains(&as_it_was), "{session}: {}", sent.body);
            assert!(sent.body.contains("no tool named"), "{session}: {}", sent.body);

            let rendered = pb::RenderContextRequest {
                session_id: session.clone(),
                model: protocol.model(),
                format: pb::PromptFormat::Native.into(),
                ..pb::RenderContextRequest::default()
            };
            let rendered = host.contexts().render_context(rendered).await.unwrap();
            let notes = rendered.into_inner().prompt.unwrap().notes;
            let renamed = |note: &&pb::PromptNote| note.kind() == PromptNoteKind::Unsupported;
            let renamed: Vec<_> = notes.iter().filter(renamed).collect();
            assert_eq!(renamed.len(), 1, "{session}: {notes:?}");
            assert_eq!(renamed[0].message_id, said[1].message_id, "{session}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_a_picture_beyond_five_mib_of_base64_is_replaced_by_words_for_anthropic() {
    let (upstream, host) = claude().await;
    let mut large = PNG.to_vec();
    large.resize(3_932_161, 0);
    for words in ["See.", "Good."] {
        upstream.answer(anthropic::said(&[words]));
    }
    let picture = uploaded(&host, &large).await;
    let seen = host.run(shows("s", CLAUDE, "Look.", vec![picture])).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let left_out = left_out(&seen);
    assert_eq!(left_out.len(), 1);
    assert!(left_out[0].errors.concat().contains("5 MiB"), "{:?}", left_out[0]);
    large.truncate(3_932_160);
    let picture = uploaded(&host, &large).await;
    let seen = host.run(shows("s", CLAUDE, "And this?", vec![picture])).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let sent = upstream.requests().pop().unwrap().json;
    assert_eq!(Protocol::Anthropic.pictures(&sent), 1, "5 MiB are taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a11_a_picture_is_sent_under_the_type_that_it_has() {
    let (services, host) = served().await;
    for (protocol, upstream) in &services {
        upstream.answer(protocol.answer(Says::default().text("A cat.")));
        let session = protocol.name();
        let picture = medium("image/jpeg", PNG);
        let asks = shows(session, &protocol.model(), "Look.", vec![picture]);
        let seen = host.run(asks).await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{session}");
        let sent = upstream.requests().pop().unwrap().body;
        assert!(sent.contains("image/png"), "{session}: {sent}");
        assert!(!sent.contains("image/jpeg"), "{session}: {sent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a21_a_file_that_the_service_refuses_by_name_is_left_out_from_the_next_attempt_on() {
    let (upstream, host) = claude().await;
    let calls = anthropic::Answer::default().call("c1", "look", &json!({}));
    upstream.answer(calls.reply());
    upstream.answer(anthropic::refused(
        400,
        "invalid_request_error",
        "messages.2.content.0.tool_result.content.1.pdf.source.base64.data: The PDF specified is password protected.",
    ));
    for words in ["Locked.", "Yes."] {
        upstream.answer(anthropic::said(&[words]));
    }
    let shown = vec![medium("image/png", PNG), medium("application/pdf", b"%PDF-1.7 mine")];
    let asks = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..shows("s", CLAUDE, "Look.", shown) };
    let seen = host
        .run_with(asks, |call| pb::ToolResult {
            parts: vec![text("As shown:"), medium("application/pdf", b"%PDF-1.7 locked")],
            ..result(&call.call_id, "")
        })
        .await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    assert!(kinds(&seen).contains(&"turn_retrying"));
    let told = left_out(&seen);
    assert_eq!(told.len(), 1);
    assert!(told[0].errors.concat().contains("password protected"), "{told:?}");
    let seen = host.run(shows("s", CLAUDE, "And now?", vec![])).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let sent: Vec<Value> = upstream.requests().into_iter().map(|sent| sent.json).collect();
    let files = |body: &Value| body.to_string().matches(r#""type":"document""#).count();
    assert_eq!(sent.iter().map(files).collect::<Vec<_>>(), [1, 2, 1, 1]);
    let pictures = |body: &Value| Protocol::Anthropic.pictures(body);
    assert_eq!(sent.iter().map(pictures).collect::<Vec<_>>(), [1, 1, 1, 1]);
    let stored = host.messages("s").await;
    let kept = stored.iter().any(|message| format!("{message:?}").contains("application/pdf"));
    assert!(kept, "the history is as it was");
}

/// The response with which each service refuses an image.
fn refuses_the_picture(protocol: Protocol) -> Reply {
    let invalid = |message: &str, param: Value, code: &str| {
        let kind = "invalid_request_error";
        Reply::json(400, &json!({"error": {"message": message, "type": kind, "param": param, "code": code}}))
    };
    match protocol {
        Protocol::Chat => invalid(
            "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp'].",
            Value::Null,
            "invalid_image_format",
        ),
        Protocol::Responses => invalid(
            "The image data you provided does not represent a valid image. Please check your input and try again.",
            json!("input[2].content[1].image_url"),
            "invalid_value",
        ),
        Protocol::Anthropic => anthropic::refused(
            400,
            "invalid_request_error",
            "messages.2.content.1.image.source.base64.data: Could not process image",
        ),
        Protocol::Gemini => gemini::refused(
            400,
            "INVALID_ARGUMENT",
            "Unable to process input image. Please retry or report in https://developers.generativeai.google/guide/troubleshooting",
        ),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_that_a_service_refuses_is_words_from_the_next_attempt_on() {
    let (services, host) = served().await;
    for (protocol, upstream) in &services {
        let session = protocol.name();
        let asks = |words: &str, data: Option<&[u8]>| {
            let media = data.map(|data| medium("image/png", data));
            shows(session, &protocol.model(), words, media.into_iter().collect())
        };
        let says = |words: &str| protocol.answer(Says::default().text(words));
        let other = [PNG, b"another".as_slice()].concat();
        upstream.answer(says("A cat."));
        host.run(asks("Look.", Some(&other))).await;
        upstream.answer(refuses_the_picture(*protocol));
        upstream.answer(says("I cannot see it."));
        let seen = host.run(asks("And this?", Some(PNG))).await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{session}");
        let told = left_out(&seen);
        assert_eq!(told.len(), 1, "{session}");
        assert!(told[0].errors.concat().contains("rejected"), "{session}: {told:?}");
        upstream.answer(says("Yes."));
        let seen = host.run(asks("And now?", None)).await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{session}");
        let pictures = upstream.requests();
        let pictures = pictures.iter().map(|sent| protocol.pictures(&sent.json));
        assert_eq!(pictures.collect::<Vec<_>>(), [1, 2, 1, 1], "{session}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_a_call_that_the_client_has_to_run_is_refused_and_never_in_the_history() {
    let (services, host) = served().await;
    let is_it = |(protocol, _): &&(Protocol, Upstream)| *protocol == Protocol::Responses;
    let (protocol, upstream) = services.iter().find(is_it).unwrap();
    for kind in ["local_shell_call", "computer_call", "apply_patch_call", "tool_search_call"] {
        if kind == "tool_search_call" {
            let search = json!({"type": kind, "id": "ts_1", "call_id": "call_1", "execution": "client",
                                "status": "completed", "arguments": {"query": "files"}});
            upstream.answer(responses::Answer::default().item(search).reply());
            upstream.answer(responses::said(&["Nothing."]));
        } else {
            for number in 1..=2 {
                upstream.answer(answer(&format!("client_calls.{kind}.{number}.sse")));
            }
        }
        let seen = host.run(turn(kind, &protocol.model(), "Do it.")).await;
        let failure = failed(&seen).failure.clone().unwrap();
        assert_eq!(failure.reason(), pb::FailureReason::ProviderBadRequest);
        assert_eq!(failure.provider_code, kind);
        assert!(failure.message.contains("cannot pass to a host"), "{failure:?}");
        let seen = host.run(turn(kind, &protocol.model(), "And now?")).await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{kind}");
        let sent = upstream.requests().pop().unwrap().body;
        assert!(!sent.contains("call_1"), "{sent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_a_call_of_a_tool_that_anthropic_defines_and_the_client_runs_is_the_hosts() {
    let (services, host) = served().await;
    let is_it = |(protocol, _): &&(Protocol, Upstream)| *protocol == Protocol::Anthropic;
    let (protocol, upstream) = services.iter().find(is_it).unwrap();
    let model = protocol.model();
    let (provider, _) = model.split_once('/').unwrap();
    for (kind, name, arguments) in [
        ("bash_20250124", "bash", json!({"command": "ls"})),
        ("text_editor_20250728", "str_replace_based_edit_tool", json!({"command": "view", "path": "/"})),
        ("memory_20250818", "memory", json!({"command": "view", "path": "/memories"})),
        ("computer_20250124", "computer", json!({"action": "screenshot"})),
    ] {
        let definition = match kind {
            "computer_20250124" => {
                json!({"type": kind, "name": name, "display_width_px": 800, "display_height_px": 600})
            }
            _ => json!({"type": kind, "name": name}),
        };
        let tool = pb::ProviderTool { provider: provider.to_owned(), definition_json: definition.to_string() };
        let request = pb::ExecuteTurnRequest {
            tools: Some(pb::ToolSet { provider_tools: vec![tool], ..pb::ToolSet::default() }),
            ..turn(name, &model, "Which files are there?")
        };
        let calls = Says::default().call("c1", name, &arguments);
        upstream.answer(protocol.answer(calls));
        upstream.answer(protocol.answer(Says::default().text("One file.")));
        let seen = host.run_with(request, |call| result(&call.call_id, "readme.md")).await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{kind}");
        let sent = upstream.requests().pop().unwrap().body;
        assert!(sent.contains("readme.md"), "{kind}: {sent}");
    }
}
