//! Media as parts of a request.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::wire::{Data, FileData, InlineData, Part};
use crate::{
    model::{
        Contents, Media, Role,
        media::{Kind, Source, UNSUPPORTED_WORDS},
    },
    provider::media_type,
};

/// Pictures that models read.
const PICTURES: [&str; 5] = [
    "image/png",
    "image/jpeg",
    "image/webp",
    "image/heic",
    "image/heif",
];

const PDF: &str = "application/pdf";

/// What a tool's result may hold.
const IN_RESULTS: [&str; 5] = ["image/png", "image/jpeg", "image/webp", PDF, "text/plain"];

/// Why a medium cannot be sent, whatever the model. `None` means it can.
pub(super) fn cannot_read(media: &Media, role: Role) -> Option<String> {
    let essence = media.essence();
    let is_text = essence.starts_with("text/") || essence == PDF;
    let why = match (role, media.kind()) {
        (Role::Assistant, Kind::Audio | Kind::Video | Kind::Document) => {
            "The service takes such media from users and tools only."
        }
        (_, Kind::Image) if !PICTURES.contains(&essence.as_str()) => {
            "The service takes PNG, JPEG, WebP, HEIC and HEIF pictures only."
        }
        (_, Kind::Document) if !is_text => "The service takes PDF and text files only.",
        (_, Kind::Image | Kind::Audio | Kind::Video | Kind::Document) => return None,
    };
    Some(why.to_owned())
}

/// A medium as a part; words where its content did not come with the prompt.
pub(super) fn part<'a>(media: &'a Media, contents: &Contents) -> Part<'a> {
    Part::new(data(media, contents))
}

/// What a part holds that is a medium.
pub(super) fn data<'a>(media: &'a Media, contents: &Contents) -> Data<'a> {
    match &media.source {
        Source::Url(url) => Data::FileData(FileData {
            mime_type: media.essence(),
            file_uri: url,
        }),
        Source::Blob(kept) => match contents.get(&kept.id) {
            Some(content) => Data::InlineData(InlineData {
                mime_type: media_type::of(media, content),
                data: STANDARD.encode(content),
            }),
            None => Data::Text(Cow::Borrowed(UNSUPPORTED_WORDS)),
        },
    }
}

/// Whether a tool's result may hold the medium itself.
pub(super) fn fits_in_result(media: &Media, contents: &Contents) -> bool {
    let here = media
        .kept()
        .is_some_and(|kept| contents.get(&kept.id).is_some());
    here && IN_RESULTS.contains(&media.essence().as_str())
}
