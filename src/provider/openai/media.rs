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
    provider::{media_type, refusals as why},
};

/// Why a media part cannot be sent to any model of a service. Returns `None` if it can.
pub(super) fn unsupported_media(takes: MediaSupport, media: &Media, role: Role) -> Option<String> {
    let why = match (role, media.kind(), &media.source) {
        (Role::Assistant, Kind::Image, _) if takes.own_pictures => return None,
        (Role::Assistant, ..) => why::MEDIA_PLACE,
        (_, Kind::Image, _) if !takes.pictures => "The service does not accept images.",
        (_, Kind::Image, _) if !media_type::is_usual_picture(media) => why::IMAGE_TYPES,
        (_, Kind::Image, Source::Url(_)) if !takes.image_urls => why::NO_URLS,
        (_, Kind::Audio, _) if !takes.sounds => why::NO_AUDIO,
        (_, Kind::Audio, _) if sound(media).is_none() => "The service accepts only WAV and MP3 audio.",
        (_, Kind::Document, _) if !takes.files => why::NO_FILES,
        (_, Kind::Video, _) => why::NO_VIDEO,
        (_, Kind::Audio | Kind::Document, Source::Url(_)) => {
            "The service fetches only images from URLs: store the content."
        }
        (_, Kind::Image | Kind::Audio | Kind::Document, _) => return None,
    };
    Some(why.to_owned())
}

/// Encodes a media part. If its content is not part of the prompt, returns text instead.
pub(super) fn part<'a>(media: &'a Media, contents: &Contents) -> wire::UserPart<'a> {
    let unsupported = || wire::UserPart::text(UNSUPPORTED_TEXT);
    let picture = |url| wire::UserPart::ImageUrl { image_url: wire::Url { url } };
    let kept = match &media.source {
        Source::Url(url) if media.kind() == Kind::Image => return picture(Cow::Borrowed(url)),
        Source::Url(_) => return unsupported(),
        Source::Blob(kept) => kept,
    };
    let Some(content) = contents.get(&kept.id) else {
        return unsupported();
    };
    match (media.kind(), sound(media)) {
        (Kind::Image, _) => picture(Cow::Owned(media_type::data_url(media, content))),
        (Kind::Audio, Some(format)) => {
            wire::UserPart::InputAudio { input_audio: wire::Audio { data: STANDARD.encode(content), format } }
        }
        (Kind::Document, _) => wire::UserPart::File {
            file: wire::File {
                filename: media_type::filename(media).unwrap_or("file"),
                file_data: media_type::data_url(media, content),
            },
        },
        (Kind::Audio | Kind::Video, _) => unsupported(),
    }
}

/// The name of an audio format. Returns `None` if the service has none for it.
fn sound(media: &Media) -> Option<&'static str> {
    match media.essence().as_str() {
        "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => Some("wav"),
        "audio/mpeg" | "audio/mp3" => Some("mp3"),
        _ => None,
    }
}
