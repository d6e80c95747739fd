//! Images, documents, audio and video: their type and location, not their content.

use std::{collections::BTreeMap, fmt, num::NonZeroU32, sync::Arc};

use super::{BlobId, MessageId, derive};

/// Text that replaces a medium that the model does not support (feature row D4).
pub const UNSUPPORTED_TEXT: &str = "[unsupported content]";

/// An image, document, audio or video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// MIME type as sent by the host.
    pub media_type: String,
    pub source: Source,
    /// Name of the file; empty if it has none.
    pub filename: String,
}

/// Location of the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Stored by this service.
    Blob(BlobRef),
    /// A URL from which the provider fetches it.
    Url(String),
}

/// Reference to stored content, with the properties that determine its size in tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobRef {
    pub id: BlobId,
    /// Length in bytes.
    pub bytes: u64,
    /// Dimensions of an image whose header could be parsed.
    pub pixels: Option<Pixels>,
}

/// A medium that was not sent to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmittedMedia {
    pub message: MessageId,
    /// Index of the part; for a medium in a tool result, the index of the result.
    pub part: usize,
    pub media_type: String,
    /// Name of the file; empty if it has none.
    pub filename: String,
    /// The reason, in one sentence.
    pub why: String,
}

/// Dimensions of an image in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pixels {
    pub width: NonZeroU32,
    pub height: NonZeroU32,
}

/// The kind of a medium, by which models differ in support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Image,
    Audio,
    Video,
    /// Everything else.
    Document,
}

impl Media {
    /// The MIME type without parameters, in lower case.
    pub fn essence(&self) -> String {
        self.media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// The kind, derived from the MIME type.
    pub fn kind(&self) -> Kind {
        match self.essence().split_once('/').map(|(kind, _)| kind) {
            Some("image") => Kind::Image,
            Some("audio") => Kind::Audio,
            Some("video") => Kind::Video,
            Some(_) | None => Kind::Document,
        }
    }

    /// Whether the MIME type matches the pattern, given as `image/png` or `image/*`.
    pub fn is(&self, pattern: &str) -> bool {
        let essence = self.essence();
        let pattern = pattern.to_ascii_lowercase();
        match pattern.strip_suffix('*') {
            Some(kind) => essence.starts_with(kind),
            None => essence == pattern,
        }
    }

    /// The stored content. Returns `None` if the content is at a URL.
    pub fn blob(&self) -> Option<&BlobRef> {
        match &self.source {
            Source::Blob(kept) => Some(kept),
            Source::Url(_) => None,
        }
    }

    /// A label for the medium: the file name, if any, and the type.
    pub fn title(&self) -> String {
        match self.filename.as_str() {
            "" => self.essence(),
            name => format!("{name} ({})", self.essence()),
        }
    }
}

impl Pixels {
    /// Returns `None` if either is 0.
    pub fn new(width: u32, height: u32) -> Option<Self> {
        Some(Self { width: NonZeroU32::new(width)?, height: NonZeroU32::new(height)? })
    }
}

/// Whether the text is a MIME type: `type/subtype`, with or without parameters.
pub fn is_media_type(text: &str) -> bool {
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    let halves = essence.trim_end().split_once('/');
    halves.is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
        && parameters.chars().all(|c| c == ' ' || c.is_ascii_graphic())
}

/// Whether the text is a token as defined in RFC 9110.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

/// Content uploaded with a request. It is stored before anything refers to it. `Debug` does not print the content.
#[derive(Clone, PartialEq, Eq)]
pub struct NewContent {
    id: BlobId,
    media_type: String,
    bytes: Vec<u8>,
}

impl NewContent {
    /// Computes the id from the content.
    pub fn new(media_type: String, bytes: Vec<u8>) -> Self {
        Self { id: derive::blob(&bytes), media_type, bytes }
    }

    /// The id derived from the content.
    pub fn id(&self) -> &BlobId {
        &self.id
    }

    /// The MIME type.
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for NewContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {} bytes)", self.id, self.media_type, self.bytes.len())
    }
}

/// The content of a prompt's media by id. `Debug` does not print the content.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Contents(BTreeMap<BlobId, Arc<[u8]>>);

impl Contents {
    /// The content with this id.
    pub fn get(&self, id: &BlobId) -> Option<&Arc<[u8]>> {
        self.0.get(id)
    }

    /// Adds content.
    pub fn insert(&mut self, id: BlobId, bytes: Arc<[u8]>) {
        self.0.insert(id, bytes);
    }

    /// Total size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.values().map(|bytes| bytes.len()).sum()
    }

    /// Removes the content for which `wanted` is false.
    pub fn retain(&mut self, wanted: impl Fn(&BlobId) -> bool) {
        self.0.retain(|id, _| wanted(id));
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(id, bytes)| (id.as_str(), bytes.len()))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media(media_type: &str) -> Media {
        let media_type = media_type.to_owned();
        let filename = "a.bin".to_owned();
        Media { media_type, filename, source: Source::Url("https://example.org/a".to_owned()) }
    }

    #[test]
    fn media_kind_ignores_case_and_parameters() {
        let table = [
            ("image/png", Kind::Image, "image/*", true),
            ("IMAGE/PNG; q=1", Kind::Image, "image/png", true),
            ("image/png", Kind::Image, "image/jpeg", false),
            ("audio/wav", Kind::Audio, "audio/wav", true),
            ("video/mp4", Kind::Video, "image/*", false),
            ("application/pdf", Kind::Document, "application/pdf", true),
            ("imagery/png", Kind::Document, "image/*", false),
        ];
        for (media_type, kind, pattern, fits) in table {
            let media = media(media_type);
            assert_eq!((media.kind(), media.is(pattern)), (kind, fits), "{media_type} {pattern}");
        }
    }

    #[test]
    fn media_content_is_not_in_debug_output() {
        let content = NewContent::new("image/png".to_owned(), b"secret".to_vec());
        let mut contents = Contents::default();
        contents.insert(content.id().clone(), content.bytes().into());
        for printed in [format!("{content:?}"), format!("{contents:?}")] {
            assert!(printed.contains('6') && !printed.contains("secret") && !printed.contains("115"), "{printed}");
        }
    }

    #[test]
    fn a_media_type_has_two_halves_and_printable_parameters() {
        for text in ["image/png", "text/plain; charset=utf-8", "application/vnd.a+json", "TEXT/X ;a=\"b c\""] {
            assert!(is_media_type(text), "{text}");
        }
        for text in ["png", "image/", "/png", "image/png/x", "image /png", "text/plain; a=\n", "té/xt", "; a", " a/b"]
        {
            assert!(!is_media_type(text), "{text}");
        }
    }
}
