//! Images that models generate: base64 content, or a URL.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::media_type;
use crate::model::NewContent;

/// Limit on the length of a URL that is kept, in bytes.
const MAX_URL_BYTES: usize = 8_192;

/// An image that a model generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GeneratedImage {
    Content(NewContent),
    Url(String),
}

/// Decodes an image in base64. Returns `None` if its first bytes are not those of a known image
/// format.
pub(super) fn content(base64: &str) -> Option<NewContent> {
    let bytes = STANDARD.decode(base64.trim_end()).ok()?;
    let media_type = media_type::picture(&bytes)?;
    Some(NewContent::new(media_type.to_owned(), bytes))
}

/// Reads an image URL, including `data:` URLs. Returns `None` if it is invalid.
pub(super) fn at(url: &str) -> Option<GeneratedImage> {
    match url.strip_prefix("data:") {
        Some(data) => {
            let (_, base64) = data.split_once(";base64,")?;
            content(base64).map(GeneratedImage::Content)
        }
        None => {
            let is_address = url.starts_with("https://") || url.starts_with("http://");
            (is_address && url.len() <= MAX_URL_BYTES).then(|| GeneratedImage::Url(url.to_owned()))
        }
    }
}
