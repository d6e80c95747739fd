//! Encodes media in the format of the Responses API: images and files as contents.

use std::borrow::Cow;

use super::{dialect::MediaSupport, wire::Content};
use crate::{
    model::{
        Contents, Media, Role,
        media::{Kind, Source, UNSUPPORTED_TEXT},
    },
    provider::{media_type, refusals as why},
};

/// Why a media part cannot be sent to any model of a service. Returns `None` if it can.
pub(super) fn unsupported_media(takes: MediaSupport, media: &Media, role: Role) -> Option<String> {
    let elsewhere = matches!(media.source, Source::Url(_));
    let why = match (role, media.kind()) {
        // Sent as the item of the tool that generated the image, if this model called it.
        (Role::Assistant, Kind::Image) if !elsewhere => return None,
        (Role::Assistant, _) => why::MEDIA_PLACE,
        (_, Kind::Image) if !media_type::is_usual_picture(media) => why::IMAGE_TYPES,
        (_, Kind::Document) if !takes.files => why::NO_FILES,
        (_, Kind::Image | Kind::Document) if elsewhere && !takes.image_urls => why::NO_URLS,
        (_, Kind::Audio) => why::NO_AUDIO,
        (_, Kind::Video) => why::NO_VIDEO,
        (_, Kind::Image | Kind::Document) => return None,
    };
    Some(why.to_owned())
}

/// Encodes a media part as a content. If its content is not part of the prompt, returns text
/// instead.
pub(super) fn content<'a>(media: &'a Media, contents: &Contents) -> Content<'a> {
    let url = match &media.source {
        Source::Url(url) => Some(Cow::Borrowed(url.as_str())),
        Source::Blob(kept) => {
            let content = contents.get(&kept.id);
            content.map(|content| Cow::Owned(media_type::data_url(media, content)))
        }
    };
    match (media.kind(), url) {
        (Kind::Image, Some(image_url)) => Content::InputImage { image_url, detail: "auto" },
        (Kind::Document, Some(Cow::Borrowed(url))) => {
            Content::InputFile { filename: None, file_data: None, file_url: Some(url) }
        }
        (Kind::Document, Some(Cow::Owned(data))) => Content::InputFile {
            filename: media_type::filename(media).or(Some("file")),
            file_data: Some(data),
            file_url: None,
        },
        (Kind::Audio | Kind::Video, _) | (_, None) => Content::text(UNSUPPORTED_TEXT),
    }
}
