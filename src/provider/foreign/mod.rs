//! Reads messages in the formats of other APIs into neutral messages, and writes stored messages in
//! those formats. Reading and writing are pure: every defect is noted with its path, and content is
//! returned unchanged.
//!
//! Each format is read by the `import` module of its protocol and written by its `history` module.

mod media;
mod message;
mod node;
mod order;
mod read;
mod reading;
mod write;
mod writing;

pub(super) use media::{at_address, encoded, from_data_or_url, inline};
pub use message::{
    FlawKind, Foreign, ForeignContent, ForeignFlaw, ForeignGiven, ForeignMedia, ForeignMessage,
    ForeignOutcome, ForeignPart, ForeignSource,
};
pub(super) use node::{Node, Object};
pub use read::read;
pub(super) use reading::Reading;
pub use write::{Written, write};
pub(super) use writing::{Place, Writing, plain, raw};

#[cfg(test)]
mod tests;
