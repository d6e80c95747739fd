//! The media type under which content is sent. Services compare it with the content and reject an
//! image of another type than declared.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::model::{Media, media::Kind};

/// Image types that nearly every service with image support accepts.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The type of a media part: for an image the type detected from its first bytes, otherwise, or if
/// none is detected, the type that the host declared.
pub(super) fn of(media: &Media, content: &[u8]) -> String {
    let told = match media.kind() {
        Kind::Image => picture(content),
        Kind::Audio | Kind::Video | Kind::Document => None,
    };
    told.map_or_else(|| media.essence(), str::to_owned)
}

/// Whether an image has a type that nearly every service accepts.
pub(super) fn is_usual_picture(media: &Media) -> bool {
    PICTURES.contains(&media.essence().as_str())
}

/// Content as a `data:` URL.
pub(super) fn data_url(media: &Media, content: &[u8]) -> String {
    let data = STANDARD.encode(content);
    format!("data:{};base64,{data}", of(media, content))
}

/// The name of a file. Returns `None` if it has none.
pub(super) fn filename(media: &Media) -> Option<&str> {
    Some(media.filename.as_str()).filter(|name| !name.is_empty())
}

/// Detects the type of an image from its first bytes. Returns `None` if it is no type that services
/// accept.
pub(super) fn picture(content: &[u8]) -> Option<&'static str> {
    let is_webp = content.starts_with(b"RIFF") && content.get(8..12) == Some(b"WEBP");
    match content {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        _ if is_webp => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        BlobId,
        media::{BlobRef, Source},
    };

    #[test]
    fn a_picture_has_the_type_of_its_content() {
        let table: [(&str, &[u8], &str); 8] = [
            ("image/jpeg", b"\x89PNG\r\n\x1a\n", "image/png"),
            ("image/png", b"\xff\xd8\xff\xe0", "image/jpeg"),
            ("image/png", b"GIF89a", "image/gif"),
            ("image/png", b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
            ("image/png", b"RIFF\x10\0\0\0WAVE", "image/png"),
            ("IMAGE/PNG; q=1", b"", "image/png"),
            ("image/heic", b"\0\0\0\x18ftypheic", "image/heic"),
            ("application/pdf", b"\x89PNG\r\n\x1a\n", "application/pdf"),
        ];
        for (named, content, expected) in table {
            let kept = BlobRef { id: BlobId::new("b"), bytes: content.len() as u64, pixels: None };
            let media = Media { media_type: named.to_owned(), source: Source::Blob(kept), filename: String::new() };
            assert_eq!(of(&media, content), expected, "{named}");
        }
    }
}
