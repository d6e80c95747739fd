//! Encodes media in the format of the Responses API: images and files as contents.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{dialect::MediaSupport, wire::Content};
use crate::{
    model::{
        Contents, Media, Role,
        media::{Kind, Source, UNSUPPORTED_TEXT},
    },
    provider::media_type,
};

/// Image types that every service with image support accepts.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Why a media part cannot be sent to any model of a service. Returns `None` if it can.
pub(super) fn unsupported_media(takes: MediaSupport, media: &Media, role: Role) -> Option<String> {
    let elsewhere = matches!(media.source, Source::Url(_));
    let why = match (role, media.kind()) {
        // Sent as the item of the tool that generated the image, if this model called it.
        (Role::Assistant, Kind::Image) if !elsewhere => return None,
        (Role::Assistant, _) => "The service accepts media only in user messages and tool results.",
        (_, Kind::Image) if !PICTURES.contains(&media.essence().as_str()) => {
            "The service accepts only PNG, JPEG, GIF and WebP images."
        }
        (_, Kind::Document) if !takes.files => "The service does not accept files.",
        (_, Kind::Image | Kind::Document) if elsewhere && !takes.image_urls => {
            "The service does not fetch URLs: store the content."
        }
        (_, Kind::Audio) => "The service does not accept audio.",
        (_, Kind::Video) => "The service does not accept video.",
        (_, Kind::Image | Kind::Document) => return None,
    };
    Some(why.to_owned())
}

/// Encodes a media part as a content. If its content is not part of the prompt, returns text
/// instead.
pub(super) fn content<'a>(media: &'a Media, contents: &Contents) -> Content<'a> {
    let unsupported = Content::InputText {
        text: Cow::Borrowed(UNSUPPORTED_TEXT),
    };
    let stored = || {
        let content = contents.get(&media.blob()?.id)?;
        let data = STANDARD.encode(content);
        let media_type = media_type::of(media, content);
        Some(format!("data:{media_type};base64,{data}"))
    };
    let address = match &media.source {
        Source::Url(url) => Some(url.as_str()),
        Source::Blob(_) => None,
    };
    match media.kind() {
        Kind::Image => {
            let image_url = address
                .map(Cow::Borrowed)
                .or_else(|| stored().map(Cow::Owned));
            let picture = |image_url| Content::InputImage {
                image_url,
                detail: "auto",
            };
            image_url.map_or(unsupported, picture)
        }
        Kind::Document => {
            let named = (!media.filename.is_empty()).then_some(media.filename.as_str());
            match (address, stored()) {
                (Some(url), _) => Content::InputFile {
                    filename: None,
                    file_data: None,
                    file_url: Some(url),
                },
                (None, Some(data)) => Content::InputFile {
                    filename: named.or(Some("file")),
                    file_data: Some(data),
                    file_url: None,
                },
                (None, None) => unsupported,
            }
        }
        Kind::Audio | Kind::Video => unsupported,
    }
}
