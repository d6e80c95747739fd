//! Integration tests, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

mod harness;

mod cli;
mod postgres;
mod smoke;
mod store;
mod tidy;
