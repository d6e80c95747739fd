//! Mistakes in media, wherever media are accepted.

use contextd::pb::{self, FieldReason as F, media::Source, part::Content};

use super::{
    rows::{MIB, Row, invalid},
    scene::Scene,
};
use crate::harness::{
    requests::{result, text},
    transcripts::message,
};

fn picture(media_type: &str, filename: &str, source: Source) -> pb::Part {
    let media = pb::Media {
        media_type: media_type.to_owned(),
        filename: filename.to_owned(),
        source: Some(source),
        ..pb::Media::default()
    };
    pb::Part { content: Some(Content::Media(media)), ..pb::Part::default() }
}

/// An image whose blob does not exist.
fn lost() -> pb::Part {
    picture("image/png", "", Source::BlobId("0".repeat(64)))
}

pub(super) fn media(s: &Scene) -> Vec<Row> {
    let say = |source| s.say(picture("image/png", "", source));
    let named = |filename: &str| s.say(picture("image/png", filename, Source::Data(vec![1])));
    let filename = "input.parts[0].media.filename";
    let url = "input.parts[0].media.url";
    let data = "input.parts[0].media.data";
    let blob = "input.parts[0].media.blob_id";
    vec![
        invalid(
            "three mistakes in one picture",
            s.say(picture("picture", "a\n", Source::Data(vec![]))),
            &[("input.parts[0].media.media_type", F::Invalid), (filename, F::Invalid), (data, F::Required)],
        ),
        invalid("a picture over 3 MiB", say(Source::Data(vec![0; 3 * MIB + 1])), &[(data, F::TooLarge)]),
        invalid("a picture that is not stored", s.say(lost()), &[(blob, F::Unknown)]),
        invalid("a picture that no hash names", say(Source::BlobId("cat".into())), &[(blob, F::Unknown)]),
        invalid("a picture that NUL names", say(Source::BlobId("\0".into())), &[(blob, F::Unknown)]),
        invalid(
            "a result that shows what NUL names",
            s.submit(|it| {
                let shown = picture("image/png", "", Source::BlobId("\0".repeat(64)));
                it.results = vec![pb::ToolResult { parts: vec![shown], ..result(&s.open, "") }];
            }),
            &[("results[0].parts[0].media.blob_id", F::Unknown)],
        ),
        invalid("a picture that nothing names", say(Source::BlobId(String::new())), &[(blob, F::Required)]),
        invalid(
            "a picture in a file of the server's",
            say(Source::Url("file:///etc/passwd".into())),
            &[(url, F::Invalid)],
        ),
        invalid("a picture at no address", say(Source::Url(String::new())), &[(url, F::Required)]),
        invalid(
            "a picture within its address",
            say(Source::Url("data:image/png;base64,AA==".into())),
            &[(url, F::Invalid)],
        ),
        invalid(
            "a picture at too long an address",
            say(Source::Url(format!("https://{}", "x".repeat(8_192)))),
            &[(url, F::TooLarge)],
        ),
        invalid("a file whose name is too long", named(&"x".repeat(256)), &[(filename, F::TooLarge)]),
        invalid(
            "two pictures that are not stored, and an empty text",
            s.say_so(|it| it.parts = vec![lost(), text(""), lost()]),
            &[(blob, F::Unknown), ("input.parts[1].text", F::Required), ("input.parts[2].media.blob_id", F::Unknown)],
        ),
        invalid(
            "a picture to queue that is not stored",
            s.enqueue(|it| it.message.get_or_insert_default().parts = vec![lost()]),
            &[("message.parts[0].media.blob_id", F::Unknown)],
        ),
        invalid(
            "a result that shows what is not stored",
            s.submit(|it| it.results = vec![pb::ToolResult { parts: vec![lost()], ..result(&s.open, "") }]),
            &[("results[0].parts[0].media.blob_id", F::Unknown)],
        ),
        invalid(
            "an appended picture that is not stored",
            s.append_all(vec![message(pb::Role::User, vec![lost()])]),
            &[("messages[0].parts[0].media.blob_id", F::Unknown)],
        ),
        invalid(
            "an answer that shows what is not stored",
            s.append_answer(lost()),
            &[("messages[0].parts[0].media.blob_id", F::Unknown)],
        ),
        invalid(
            "a picture to count that is not stored",
            s.count(|it| it.messages = vec![message(pb::Role::User, vec![lost()])]),
            &[("messages[0].parts[0].media.blob_id", F::Unknown)],
        ),
    ]
}
