//! The Responses API, as OpenAI defined it and others speak it. What sets those apart is a table in
//! [`dialect`].
//!
//! Nothing is left with the service: each request carries the whole conversation, and what the
//! service would need of its own answers comes along as it was.

mod citation;
pub mod decode;
pub mod dialect;
mod hosted;
mod items;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

/// Under this name the settings and the metadata of this kind of provider stand.
const KIND: &str = "openai-responses";
