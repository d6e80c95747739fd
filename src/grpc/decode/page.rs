//! How much of a list is wanted, and from where.

use super::{Findings, Path, number};

/// Items of a page when the request does not say.
const DEFAULT: u32 = 50;
/// Most items of a page; who asks for more gets this many.
const MOST: u32 = 1_000;

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// Most items.
    pub size: u32,
    /// Where to go on, still encoded. `None` means the first page.
    pub token: Option<String>,
}

/// Reads `page_size` and `page_token`.
pub(super) fn page(page_size: i32, page_token: String, found: &mut Findings) -> PageRequest {
    let token = (!page_token.is_empty()).then_some(page_token);
    PageRequest {
        size: size(page_size, DEFAULT, found),
        token,
    }
}

/// Reads `page_size` with the default of its list.
pub(super) fn size(page_size: i32, default: u32, found: &mut Findings) -> u32 {
    number::count(Path::to("page_size"), page_size, found)
        .unwrap_or(default)
        .min(MOST)
}
