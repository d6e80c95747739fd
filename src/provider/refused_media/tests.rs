//! Tests of which media a rejection is about, with the messages of each service.

use serde_json::json;

use super::*;
use crate::{
    context::testing::{self, message, response},
    model::{Content, Contents, Message, MessageId, ModelResponse, Part, Role, derive, media::BlobRef},
};

const PICTURE: &[u8] = b"a picture";
const OTHER: &[u8] = b"another picture";
const FILE: &[u8] = b"a file";
const ADDRESS: &str = "https://example.org/a.png";

fn stored(media_type: &str, bytes: &[u8]) -> Part {
    let kept = BlobRef { id: derive::blob(bytes), bytes: bytes.len() as u64, pixels: None };
    part(media_type, Source::Blob(kept))
}

fn part(media_type: &str, source: Source) -> Part {
    Part::new(Content::Media(Media { media_type: media_type.to_owned(), source, filename: String::new() }))
}

/// The user sends an image, to which the model responds; then another image, an image by URL and a
/// file.
fn prompt() -> Prompt {
    let answer = Message {
        response: Some(ModelResponse { provider: "main".to_owned(), ..response("main/m") }),
        ..message(Role::Assistant, vec![Part::text("I see.")])
    };
    let new = vec![
        stored("image/png", OTHER),
        part("image/png", Source::Url(ADDRESS.to_owned())),
        stored("application/pdf", FILE),
    ];
    let mut contents = Contents::default();
    for bytes in [PICTURE, OTHER, FILE] {
        contents.insert(derive::blob(bytes), bytes.into());
    }
    Prompt {
        model: "m".to_owned(),
        contents,
        ..testing::prompt(vec![
            message(Role::User, vec![stored("image/png", PICTURE)]),
            answer,
            Message { id: MessageId::new("new"), ..message(Role::User, new) },
        ])
    }
}

fn error(kind: Kind, code: &str, message: &str) -> Error {
    Error { code: code.to_owned(), ..Error::new(kind, "main", message) }
}

/// The rejected media, by content.
fn found(body: &Value, kind: Kind, code: &str, message: &str) -> Vec<String> {
    let prompt = prompt();
    let refused = refused(&error(kind, code, message), &prompt, || Some(body.clone()));
    let content = |media: &Media| match &media.source {
        Source::Url(url) => url.clone(),
        Source::Blob(kept) => {
            let bytes = prompt.contents.get(&kept.id).unwrap();
            String::from_utf8(bytes.to_vec()).unwrap()
        }
    };
    refused.into_iter().map(content).collect()
}

#[test]
fn a_path_in_a_refusal_names_one_medium_in_each_protocol() {
    let data = STANDARD.encode(OTHER);
    let address = format!("data:image/png;base64,{data}");
    let anthropic = json!({"messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "user", "content": [
            {"type": "tool_result", "content": [
                {"type": "text", "text": "a"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
            ]},
            {"type": "image", "source": {"type": "url", "url": ADDRESS}},
        ]},
    ]});
    let chat = json!({"messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": address}}]},
    ]});
    let responses = json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": address}]}]});
    let gemini =
        json!({"contents": [{"parts": [{"text": "a"}, {"inlineData": {"mimeType": "image/png", "data": data}}]}]});
    let other = vec!["another picture"];
    let table = [
        (
            &anthropic,
            "messages.1.content.0.tool_result.content.1.image.source.base64.data: Could not process image",
            other.clone(),
        ),
        (&anthropic, "messages.1.content.1.image.source.url: Unable to download the file.", vec![ADDRESS]),
        (&anthropic, "messages.0.content.0.text: text content blocks must be non-empty", vec![]),
        (&anthropic, "messages.9.content.0.tool_use.name: String should match pattern", vec![]),
        (&chat, "Invalid value at 'messages[0].content[1].image_url.url'.", other.clone()),
        (&chat, "Not good. (messages.[0].content.[1].image_url)", other.clone()),
        (&responses, "Bad. (input[0].content[0].image_url)", other.clone()),
        (&gemini, "* GenerateContentRequest.contents[0].parts[1].inline_data: bad", other.clone()),
    ];
    for (body, words, expected) in table {
        assert_eq!(found(body, Kind::BadRequest, "", words), expected, "{words}");
    }
    let too_long = "messages.1.content.0.tool_result.content.1.image.source.base64: image exceeds 5 MB maximum";
    assert_eq!(found(&anthropic, Kind::TooLong, "", too_long), other);
    assert!(found(&anthropic, Kind::Overloaded, "", too_long).is_empty());
}

#[test]
fn words_about_a_kind_of_media_mean_those_that_the_model_has_not_answered() {
    let pictures = vec!["another picture", ADDRESS];
    let table = [
        ("", "Unable to process input image. Please retry or report in https://a.b", pictures.clone()),
        (
            "invalid_image_format",
            "You uploaded an unsupported image. Please make sure that it is a PNG.",
            pictures.clone(),
        ),
        ("image_parse_error", "Bad.", pictures.clone()),
        ("", "The image data you provided does not represent a valid image.", pictures),
        (
            "invalid_image_url",
            "Error while downloading https://example.org/a.png. Upstream status code: 404.",
            vec![ADDRESS],
        ),
        ("", "The document has no pages.", vec!["a file"]),
        ("", "The PDF specified is password protected.", vec!["a file"]),
        ("", "Invalid value: 'max_tokens' is too large", vec![]),
        ("", "This model does not support image input.", vec![]),
        ("", "Unsupported parameter: 'top_k'.", vec![]),
    ];
    for (code, words, expected) in table {
        let found = found(&Value::Null, Kind::BadRequest, code, words);
        assert_eq!(found, expected, "{words}");
        let too_long = self::found(&Value::Null, Kind::TooLong, code, words);
        assert!(too_long.is_empty(), "{words}");
    }
}

#[test]
fn a_refused_medium_is_remembered_for_its_model_and_the_oldest_is_forgotten() {
    let refused = RefusedMedia::default();
    let part = stored("image/png", PICTURE);
    let media = part.media().next().unwrap();
    assert_eq!(refused.reason("m", media), None);
    refused.add(key("m", media), "It is broken.");
    assert_eq!(refused.reason("m", media).as_deref(), Some("It is broken."));
    assert_eq!(refused.reason("other", media), None);
    for number in 0..MAX_ENTRIES {
        let url = Source::Url(format!("https://example.org/{number}"));
        let part = self::part("image/png", url);
        refused.add(key("m", part.media().next().unwrap()), "No.");
    }
    assert_eq!(refused.reason("m", media), None);
}
