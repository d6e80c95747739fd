//! Encodes media in the format of Chat Completions: images, files and audio as parts of a user
//! message.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{dialect::MediaSupport, wire};
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
    let why = match (role, media.kind(), &media.source) {
        (Role::Assistant, Kind::Image, _) if takes.own_pictures => return None,
        (Role::Assistant, ..) => {
            "The service accepts media only in user messages and tool results."
        }
        (_, Kind::Image, _) if !takes.pictures => "The service does not accept images.",
        (_, Kind::Image, _) if !PICTURES.contains(&media.essence().as_str()) => {
            "The service accepts only PNG, JPEG, GIF and WebP images."
        }
        (_, Kind::Image, Source::Url(_)) if !takes.image_urls => {
            "The service does not fetch URLs: store the content."
        }
        (_, Kind::Audio, _) if !takes.sounds => "The service does not accept audio.",
        (_, Kind::Audio, _) if sound(media).is_none() => {
            "The service accepts only WAV and MP3 audio."
        }
        (_, Kind::Document, _) if !takes.files => "The service does not accept files.",
        (_, Kind::Video, _) => "The service does not accept video.",
        (_, Kind::Audio | Kind::Document, Source::Url(_)) => {
            "The service fetches only images from URLs: store the content."
        }
        (_, Kind::Image | Kind::Audio | Kind::Document, _) => return None,
    };
    Some(why.to_owned())
}

/// Encodes a media part. If its content is not part of the prompt, returns text instead.
pub(super) fn part<'a>(media: &'a Media, contents: &Contents) -> wire::UserPart<'a> {
    let text = |text: &'static str| wire::UserPart::Text {
        text: Cow::Borrowed(text),
    };
    let kept = match &media.source {
        Source::Url(url) => {
            let image_url = wire::Url {
                url: Cow::Borrowed(url),
            };
            return if media.kind() == Kind::Image {
                wire::UserPart::ImageUrl { image_url }
            } else {
                text(UNSUPPORTED_TEXT)
            };
        }
        Source::Blob(kept) => kept,
    };
    let Some(content) = contents.get(&kept.id) else {
        return text(UNSUPPORTED_TEXT);
    };
    let data = STANDARD.encode(content);
    match (media.kind(), sound(media)) {
        (Kind::Image, _) => wire::UserPart::ImageUrl {
            image_url: wire::Url {
                url: Cow::Owned(inline(media, content, &data)),
            },
        },
        (Kind::Audio, Some(format)) => wire::UserPart::InputAudio {
            input_audio: wire::Audio { data, format },
        },
        (Kind::Document, _) => {
            let filename = if media.filename.is_empty() {
                "file"
            } else {
                &media.filename
            };
            wire::UserPart::File {
                file: wire::File {
                    filename,
                    file_data: inline(media, content, &data),
                },
            }
        }
        (Kind::Audio | Kind::Video, _) => text(UNSUPPORTED_TEXT),
    }
}

/// Content as a `data:` URL.
fn inline(media: &Media, content: &[u8], data: &str) -> String {
    format!("data:{};base64,{data}", media_type::of(media, content))
}

/// The name of an audio format. Returns `None` if the service has none for it.
fn sound(media: &Media) -> Option<&'static str> {
    match media.essence().as_str() {
        "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => Some("wav"),
        "audio/mpeg" | "audio/mp3" => Some("mp3"),
        _ => None,
    }
}
