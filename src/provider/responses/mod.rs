//! The Responses API, as defined by OpenAI and implemented by other services. The differences
//! between services are a table in [`dialect`].
//!
//! No state is kept at the service: each request contains the whole conversation, and items that
//! the service needs of its own responses are sent back unchanged.

mod citation;
pub mod decode;
pub mod dialect;
pub mod encode;
pub mod form;
pub(in crate::provider) mod history;
mod hosted;
pub(in crate::provider) mod import;
mod input;
mod items;
mod media;
mod omitted;
mod options;
mod order;
mod rules;
mod said;
mod service;
mod text_calls;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

pub use service::Responses;
pub(super) use service::request;
pub use text_calls::TextCalls;

/// Key of this kind of provider in settings and metadata.
const KIND: &str = "openai-responses";
