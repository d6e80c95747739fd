//! Converts the result of a call into content for the model and text for display.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, Role, TextContent};
use serde_json::Value;

use super::{DISPLAY_CHARS, Output, Piece, secrets::Secrets};
use crate::model::media::{NewContent, is_media_type};

/// The media type of a file for which the server reports none.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Maximum characters of a media type and of a file name.
const NAME_CHARS: usize = 255;

/// Converts a result. If it has structured content, the model reads that, and other texts are for display, except texts
/// addressed to the model. If the tool failed, the model reads all texts, since they describe the error.
pub(super) fn output(result: CallToolResult, secrets: &Secrets) -> Output {
    let is_error = result.is_error.unwrap_or(false);
    let structured = result.structured_content;
    let structured = structured.filter(|structured| !wraps_text(structured, &result.content));
    let mut pieces = Vec::new();
    let mut lines = Vec::new();
    if let Some(structured) = &structured {
        pieces.push(Piece::Text(structured.to_string()));
    }
    for block in result.content {
        match (block, &structured) {
            (ContentBlock::Text(text), Some(structured)) if repeats(&text.text, structured) => {}
            (ContentBlock::Text(text), Some(_)) if !is_error && !is_for_the_model(&text) => {
                lines.push(text.text);
            }
            (block, _) => pieces.push(piece(block)),
        }
    }
    let pieces = pieces.into_iter().map(|piece| match piece {
        Piece::Text(text) => Piece::Text(secrets.redacted(text)),
        Piece::Media { content, filename } => Piece::Media { content, filename: secrets.redacted(filename) },
    });
    let display_text = secrets.redacted(lines.join("\n"));
    Output { pieces: pieces.collect(), display_text: display_text.chars().take(DISPLAY_CHARS).collect(), is_error }
}

/// Whether the text repeats the structured content, which servers add for older clients.
fn repeats(text: &str, structured: &Value) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| value == *structured)
}

/// Whether the structured content only wraps the single text in an object, as SDKs do for tools that return text. The
/// text then needs fewer tokens.
fn wraps_text(structured: &Value, content: &[ContentBlock]) -> bool {
    let texts = content.iter().filter_map(ContentBlock::as_text);
    let texts: Vec<&str> = texts.map(|text| text.text.as_str()).collect();
    let members = structured.as_object().filter(|members| members.len() == 1);
    let value = members.and_then(|members| members.values().next());
    value.and_then(Value::as_str).is_some_and(|value| texts == [value])
}

fn is_for_the_model(text: &TextContent) -> bool {
    let annotations = text.annotations.as_ref();
    let audience = annotations.and_then(|annotations| annotations.audience.as_ref());
    audience.is_some_and(|audience| audience.contains(&Role::Assistant))
}

fn piece(block: ContentBlock) -> Piece {
    match block {
        ContentBlock::Text(text) => Piece::Text(text.text),
        ContentBlock::Image(image) => medium("a picture", image.mime_type, &image.data, ""),
        ContentBlock::Audio(audio) => medium("a recording", audio.mime_type, &audio.data, ""),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => Piece::Text(text),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let mime_type = mime_type.unwrap_or_else(|| UNKNOWN_TYPE.to_owned());
                medium("a file", mime_type, &blob, &uri)
            }
            #[allow(unreachable_patterns, reason = "the library may add kinds")]
            _ => left_out("a resource", "of an unknown kind"),
        },
        ContentBlock::ResourceLink(link) => Piece::Text(link.uri),
        #[allow(unreachable_patterns, reason = "the library may add kinds")]
        _ => left_out("content", "of an unknown kind"),
    }
}

