//! Tests media in messages and results.

use super::super::media::blobs_in_messages;
use super::*;
use crate::context::testing::assert_linear_time;
use crate::model::{
    BlobId, Content, Media, NewContent, OutputPart,
    command::Start,
    media::{BlobRef, Pixels, Source},
};
use pb::media::Source as Wire;

/// A GIF header that claims 320 x 240 pixels.
const PICTURE: &[u8] = b"GIF89a\x40\x01\xf0\x00";

fn media(source: Option<Wire>) -> pb::Media {
    pb::Media { media_type: "image/gif".into(), source, ..Default::default() }
}

fn shown(media: pb::Media) -> pb::Part {
    part(pb::part::Content::Media(media))
}

fn read(media: pb::Media, stored: StoredBlobs) -> Result<(Media, Vec<NewContent>), RequestError> {
    let request = turn_with(|r| r.input.get_or_insert_default().parts = vec![shown(media)]);
    decode(request, stored).map(|(command, _)| {
        let Start::Input(mut input) = command.start else { panic!("no input") };
        let Content::Media(media) = input.parts.remove(0).content else { panic!("no medium") };
        (media, command.contents)
    })
}

#[track_caller]
fn check_media(media: pb::Media, expected: &[(&str, FieldReason)]) {
    let expected: Vec<_> =
        expected.iter().map(|(field, reason)| (format!("input.parts[0].media{field}"), *reason)).collect();
    let expected: Vec<_> = expected.iter().map(|(field, reason)| (field.as_str(), *reason)).collect();
    check(read(media, StoredBlobs::new()), &expected);
}

#[test]
fn inline_media_become_blobs_named_by_their_hash() {
    let named =
        pb::Media { filename: "a.gif".into(), size_bytes: 9, width: 9, ..media(Some(Wire::Data(PICTURE.to_vec()))) };
    let (medium, contents) = read(named, StoredBlobs::new()).unwrap();
    let content = NewContent::new("image/gif".to_owned(), PICTURE.to_vec());
    let kept = BlobRef { id: content.id().clone(), bytes: PICTURE.len() as u64, pixels: Pixels::new(320, 240) };
    let media_type = "image/gif".to_owned();
    let filename = "a.gif".to_owned();
    assert_eq!(medium, Media { media_type, source: Source::Blob(kept), filename });
    assert_eq!(contents, [content]);
}

#[test]
fn repeated_inline_media_become_one_blob() {
    let picture = || shown(media(Some(Wire::Data(PICTURE.to_vec()))));
    let request = turn_with(|r| r.input.get_or_insert_default().parts = vec![picture(), picture()]);
    let (command, _) = decoded(request).unwrap();
    assert_eq!(command.contents.len(), 1);
}

#[test]
fn a_media_blob_must_match_what_is_stored_under_its_id() {
    let id = BlobId::new("ab".repeat(32));
    let kept = BlobRef { id: id.clone(), bytes: 7, pixels: None };
    let named = || media(Some(Wire::BlobId(id.to_string())));
    let (medium, contents) = read(named(), [(id.clone(), kept.clone())].into()).unwrap();
    assert_eq!((medium.source, contents.len()), (Source::Blob(kept), 0));
    check_media(named(), &[(".blob_id", Unknown)]);
}

#[test]
fn blob_references_are_collected_from_every_place() {
    let named = |id: &str| shown(media(Some(Wire::BlobId(id.into()))));
    let b = "b".repeat(64);
    let c = "c".repeat(64);
    let result = pb::ToolResult { parts: vec![text("a"), named(&b), named(&b)], ..Default::default() };
    let submitted = pb::SubmitToolResultsRequest { results: vec![result.clone()], ..Default::default() };
    assert_eq!(submitted.blobs(), [BlobId::new(b.clone())]);
    let message = |parts| pb::InputMessage { parts, ..Default::default() };
    let messages = [message(vec![named(&c), text("d")]), message(vec![part(pb::part::Content::ToolResult(result))])];
    assert_eq!(blobs_in_messages(&messages), [BlobId::new(b), BlobId::new(c)]);
    let many = message((0..300).map(|n| named(&format!("{n:064}"))).collect());
    assert_eq!(blobs_in_messages([&many]).len(), 256);
    let none = ["".to_owned(), "a".repeat(63), "a".repeat(65), "A".repeat(64), "g".repeat(64), "\0".repeat(64)];
    assert_eq!(blobs_in_messages([&message(none.iter().map(|id| named(id)).collect())]), [], "ids of nothing");
}

