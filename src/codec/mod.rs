//! Conversions between model values and their stored and wire forms. Depends only on the model and the proto.

pub mod call;
pub mod category;
pub(crate) mod citation;
pub mod compaction;
pub mod config;
pub mod delta;
pub mod description;
pub mod error;
pub mod event;
pub mod failure;
pub mod field;
pub mod generation;
pub mod json;
pub mod ledger;
pub mod limits;
pub mod mask;
pub mod media;
pub mod message;
pub mod notice;
pub(crate) mod number;
pub mod part;
pub mod policy;
pub mod queue;
pub mod receipt;
pub mod response;
pub mod time;
pub mod tools;
pub mod turn;
pub mod usage;

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod golden;

pub use error::DecodeError;

/// Decodes stored bytes as a message; `what` names it in the error.
fn read<M: prost::Message + Default>(what: &'static str, bytes: &[u8]) -> Result<M, DecodeError> {
    M::decode(bytes).map_err(|error| DecodeError::new(what, error))
}
