//! Fills a page of a list: up to a number of items and of bytes, from the position in a page token on.

use std::str::FromStr;

use prost::Message;

use super::{
    decode::PageRequest,
    page_budget::PageBudget,
    page_token::{self, BadToken},
};

/// A page that is being filled. Its list is read in batches: while [`Pager::next_read`] returns a number of items to
/// read, they pass [`Pager::take`], and those that it leaves are pushed.
#[derive(Debug)]
pub(super) struct Pager<P, T> {
    list: &'static str,
    filter: String,
    size: usize,
    /// The position of the last item. `None` at the beginning of the list.
    pub(super) position: Option<P>,
    items: Vec<T>,
    budget: PageBudget,
    /// Whether the list has more items.
    has_more: bool,
    is_full: bool,
}

impl<P: FromStr + ToString, T: Message> Pager<P, T> {
    /// A page of `list`, an RPC. `filter` is everything that selects its rows: the tenant, the session and the request's
    /// filters.
    pub(super) fn new(list: &'static str, filter: String, wanted: PageRequest) -> Result<Self, BadToken> {
        let position = match wanted.token {
            Some(token) => Some(page_token::decode(&token, list, &filter)?.parse().map_err(|_| BadToken)?),
            None => None,
        };
        Ok(Self {
            list,
            filter,
            size: wanted.size as usize,
            position,
            items: Vec::new(),
            budget: PageBudget::default(),
            has_more: true,
            is_full: false,
        })
    }

    /// The number of items to read next, at most `most`. Returns `None` if the page is complete.
    pub(super) fn next_read(&self, most: u32) -> Option<u32> {
        let size = u32::try_from(self.size).unwrap_or(u32::MAX);
        (self.has_more && !self.is_full).then(|| most.min(size.saturating_add(1)))
    }

    /// The items that fit the number of items of the page, of those that were read. `has_more` is whether the list may
    /// have more.
    pub(super) fn take<I>(&mut self, mut read: Vec<I>, has_more: bool) -> Vec<I> {
        let room = self.size.saturating_sub(self.items.len());
        self.is_full = read.len() > room;
        self.has_more = has_more || self.is_full;
        read.truncate(room);
        read
    }

    /// Adds an item. Returns false, and completes the page, if it does not fit.
    pub(super) fn push(&mut self, position: P, item: T) -> bool {
        if !self.budget.try_reserve(item.encoded_len()) {
            (self.is_full, self.has_more) = (true, true);
            return false;
        }
        self.position = Some(position);
        self.items.push(item);
        true
    }

    /// The items, and the token of the next page. It is empty if there is none.
    pub(super) fn finish(self) -> (Vec<T>, String) {
        let next = self.position.filter(|_| self.has_more);
        let token = next.map(|next| page_token::encode(self.list, &self.filter, &next.to_string()));
        (self.items, token.unwrap_or_default())
    }
}
