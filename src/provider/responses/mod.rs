//! The Responses API, as defined by OpenAI and implemented by other services. The differences
//! between services are a table in [`dialect`].
//!
//! No state is kept at the service: each request contains the whole conversation, and items that
//! the service needs of its own responses are sent back unchanged.

mod assistant_items;
mod citation;
mod custom_calls;
pub mod decode;
pub mod dialect;
pub mod encode;
pub mod encode_options;
pub(crate) mod history;
mod hosted;
pub(crate) mod import;
mod input;
mod item_calls;
mod items;
mod media;
mod options;
mod order;
mod rules;
mod service;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

pub use custom_calls::CustomCalls;
pub use service::Responses;
pub(super) use service::request;

/// Key of this kind of provider in settings and metadata.
const KIND: &str = "openai-responses";
