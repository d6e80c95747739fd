//! Tests of media: which services accept them, and how they are encoded.

use serde_json::json;

use super::{requests::body, *};
use crate::{
    context::testing::{self, message, user},
    model::{
        BlobId, Content, Media, Message, OutputPart, Prompt, Role,
        media::{BlobRef, Source},
    },
    provider::openai::media::unsupported_media,
};

fn kept(media_type: &str) -> Media {
    let source = Source::Blob(BlobRef { id: BlobId::new("b"), bytes: 3, pixels: None });
    Media { media_type: media_type.to_owned(), source, filename: String::new() }
}

fn at_address(media_type: &str) -> Media {
    Media { source: Source::Url("https://example.org/a".to_owned()), ..kept(media_type) }
}

fn medium(media: Media) -> Part {
    Part::new(Content::Media(media))
}

fn sent(dialect: &str, messages: Vec<Message>) -> Value {
    let mut prompt = Prompt { model: "gpt".to_owned(), ..testing::prompt(messages) };
    prompt.contents.insert(BlobId::new("b"), b"abc".as_slice().into());
    body(dialect, &prompt)["messages"].take()
}

/// Row D4
#[test]
fn only_supported_media_are_sent_to_a_service() {
    let table = [
        ("openai", kept("image/png"), Role::User, true),
        ("openai", kept("image/png"), Role::Tool, true),
        ("openai", kept("image/png"), Role::Assistant, false),
        ("openai", kept("IMAGE/PNG; a=b"), Role::User, true),
        ("openai", kept("image/tiff"), Role::User, false),
        ("openai", at_address("image/png"), Role::User, true),
        ("openai", kept("application/pdf"), Role::User, true),
        ("openai", at_address("application/pdf"), Role::User, false),
        ("openai", kept("audio/wav"), Role::User, true),
        ("openai", kept("audio/ogg"), Role::User, false),
        ("openai", at_address("audio/wav"), Role::User, false),
        ("openai", kept("video/mp4"), Role::User, false),
        ("groq", kept("application/pdf"), Role::User, false),
        ("deepseek", kept("image/png"), Role::User, false),
        ("mistral", kept("audio/wav"), Role::User, false),
        ("ollama", kept("image/png"), Role::User, true),
        ("ollama", at_address("image/png"), Role::User, false),
    ];
    for (dialect, media, role, takes) in table {
        let why = unsupported_media(dialect::named(dialect).unwrap().media, &media, role);
        assert_eq!(why.is_none(), takes, "{dialect} {media:?} {role:?}: {why:?}");
    }
}

/// Row D5
#[test]
fn each_media_kind_has_its_request_form() {
    let parts = [kept("image/png"), at_address("image/png"), kept("audio/mpeg"), kept("application/pdf")];
    let content = json!([
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a"}},
        {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "mp3"}},
        {"type": "file", "file": {"filename": "file", "file_data": "data:application/pdf;base64,YWJj"}}
    ]);
    let said = message(Role::User, parts.map(medium).into());
    assert_eq!(sent("openai", vec![said]), json!([{"role": "user", "content": content}]));
}

#[test]
fn a_user_message_after_result_media_is_merged_with_them() {
    let mut given = testing::results(&[("look", "seen"), ("read", "")]);
    for part in &mut given.parts {
        let Content::ToolResult(result) = &mut part.part.content else { panic!("not a result") };
        result.parts.push(OutputPart::Media(kept("image/png")));
    }
    let messages = vec![user("Look."), testing::calls(&["look", "read"]), given, user("And now?"), user("Well?")];
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}});
    let from = |tool: &str| json!({"type": "text", "text": format!("[From the result of {tool}: image/png]")});
    let shown = json!([from("look"), image, from("read"), image, {"type": "text", "text": "And now?"}]);
    let sent = sent("openai", messages);
    assert_eq!(sent[2]["content"], "seen\n[image/png: shown after the results]");
    assert_eq!(sent[3]["content"], "\n[image/png: shown after the results]");
    assert_eq!(sent[4], json!({"role": "user", "content": shown}));
    assert_eq!(sent[5], json!({"role": "user", "content": "Well?"}));
}

#[test]
fn media_without_loaded_content_become_placeholder_text() {
    let prompt = testing::prompt(vec![message(Role::User, vec![medium(kept("image/png"))])]);
    let content = body("openai", &prompt)["messages"][0]["content"].take();
    assert_eq!(content, json!([{"type": "text", "text": "[unsupported content]"}]));
}
