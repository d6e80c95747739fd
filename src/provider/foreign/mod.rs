//! Reads messages in the formats of other APIs into neutral messages, and writes stored messages in
//! those formats. Reading and writing are pure: every defect is noted with its path, and content is
//! returned unchanged.
//!
//! Each format is read by the `import` module of its protocol and written by its `history` module.

mod exporter;
mod importer;
mod media;
mod message;
mod node;
mod order;
mod read;
mod write;

pub(super) use exporter::{Exporter, MediaLocation, message, named, raw, sources};
pub(super) use importer::Importer;
pub(super) use media::{PDF, PICTURE, at_url, decode_base64, from_data_or_url, inline, or};
pub(super) use message::outcome;
pub use message::{
    FlawKind, ForeignContent, ForeignConversation, ForeignFlaw, ForeignMedia, ForeignMessage, ForeignPart,
    ForeignSource,
};
pub(super) use node::{Node, Object};
pub use read::read;
pub use write::{WrittenMessage, write};

#[cfg(test)]
mod tests;