/// Media with its content, named by the last segment of its URI. Content that is not usable media is described in a
/// text.
fn medium(what: &str, media_type: String, base64: &str, uri: &str) -> Piece {
    let bytes = STANDARD.decode(base64.trim_ascii()).unwrap_or_default();
    if bytes.is_empty() || media_type.len() > NAME_CHARS || !is_media_type(&media_type) {
        return left_out(what, &media_type);
    }
    let name = uri.rsplit(['/', ':']).next().unwrap_or_default();
    let name = name.chars().filter(|char| !char.is_control());
    Piece::Media { content: NewContent::new(media_type, bytes), filename: name.take(NAME_CHARS).collect() }
}

fn left_out(what: &str, media_type: &str) -> Piece {
    let media_type: String = media_type.chars().take(NAME_CHARS).collect();
    Piece::Text(format!("[Left out: {what} ({media_type})]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The texts that the model reads, and the display text.
    fn read(result: &Value) -> (Vec<String>, String) {
        let result = serde_json::from_value(result.clone()).unwrap();
        let Output { pieces, display_text, is_error: _ } = output(result, &Secrets::default());
        let pieces = pieces.into_iter().map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Media { content, filename } => {
                format!("{} {filename} {:?}", content.media_type(), content.bytes())
            }
        });
        (pieces.collect(), display_text)
    }

    #[test]
    fn m05_the_model_reads_structured_content_and_people_the_text_beside_it() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let table = [
            (
                json!({"content": [text("Two cities.")], "structuredContent": {"n": 2}}),
                (vec![r#"{"n":2}"#.to_owned()], "Two cities."),
            ),
            (
                json!({"content": [text("{ \"n\": 2 }")], "structuredContent": {"n": 2}}),
                (vec![r#"{"n":2}"#.to_owned()], ""),
            ),
            (
                json!({"content": [text("a \"b\"")], "structuredContent": {"result": "a \"b\""}}),
                (vec!["a \"b\"".to_owned()], ""),
            ),
            (
                json!({"content": [text("a"), text("b")], "structuredContent": {"result": "a"}}),
                (vec![r#"{"result":"a"}"#.to_owned()], "a\nb"),
            ),
            (json!({"content": [], "structuredContent": [1]}), (vec!["[1]".to_owned()], "")),
            (json!({"content": [text("plain")]}), (vec!["plain".to_owned()], "")),
            (
                json!({"content": [text("no such city")], "structuredContent": {"code": 7}, "isError": true}),
                (vec![r#"{"code":7}"#.to_owned(), "no such city".to_owned()], ""),
            ),
            (
                json!({"content": [
                    {"type": "text", "text": "for you", "annotations": {"audience": ["assistant"]}},
                    text("for people"),
                ], "structuredContent": {}}),
                (vec!["{}".to_owned(), "for you".to_owned()], "for people"),
            ),
        ];
        for (result, (pieces, line)) in table {
            assert_eq!(read(&result), (pieces, line.to_owned()), "{result}");
        }
    }

    #[test]
    fn m05_pictures_recordings_and_files_are_media_with_their_content() {
        let content = json!([
            {"type": "image", "mimeType": "image/png", "data": "AQI="},
            {"type": "audio", "mimeType": "audio/wav", "data": "Aw=="},
            {"type": "resource", "resource": {"uri": "file:///a/b.pdf", "mimeType": "application/pdf", "blob": "BA=="}},
            {"type": "image", "mimeType": "png", "data": "AQI="},
            {"type": "image", "mimeType": "image/png", "data": "?"},
        ]);
        let expected = [
            "image/png  [1, 2]",
            "audio/wav  [3]",
            "application/pdf b.pdf [4]",
            "[Left out: a picture (png)]",
            "[Left out: a picture (image/png)]",
        ];
        let (pieces, _) = read(&json!({ "content": content }));
        assert_eq!(pieces, expected);
    }

    #[test]
    fn m05_the_text_for_people_is_bounded() {
        let long = "é".repeat(DISPLAY_CHARS + 1);
        let result = json!({"content": [{"type": "text", "text": long}], "structuredContent": {}});
        assert_eq!(read(&result).1.chars().count(), DISPLAY_CHARS);
    }
}
