//! Decodes the page size and page token of list requests.

use super::{Findings, Path, number};

/// Default number of items in a page.
const DEFAULT_PAGE_SIZE: u32 = 50;
/// Maximum number of items in a page. A larger `page_size` is reduced to it.
const MAX_PAGE_SIZE: u32 = 1_000;

/// The page that a list request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// Maximum number of items.
    pub size: u32,
    /// The encoded position at which to continue. `None` for the first page.
    pub token: Option<String>,
}

/// Decodes `page_size` and `page_token`.
pub(super) fn page(page_size: i32, page_token: String, found: &mut Findings) -> PageRequest {
    let token = (!page_token.is_empty()).then_some(page_token);
    PageRequest {
        size: size(page_size, DEFAULT_PAGE_SIZE, found),
        token,
    }
}

/// Decodes `page_size`, with the list's default.
pub(super) fn size(page_size: i32, default: u32, found: &mut Findings) -> u32 {
    number::count(Path::to("page_size"), page_size, found)
        .unwrap_or(default)
        .min(MAX_PAGE_SIZE)
}
