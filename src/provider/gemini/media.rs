//! Encodes media as parts of a request.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::wire::{Data, FileData, InlineData, Part};
use crate::{
    model::{
        Contents, Media, Role,
        media::{Kind, Source, UNSUPPORTED_TEXT},
    },
    provider::media_type,
};

/// Image types that models accept.
const PICTURES: [&str; 5] = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];

const PDF: &str = "application/pdf";

/// Media types that a tool result may contain.
const IN_RESULTS: [&str; 5] = ["image/png", "image/jpeg", "image/webp", PDF, "text/plain"];

/// Why a media part cannot be sent to any model. Returns `None` if it can.
pub(super) fn unsupported_media(media: &Media, role: Role) -> Option<String> {
    let essence = media.essence();
    let is_text = essence.starts_with("text/") || essence == PDF;
    let why = match (role, media.kind()) {
        (Role::Assistant, Kind::Audio | Kind::Video | Kind::Document) => {
            "The service accepts this media only in user messages and tool results."
        }
        (_, Kind::Image) if !PICTURES.contains(&essence.as_str()) => {
            "The service accepts only PNG, JPEG, WebP, HEIC and HEIF images."
        }
        (_, Kind::Document) if !is_text => "The service accepts only PDF and text files.",
        (_, Kind::Image | Kind::Audio | Kind::Video | Kind::Document) => return None,
    };
    Some(why.to_owned())
}

/// Encodes a media part. If its content is not part of the prompt, returns text instead.
pub(super) fn part<'a>(media: &'a Media, contents: &Contents) -> Part<'a> {
    Part::new(data(media, contents))
}

/// The data of an encoded media part.
pub(super) fn data<'a>(media: &'a Media, contents: &Contents) -> Data<'a> {
    match &media.source {
        Source::Url(url) => Data::FileData(FileData { mime_type: media.essence(), file_uri: url }),
        Source::Blob(kept) => match contents.get(&kept.id) {
            Some(content) => Data::InlineData(InlineData {
                mime_type: media_type::of(media, content),
                data: STANDARD.encode(content),
            }),
            None => Data::Text(Cow::Borrowed(UNSUPPORTED_TEXT)),
        },
    }
}

/// Whether a tool result can contain this media.
pub(super) fn fits_in_result(media: &Media, contents: &Contents) -> bool {
    let here = media.blob().is_some_and(|kept| contents.get(&kept.id).is_some());
    here && IN_RESULTS.contains(&media.essence().as_str())
}
