//! Reads images, audio and files: base64 content, `data:` URLs and other URLs.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use super::{FlawKind, ForeignMedia, ForeignSource, Importer, Node};

/// The media type of content that does not state one.
const BYTES: &str = "application/octet-stream";

/// The media type of an image that does not state one.
pub(crate) const PICTURE: &str = "image/jpeg";

/// The media type of a file that does not state one.
pub(crate) const PDF: &str = "application/pdf";

/// Base64 with or without padding.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const PLAIN: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const FOR_ADDRESSES: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Media types by file extension.
const BY_ENDING: [(&str, &str); 14] = [
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("pdf", "application/pdf"),
    ("txt", "text/plain"),
    ("md", "text/markdown"),
    ("csv", "text/csv"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("mp4", "video/mp4"),
];

/// Inline content with its media type.
pub(crate) fn inline(media_type: String, filename: String, data: Vec<u8>) -> ForeignMedia {
    ForeignMedia { media_type: or(media_type, BYTES), filename, source: ForeignSource::Data(data) }
}

/// Content at a URL. If its type is not stated, it is derived from the extension of the URL, or
/// else is `usual`.
pub(crate) fn at_url(url: String, media_type: String, filename: String, usual: &str) -> ForeignMedia {
    ForeignMedia {
        media_type: or(media_type, by_ending(&url).unwrap_or(usual)),
        filename,
        source: ForeignSource::Url(url),
    }
}

/// Decodes base64 content. Anything else is noted.
pub(crate) fn decode_base64(node: &Node<'_>, reading: &mut Importer<'_>) -> Option<Vec<u8>> {
    let text = node.text(reading);
    decoded(&text).or_else(|| {
        if node.is_text() {
            let why = "must be base64 content";
            reading.note(node.at.clone(), FlawKind::Malformed, why);
        }
        None
    })
}

/// Reads a `data:` URL, which contains its content, or another URL.
pub(crate) fn from_data_or_url(
    node: &Node<'_>,
    media_type: String,
    filename: String,
    usual: &str,
    reading: &mut Importer<'_>,
) -> Option<ForeignMedia> {
    let text = node.text(reading);
    let scheme = text.get(..5).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("data:") {
        return node.is_text().then(|| at_url(text, media_type, filename, usual));
    }
    let read = || {
        let (head, data) = text[5..].split_once(',')?;
        let said = head.strip_suffix(";base64")?;
        Some(inline(or(media_type, said), filename, decoded(data)?))
    };
    let media = read();
    if media.is_none() {
        let why = "must contain base64 content if it is a data: URL";
        reading.note(node.at.clone(), FlawKind::Malformed, why);
    }
    media
}

/// The media type, or another one if it is not stated.
pub(crate) fn or(media_type: String, other: &str) -> String {
    if media_type.is_empty() { other.to_owned() } else { media_type }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let text: String = text.split_ascii_whitespace().collect();
    let plain = PLAIN.decode(&text);
    plain.or_else(|_| FOR_ADDRESSES.decode(&text)).ok()
}

fn by_ending(url: &str) -> Option<&'static str> {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let (_, ending) = path.rsplit_once('.')?;
    let ending = ending.to_ascii_lowercase();
    let known = BY_ENDING.iter().find(|(known, _)| *known == ending);
    known.map(|(_, media_type)| *media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_in_base64_is_read_with_and_without_padding() {
        for text in ["aGk=", "aGk", "aG\nk="] {
            assert_eq!(decoded(text).as_deref(), Some(b"hi".as_slice()), "{text}");
        }
        assert_eq!(decoded("_-8="), decoded("/+8="));
        assert_eq!(decoded("a*"), None);
    }

    #[test]
    fn the_end_of_an_address_tells_what_is_there() {
        let table = [
            ("https://a.example/cat.PNG?size=1.5#x", Some("image/png")),
            ("https://a.example/paper.pdf", Some("application/pdf")),
            ("https://a.example/cat", None),
            ("https://a.example/cat.xyz", None),
        ];
        for (url, expected) in table {
            assert_eq!(by_ending(url), expected, "{url}");
        }
    }
}
