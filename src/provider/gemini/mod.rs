//! Gemini's generateContent, at Google AI Studio and at Vertex AI. The differences between model
//! generations are a table in [`family`].

mod arguments;
mod citations;
mod contents;
pub mod decode;
mod encode;
mod family;
pub(crate) mod history;
pub(crate) mod import;
mod items;
mod media;
mod names;
mod options;
mod rules;
mod service;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

pub use service::Gemini;
pub(super) use service::request;

/// Key of this kind of provider in settings and metadata.
const KIND: &str = "gemini";
