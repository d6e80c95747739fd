//! Decodes images, documents, audio and videos.

use std::collections::BTreeSet;

use super::{Findings, Path};
use crate::{
    context::picture_size,
    model::{
        BlobId, Media, NewContent,
        media::{BlobRef, Source, is_media_type},
    },
    pb::{
        self, FieldReason,
        limits::{self, TextLimit},
        media, part,
    },
};

/// Maximum number of blobs that a request may reference.
const MAX_REFERENCED_BLOBS: usize = 256;

/// Length of a blob id, the hex SHA-256 of its content.
pub(super) const HASH_CHARS: usize = 64;

/// The blobs that these messages reference, to be looked up before decoding.
pub(super) fn blobs_in_messages<'a>(messages: impl IntoIterator<Item = &'a pb::InputMessage>) -> Vec<BlobId> {
    referenced_blobs(messages.into_iter().flat_map(|message| &message.parts))
}

/// The blobs that these parts reference, to be looked up before decoding.
pub(super) fn referenced_blobs<'a>(parts: impl Iterator<Item = &'a pb::Part>) -> Vec<BlobId> {
    let mut named = BTreeSet::new();
    parts.for_each(|part| collect(part, &mut named));
    // Others are not looked up.
    named.into_iter().filter(|id| is_hash(id)).take(MAX_REFERENCED_BLOBS).map(BlobId::new).collect()
}

/// Whether a text has the form of a blob id.
pub(super) fn is_hash(id: &str) -> bool {
    id.len() == HASH_CHARS && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn collect<'a>(part: &'a pb::Part, named: &mut BTreeSet<&'a str>) {
    match &part.content {
        Some(part::Content::Media(pb::Media { source: Some(media::Source::BlobId(id)), .. })) => {
            named.insert(id);
        }
        Some(part::Content::ToolResult(result)) => result.parts.iter().for_each(|part| collect(part, named)),
        Some(
            part::Content::Media(_)
            | part::Content::Text(_)
            | part::Content::Reasoning(_)
            | part::Content::ToolCall(_)
            | part::Content::Refusal(_)
            | part::Content::ProviderItem(_)
            | part::Content::StepStart(_)
            | part::Content::CompactionMarker(_),
        )
        | None => {}
    }
}

/// Decodes media. Reports invalid media and returns `None`. Inline content is taken out of the request, to be
/// stored.
pub(super) fn read(at: Path<'_>, media: pb::Media, found: &mut Findings) -> Option<Media> {
    let pb::Media { media_type, filename, size_bytes: _, width: _, height: _, source } = media;
    check_type(at.field("media_type"), &media_type, limits::media::MEDIA_TYPE, found);
    let source = self::source(at, &media_type, source, found)?;
    Some(Media { media_type, source, filename })
}

/// Reports a text within its limit that is not a MIME type: `type/subtype`, with or without parameters. It is not
/// normalized.
pub(super) fn check_type(at: Path<'_>, media_type: &str, limit: TextLimit, found: &mut Findings) {
    if !media_type.is_empty() && limit.fits(media_type) && !is_media_type(media_type) {
        found.invalid(at, FieldReason::Invalid, "must be a MIME type, e.g. image/png");
    }
}

fn source(at: Path<'_>, media_type: &str, source: Option<media::Source>, found: &mut Findings) -> Option<Source> {
    match source {
        Some(media::Source::Data(data)) => data_source(media_type, data, found).map(Source::Blob),
        Some(media::Source::BlobId(id)) => blob_source(at.field("blob_id"), id, found).map(Source::Blob),
        Some(media::Source::Url(url)) => url_source(at.field("url"), url, found).map(Source::Url),
        None => {
            found.invalid(at, FieldReason::Invalid, "must have a source: data, blob_id or url");
            None
        }
    }
}

fn data_source(media_type: &str, data: Vec<u8>, found: &mut Findings) -> Option<BlobRef> {
    if data.is_empty() || data.len() > limits::media::DATA {
        return None;
    }
    let pixels = picture_size::pixels(&data);
    let bytes = data.len() as u64;
    let content = NewContent::new(media_type.to_owned(), data);
    let id = content.id().clone();
    found.add_content(content);
    Some(BlobRef { id, bytes, pixels })
}

fn blob_source(at: Path<'_>, id: String, found: &mut Findings) -> Option<BlobRef> {
    if id.is_empty() {
        return None;
    }
    let kept = found.stored(&BlobId::new(id));
    if kept.is_none() {
        let description =
            format!("no blob has this id, or the request references more than {MAX_REFERENCED_BLOBS} blobs");
        found.invalid(at, FieldReason::Unknown, description);
    }
    kept
}

fn url_source(at: Path<'_>, url: String, found: &mut Findings) -> Option<String> {
    if url.is_empty() {
        return None;
    }
    let shown = |c: char| !c.is_whitespace() && !c.is_control();
    let well_formed = ["https://", "http://"].iter().any(|scheme| {
        // URL schemes are case-insensitive.
        url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)) && url.len() > scheme.len()
    });
    if limits::media::URL.fits(&url) && !(well_formed && url.chars().all(shown)) {
        found.invalid(at, FieldReason::Invalid, "must begin with https:// or http:// and contain no white space");
    }
    Some(url)
}
