//! contextd: runs the agent loop for agent hosts written in any language.
//!
//! Data flows *proto in -> model -> (context decides) -> store / provider -> events out*, and is converted
//! once at each boundary. Imports point down this list: `cli` and `app` combine everything; `grpc` and
//! `worker` call `turn`; `turn` combines `context`, `store` and `provider`; all of them use `model`. `codec`
//! encodes the model for storage and for the wire. What decides is a crate of its own, `contextd-core`.
#![cfg_attr(
    test,
    allow(
        clippy::too_many_lines,
        reason = "a test is often one long table; the build without tests still checks the rest"
    )
)]

pub mod app;
pub mod auth;
pub mod cli;
pub mod config;

pub mod grpc;
pub mod worker;

pub mod turn;

pub mod mcp;
pub mod provider;
pub mod quota;
pub mod store;

pub mod codec;
/// The pure core: what decides, its terms, and its tools.
pub use contextd_core::{clock, context, fair, model, session, settings};
/// The generated messages and services.
pub use contextd_proto as pb;

pub mod postgres;
pub mod telemetry;
