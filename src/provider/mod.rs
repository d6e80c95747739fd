//! Model services behind one trait. The only outbound calls to models are made here.

pub mod ai_sdk;
pub mod anthropic;
pub mod assemble;
mod authorship;
mod body;
mod call_ids;
mod chunk;
pub mod discovery;
pub mod error;
pub mod foreign;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod gemini;
pub mod http;
pub mod info;
mod inserted;
pub mod model_facts;
mod omissions;
pub mod openai;
mod prefix;
#[cfg(test)]
mod recordings;
pub mod registry;
pub mod responses;
pub mod scripted;
mod service;
mod shape;

pub use assemble::Assembly;
pub use chunk::{Chunk, Finish};
pub use error::Error;
pub use info::ModelInfo;
pub use registry::Registry;
pub use service::{Answer, Count, Provider, Refresh, Request};
pub use shape::request_in;
