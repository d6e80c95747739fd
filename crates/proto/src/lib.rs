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
mod ids;
pub mod limits;

pub use self::ids::RequestIds;

/// The request of an RPC. `build/rpc.rs` generates the implementations.
pub trait Rpc: RequestIds {
    /// The response, or one of them if the RPC streams.
    type Response;
    /// The full name of the RPC.
    const NAME: &'static str;
    /// Whether a repeated request is recognised by the field `request_id`.
    const HAS_REQUEST_ID: bool;
}

/// The full names of the RPCs, such as `contextd.v1.TurnService/ExecuteTurn`.
pub mod rpc {
    include!(concat!(env!("OUT_DIR"), "/rpc.rs"));
}

tonic::include_proto!("contextd.v1");
include!(concat!(env!("OUT_DIR"), "/oneofs.rs"));

/// The descriptor set of all services, for reflection.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/contextd_descriptor.bin"));
