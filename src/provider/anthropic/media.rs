//! Encodes images and files as blocks of a request.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::wire::{Block, Content, Source};
use crate::{
    model::{
        Contents, Media, Role,
        media::{self, Kind, UNSUPPORTED_TEXT},
    },
    provider::{media_type, refusals as why},
};

const PDF: &str = "application/pdf";
const PLAIN_TEXT: &str = "text/plain";

/// Why a media part cannot be sent to any model. Returns `None` if it can.
pub(super) fn unsupported_media(media: &Media, role: Role) -> Option<String> {
    let essence = media.essence();
    let why = match (role, media.kind(), &media.source) {
        (Role::Assistant, ..) => why::MEDIA_PLACE,
        (_, Kind::Image, _) if !media_type::is_usual_picture(media) => why::IMAGE_TYPES,
        (_, Kind::Audio, _) => why::NO_AUDIO,
        (_, Kind::Video, _) => why::NO_VIDEO,
        (_, Kind::Document, media::Source::Url(_)) if essence != PDF => {
            "The service fetches only images and PDF files from URLs: store the content."
        }
        (_, Kind::Document, _) if essence != PDF && essence != PLAIN_TEXT => {
            "The service accepts only PDF and plain text files."
        }
        (_, Kind::Image | Kind::Document, _) => return None,
    };
    Some(why.to_owned())
}

/// Encodes a media part as a block. If its content is not part of the prompt, returns text instead.
pub(super) fn block<'a>(media: &'a Media, contents: &Contents) -> Block<'a> {
    let Some(source) = source(media, contents) else {
        return Block::text(UNSUPPORTED_TEXT);
    };
    Block::new(match media.kind() {
        Kind::Image => Content::Image { source },
        Kind::Document => Content::Document { source, title: &media.filename },
        Kind::Audio | Kind::Video => return Block::text(UNSUPPORTED_TEXT),
    })
}

fn source<'a>(media: &'a Media, contents: &Contents) -> Option<Source<'a>> {
    let kept = match &media.source {
        media::Source::Url(url) => return Some(Source::Url { url }),
        media::Source::Blob(kept) => kept,
    };
    let content = contents.get(&kept.id)?;
    let media_type = media.essence();
    Some(if media_type == PLAIN_TEXT {
        Source::Text { media_type, data: String::from_utf8_lossy(content).into_owned() }
    } else {
        Source::Base64 { media_type: media_type::of(media, content), data: STANDARD.encode(content) }
    })
}
