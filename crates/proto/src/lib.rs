//! The generated messages and services of `proto/contextd/v1`, for the server and for its clients in Rust.
#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    rustdoc::all,
    reason = "generated code"
)]

pub mod codec;

tonic::include_proto!("contextd.v1");

/// The descriptor set of all services, for reflection.
pub const DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/contextd_descriptor.bin"));
