//! contextd.
#![allow(dead_code, reason = "under construction")]
pub mod model;
pub mod context;
pub mod codec;
pub mod store;
pub mod provider;
pub mod turn;
pub mod grpc;
pub mod pb;
pub mod postgres;
