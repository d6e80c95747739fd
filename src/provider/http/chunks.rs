//! The chunks of a response that are decoded but not yet returned, with what the decoders of all
//! protocols add in the same way.

use std::collections::VecDeque;

use serde::Serialize;

use super::lenient::{Joiner, Text};
use crate::provider::{Chunk, authorship, chunk::TextKind};

/// Decoded chunks, in order.
#[derive(Debug, Default)]
pub struct Chunks(VecDeque<Chunk>);

impl Chunks {
    /// Adds a chunk.
    pub fn push(&mut self, chunk: Chunk) {
        self.0.push_back(chunk);
    }

    /// Adds text, unless it is empty.
    pub fn text(&mut self, kind: TextKind, text: Text) {
        self.add(text, |text| kind.chunk(text));
    }

    /// Adds arguments of a call, unless they are empty.
    pub fn input(&mut self, index: u32, text: Text) {
        self.add(text, |json| Chunk::ToolInput { index, json });
    }

    /// Ends a text. An unpaired surrogate at its end is replaced.
    pub fn end_text(&mut self, kind: TextKind, joiner: &mut Joiner) {
        self.text(kind, joiner.rest());
    }

    /// Attaches metadata of a kind of provider to the part that was written last.
    pub fn attach(&mut self, kind: &str, own: impl Serialize) {
        self.push(Chunk::PartMetadata(authorship::metadata(kind, own)));
    }

    /// Attaches metadata of a kind of provider to a call.
    pub fn attach_to_call(&mut self, index: u32, kind: &str, own: impl Serialize) {
        let json = authorship::metadata(kind, own);
        self.push(Chunk::CallMetadata { index, json });
    }

    fn add(&mut self, Text { text, replaced }: Text, chunk: impl FnOnce(String) -> Chunk) {
        if !text.is_empty() {
            self.push(chunk(text));
        }
        self.extend(replaced.then_some(Chunk::Sanitized));
    }

    /// Removes and returns the first chunk.
    pub fn pop(&mut self) -> Option<Chunk> {
        self.0.pop_front()
    }

    /// The last chunk.
    pub fn last(&self) -> Option<&Chunk> {
        self.0.back()
    }

    /// The number of chunks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no chunks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes and returns all chunks.
    pub fn drain(&mut self) -> impl Iterator<Item = Chunk> {
        self.0.drain(..)
    }
}

impl Extend<Chunk> for Chunks {
    fn extend<I: IntoIterator<Item = Chunk>>(&mut self, chunks: I) {
        self.0.extend(chunks);
    }
}