#[test]
fn a_medium_has_a_type_a_source_and_a_short_name() {
    let data = || Some(Wire::Data(vec![1]));
    check_media(media(None), &[("", Invalid)]);
    check_media(media(Some(Wire::Data(vec![]))), &[(".data", Required)]);
    check_media(media(Some(Wire::BlobId(String::new()))), &[(".blob_id", Required)]);
    check_media(media(Some(Wire::Url(String::new()))), &[(".url", Required)]);
    check_media(media(Some(Wire::Data(vec![0; 3 * 1024 * 1024]))), &[]);
    check_media(media(Some(Wire::Data(vec![0; 3 * 1024 * 1024 + 1]))), &[(".data", TooLarge)]);
    check_media(pb::Media { media_type: String::new(), ..media(data()) }, &[(".media_type", Required)]);
    check_media(pb::Media { media_type: "picture".into(), ..media(data()) }, &[(".media_type", Invalid)]);
    check_media(pb::Media { filename: "n".repeat(256), ..media(data()) }, &[(".filename", TooLarge)]);
    check_media(pb::Media { filename: "a\n".into(), ..media(data()) }, &[(".filename", Invalid)]);
    let wrong = pb::Media { filename: "a\n".into(), media_type: "x".into(), ..media(Some(Wire::Data(vec![]))) };
    check_media(wrong, &[(".media_type", Invalid), (".filename", Invalid), (".data", Required)]);
}

#[test]
fn an_address_is_one_that_a_provider_can_fetch() {
    let url = |url: &str| media(Some(Wire::Url(url.into())));
    for good in ["https://example.org/a.png?b=c#d", "HTTP://example.org", "https://[::1]/ä"] {
        let (medium, contents) = read(url(good), StoredBlobs::new()).unwrap();
        assert_eq!((medium.source, contents.len()), (Source::Url(good.into()), 0));
    }
    for bad in
        ["data:image/png;base64,AAAA", "file:///etc/passwd", "https://", "ftp://a", "https://a b", "https://a\n", "a"]
    {
        check_media(url(bad), &[(".url", Invalid)]);
    }
    check_media(url(&format!("https://{}", "a".repeat(8_185))), &[(".url", TooLarge)]);
}

#[test]
fn results_hold_texts_and_media_in_order() {
    let picture = shown(media(Some(Wire::Data(PICTURE.to_vec()))));
    let result = pb::ToolResult {
        call_id: "a".into(),
        parts: vec![text("before"), picture, text(""), text("after")],
        ..Default::default()
    };
    let request = pb::SubmitToolResultsRequest { session_id: "s".into(), results: vec![result], ..Default::default() };
    let submit = decoded(request).unwrap();
    let [OutputPart::Text(before), OutputPart::Media(medium), OutputPart::Text(after)] =
        submit.results[0].parts.as_slice()
    else {
        panic!("{:?}", submit.results)
    };
    assert_eq!((before.as_str(), after.as_str()), ("before", "after"));
    assert_eq!(medium.blob().map(|kept| &kept.id), Some(submit.contents[0].id()));
}

#[test]
fn a_hundred_thousand_media_are_not_compared_with_each_other() {
    const MEDIA: u32 = 100_000;
    let contents: Vec<_> = (0..MEDIA).map(|i| NewContent::new("image/gif".into(), i.to_be_bytes().to_vec())).collect();
    let twice: Vec<_> = contents.iter().chain(&contents).cloned().collect();
    let kept = assert_linear_time("contents of a request", || {
        let mut found = Findings::new("RPC", Default::default());
        twice.into_iter().for_each(|it| found.add_content(it));
        found.take_contents()
    });
    assert_eq!(kept, contents, "in their order");

    let reference = |i: u32| shown(media(Some(Wire::BlobId(format!("{i:064x}")))));
    let message = pb::InputMessage { parts: (0..MEDIA).chain(0..MEDIA).map(reference).collect(), ..Default::default() };
    let named = assert_linear_time("blobs that a request names", || blobs_in_messages([&message]));
    assert_eq!(named.len(), 256);

    let inline = |i: u32| shown(media(Some(Wire::Data(i.to_be_bytes().to_vec()))));
    let request = turn_with(|it| {
        it.input.get_or_insert_default().parts = (0..MEDIA).map(inline).collect();
    });
    let read = assert_linear_time("a whole request", || decode(request, StoredBlobs::new()).map(drop));
    check(read, &[("input.parts", TooLarge)]);
}
