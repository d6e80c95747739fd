//! Images, documents, sounds and videos, which a later version takes.

use super::{Findings, Path, text::MIB};
use crate::pb::{self, FieldReason, media};

/// Most bytes of content in a request; more goes through PutBlob.
const LARGEST_DATA: usize = 3 * MIB;
/// Notes what is wrong with a media part, and that it is not implemented.
pub(super) fn check(at: Path<'_>, media: pb::Media, found: &mut Findings) {
    let pb::Media { media_type, filename: _, size_bytes: _, source } = media;
    if media_type.is_empty() {
        found.required(at.field("media_type"));
    }
    check_source(at, source, found);
    found.not_implemented(at);
}

fn check_source(at: Path<'_>, source: Option<media::Source>, found: &mut Findings) {
    match source {
        Some(media::Source::Data(data)) if data.is_empty() => found.required(at.field("data")),
        Some(media::Source::Data(data)) if data.len() > LARGEST_DATA => {
            let description = format!("must be at most {LARGEST_DATA} bytes");
            found.invalid(at.field("data"), FieldReason::TooLarge, description);
        }
        Some(media::Source::BlobId(id)) if id.is_empty() => found.required(at.field("blob_id")),
        Some(media::Source::Url(url)) if url.is_empty() => found.required(at.field("url")),
        Some(media::Source::Data(_) | media::Source::BlobId(_) | media::Source::Url(_)) => {}
        None => found.invalid(at, FieldReason::Invalid, "must have a source: data, blob_id or url"),
    }
}
