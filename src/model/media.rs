//! Images, documents, sounds and videos: what they are and where their content is, never the
//! content itself.

use std::{collections::BTreeMap, fmt, num::NonZeroU32, sync::Arc};

use super::{BlobId, MessageId, derive};

/// What the model reads in place of a medium that it cannot take (feature row D4).
pub const UNSUPPORTED_WORDS: &str = "[unsupported content]";

/// An image, document, sound or video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// Its MIME type as the host wrote it.
    pub media_type: String,
    /// Where its content is.
    pub source: Source,
    /// Name of the file; empty when it has none.
    pub filename: String,
}

/// Where content is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// It is stored.
    Blob(Kept),
    /// At this address, from which the provider fetches it.
    Url(String),
}

/// Stored content, as far as its size goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Under which id.
    pub id: BlobId,
    /// Its length in bytes.
    pub bytes: u64,
    /// Of a picture whose beginning could be read: how large it is.
    pub pixels: Option<Pixels>,
}

/// A medium that the model does not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The message.
    pub message: MessageId,
    /// Which of its parts; of a medium in a result, the result.
    pub part: usize,
    /// Its MIME type.
    pub media_type: String,
    /// Name of the file; empty when it has none.
    pub filename: String,
    /// Why, in a sentence.
    pub why: String,
}

/// How large a picture is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pixels {
    /// From left to right.
    pub width: NonZeroU32,
    /// From top to bottom.
    pub height: NonZeroU32,
}

/// What a medium is to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A picture.
    Image,
    /// A sound.
    Audio,
    /// A video.
    Video,
    /// Everything else.
    Document,
}

impl Media {
    /// The MIME type without its parameters, in lower case.
    pub fn essence(&self) -> String {
        self.media_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase()
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        match self.essence().split_once('/').map(|(kind, _)| kind) {
            Some("image") => Kind::Image,
            Some("audio") => Kind::Audio,
            Some("video") => Kind::Video,
            Some(_) | None => Kind::Document,
        }
    }

    /// Whether it is of such a type, given as `image/png` or `image/*`.
    pub fn is(&self, pattern: &str) -> bool {
        let essence = self.essence();
        let pattern = pattern.to_ascii_lowercase();
        match pattern.strip_suffix('*') {
            Some(kind) => essence.starts_with(kind),
            None => essence == pattern,
        }
    }

    /// Its stored content. `None` means it is elsewhere.
    pub fn kept(&self) -> Option<&Kept> {
        match &self.source {
            Source::Blob(kept) => Some(kept),
            Source::Url(_) => None,
        }
    }

    /// What to call it: the name of the file if it has one, and the type.
    pub fn title(&self) -> String {
        match self.filename.as_str() {
            "" => self.essence(),
            name => format!("{name} ({})", self.essence()),
        }
    }
}

impl Pixels {
    /// None: one of the two is 0.
    pub fn new(width: u32, height: u32) -> Option<Self> {
        Some(Self {
            width: NonZeroU32::new(width)?,
            height: NonZeroU32::new(height)?,
        })
    }
}

/// Whether the text is a MIME type: `type/subtype`, with parameters or without.
pub fn is_media_type(text: &str) -> bool {
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    let halves = essence.trim_end().split_once('/');
    halves.is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
        && parameters.chars().all(|c| c == ' ' || c.is_ascii_graphic())
}

/// A token of RFC 9110.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

/// Content that came with a request, to be stored before anything refers to it. It is never
/// printed.
#[derive(Clone, PartialEq, Eq)]
pub struct NewContent {
    id: BlobId,
    media_type: String,
    bytes: Vec<u8>,
}

impl NewContent {
    /// Content and what it is.
    pub fn new(media_type: String, bytes: Vec<u8>) -> Self {
        Self {
            id: derive::blob(&bytes),
            media_type,
            bytes,
        }
    }

    /// The id that follows from the content.
    pub fn id(&self) -> &BlobId {
        &self.id
    }

    /// Its MIME type.
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
        write!(
            f,
            "{} ({}, {} bytes)",
            self.id,
            self.media_type,
            self.bytes.len()
        )
    }
}

/// The content of a prompt's media, by its ids. It is never printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Contents(BTreeMap<BlobId, Arc<[u8]>>);

impl Contents {
    /// The content under an id.
    pub fn get(&self, id: &BlobId) -> Option<&Arc<[u8]>> {
        self.0.get(id)
    }

    /// Adds content.
    pub fn insert(&mut self, id: BlobId, bytes: Arc<[u8]>) {
        self.0.insert(id, bytes);
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> usize {
        self.0.values().map(|bytes| bytes.len()).sum()
    }

    /// Drops whatever is not wanted any more.
    pub fn retain(&mut self, wanted: impl Fn(&BlobId) -> bool) {
        self.0.retain(|id, _| wanted(id));
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.0.iter().map(|(id, bytes)| (id.as_str(), bytes.len())))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media(media_type: &str) -> Media {
        let media_type = media_type.to_owned();
        let filename = "a.bin".to_owned();
        Media {
            media_type,
            filename,
            source: Source::Url("https://example.org/a".to_owned()),
        }
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
            assert_eq!(
                (media.kind(), media.is(pattern)),
                (kind, fits),
                "{media_type} {pattern}"
            );
        }
    }

    #[test]
    fn media_content_is_not_in_debug_output() {
        let content = NewContent::new("image/png".to_owned(), b"secret".to_vec());
        let mut contents = Contents::default();
        contents.insert(content.id().clone(), content.bytes().into());
        for printed in [format!("{content:?}"), format!("{contents:?}")] {
            assert!(
                printed.contains('6') && !printed.contains("secret") && !printed.contains("115"),
                "{printed}"
            );
        }
    }
}
