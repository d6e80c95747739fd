//! The Responses API, as OpenAI defined it and others speak it. What sets those apart is a table in
//! [`dialect`].
//!
//! Nothing is left with the service: each request carries the whole conversation, and what the
//! service needs of its own answers goes back as it came.

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

/// Under this name the settings and the metadata of this kind of provider stand.
const KIND: &str = "openai-responses";
