//! Messages in the shapes of other APIs, read into neutral ones. Pure: everything that is wrong is
//! noted with its path, and content is handed out as it came.
//!
//! Each shape is read by the `import` module of its protocol.

mod media;
mod message;
mod node;
mod read;
mod reading;

pub(super) use media::{at_address, encoded, from_data_or_url, inline};
pub use message::{
    FlawKind, Foreign, ForeignContent, ForeignFlaw, ForeignGiven, ForeignMedia, ForeignMessage,
    ForeignOutcome, ForeignPart, ForeignSource,
};
pub(super) use node::{Node, Object};
pub use read::read;
pub(super) use reading::Reading;

#[cfg(test)]
mod tests;
