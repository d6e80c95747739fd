//! contextd: runs the agent loop for agent hosts written in any language.
//!
//! A value goes *proto in -> model -> (context decides) -> store / provider -> events out*, and
//! crosses each border once. Imports point down this list: `cli` and `app` join everything; `grpc`
//! and `worker` call `turn`; `turn` joins `context`, `store` and `provider`; all of them speak
//! `model`. `codec` turns the model into bytes that last.
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
pub mod conformance;

pub mod grpc;
pub mod worker;

pub mod turn;

pub mod context;
pub mod mcp;
pub mod provider;
pub mod quota;
pub mod session;
pub mod store;

pub mod codec;
pub mod model;
pub mod pb;

pub mod clock;
pub mod fair;
pub mod postgres;
pub mod telemetry;
