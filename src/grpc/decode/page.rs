//! Decodes the page size and page token of list requests.

use super::{number, text};
use crate::pb::limits::list_sessions_request;

/// Default number of items in a page.
const DEFAULT_PAGE_SIZE: u32 = 50;

/// The page that a list request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// Maximum number of items.
    pub size: u32,
    /// The encoded position at which to continue. `None` for the first page.
    pub token: Option<String>,
}

impl PageRequest {
    /// Decodes `page_size` and `page_token`.
    pub(super) fn new(page_size: i32, page_token: String) -> Self {
        Self { size: size(page_size, DEFAULT_PAGE_SIZE), token: text::non_empty(page_token) }
    }
}

/// Decodes `page_size`, with the list's default.
pub(super) fn size(page_size: i32, default: u32) -> u32 {
    number::count(page_size.min(list_sessions_request::PAGE_SIZE)).unwrap_or(default)
}
