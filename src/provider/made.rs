//! Pictures that models make: content in base64, or an address that holds it or leads to it.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::media_type;
use crate::model::NewContent;

/// Characters of an address that is kept.
const MAX_ADDRESS: usize = 8_192;

/// A picture that a model made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// Its content.
    Content(NewContent),
    /// Where it is.
    Address(String),
}

/// A picture in base64. `None` if it is none, as its first bytes say.
pub(super) fn content(base64: &str) -> Option<NewContent> {
    let bytes = STANDARD.decode(base64.trim_end()).ok()?;
    let media_type = media_type::picture(&bytes)?;
    Some(NewContent::new(media_type.to_owned(), bytes))
}

/// A picture at an address, or in a `data:` address. `None` if it cannot be read.
pub(super) fn at(url: &str) -> Option<Made> {
    match url.strip_prefix("data:") {
        Some(data) => {
            let (_, base64) = data.split_once(";base64,")?;
            content(base64).map(Made::Content)
        }
        None => {
            let is_address = url.starts_with("https://") || url.starts_with("http://");
            (is_address && url.len() <= MAX_ADDRESS).then(|| Made::Address(url.to_owned()))
        }
    }
}
