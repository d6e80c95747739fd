//! contextd.
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod pb;
pub mod postgres;
pub mod telemetry;
