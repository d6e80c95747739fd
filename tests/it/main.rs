//! Integration tests, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

mod harness;

mod api_surface;
mod bad_input;
mod blobs;
mod cli;
mod paging;
mod postgres;
mod sessions;
mod smoke;
mod tidy;
