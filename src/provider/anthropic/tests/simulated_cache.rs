//! Simulates Anthropic's prompt cache as documented, and an ideal cache of every prefix, for tests
//! and a benchmark.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde_json::Value;

/// Number of blocks before a marker that the service looks up.
const LOOK_BACK: usize = 20;

/// A request as blocks, in the order in which the service hashes them.
#[derive(Default)]
pub(crate) struct Request {
    /// For each block, the hash of everything up to and including it.
    prefixes: Vec<u64>,
    /// For each block, the bytes of everything up to and including it.
    sizes: Vec<usize>,
    /// Indexes of the blocks that have a marker.
    pub(crate) marked: Vec<usize>,
}

impl Request {
    /// Splits a request body into blocks.
    pub(crate) fn of(mut body: Value) -> Self {
        let mut request = Self::default();
        for place in ["tools", "system"] {
            if body[place].is_null() {
                continue;
            }
            for block in body[place].as_array_mut().expect("a list") {
                request.add(place, block);
            }
        }
        for message in body["messages"].as_array_mut().expect("a list") {
            let role = message["role"].take();
            for block in message["content"].as_array_mut().expect("blocks") {
                request.add(role.as_str().expect("a role"), block);
            }
        }
        request
    }

    fn add(&mut self, place: &str, block: &mut Value) {
        let fields = block.as_object_mut().expect("a block");
        if fields.remove("cache_control").is_some() {
            self.marked.push(self.prefixes.len());
        }
        let text = block.to_string();
        let mut hasher = DefaultHasher::new();
        (self.prefixes.last(), place, &text).hash(&mut hasher);
        self.prefixes.push(hasher.finish());
        let before = self.sizes.last().copied().unwrap_or(0);
        self.sizes.push(before + text.len());
    }

    /// Bytes up to and including the last of these blocks that the cache holds.
    fn held(&self, cache: &BTreeSet<u64>, blocks: impl DoubleEndedIterator<Item = usize>) -> usize {
        blocks.rev().find(|block| cache.contains(&self.prefixes[*block])).map_or(0, |block| self.sizes[block])
    }
}

/// The service's cache, and an ideal cache of every prefix.
#[derive(Default)]
pub(crate) struct Caches {
    marked: BTreeSet<u64>,
    every: BTreeSet<u64>,
    sent: usize,
    read: usize,
    ideal: usize,
}

impl Caches {
    /// Reads the cached prefix of a request, and stores the marked prefixes.
    pub(crate) fn call(&mut self, request: &Request) {
        let near = |at: &usize| at.saturating_sub(LOOK_BACK)..=*at;
        let looked_at: BTreeSet<usize> = request.marked.iter().flat_map(near).collect();
        self.sent += request.sizes.last().expect("blocks");
        self.read += request.held(&self.marked, looked_at.into_iter());
        self.ideal += request.held(&self.every, 0..request.prefixes.len());
        let written = request.marked.iter().map(|at| request.prefixes[*at]);
        self.marked.extend(written);
        self.every.extend(&request.prefixes);
    }

    /// The fractions of the sent bytes that this cache read, and that the ideal cache would have
    /// read.
    pub(crate) fn shares(&self) -> (f64, f64) {
        let share = |bytes: usize| bytes as f64 / self.sent as f64;
        (share(self.read), share(self.ideal))
    }
}
