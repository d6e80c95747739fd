//! Model services behind one trait, [`Provider`]. All outbound calls to models are made in this
//! module.

pub mod ai_sdk;
pub mod anthropic;
pub mod assemble;
mod authorship;
mod body;
mod call_ids;
mod call_names;
mod chunk;
mod connection;
pub mod discovery;
pub mod error;
pub mod foreign;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod gemini;
pub mod generated_image;
pub mod http;
pub mod info;
mod inputs;
mod inserted;
pub mod media_limits;
mod media_type;
pub mod model_facts;
mod model_names;
#[cfg(test)]
mod mutations;
mod omissions;
pub mod openai;
mod prefix;
#[cfg(test)]
mod recordings;
mod refusals;
mod refused_media;
pub mod registry;
pub mod responses;
pub mod rules;
pub mod scripted;
mod service;
mod shape;

pub use assemble::Assembly;
pub use chunk::{Chunk, Finish, TextKind};
pub use error::Error;
pub use generated_image::GeneratedImage;
pub use info::ModelInfo;
pub use registry::Registry;
pub use rules::{PastReasoning, Rules};
pub use service::{CountFuture, Provider, RefreshFuture, Request, ResponseStream};
pub use shape::request_in;
