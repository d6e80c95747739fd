//! Integration tests, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

mod harness;

mod cli;
mod commits;
mod postgres;
mod restart;
mod smoke;
mod tidy;
