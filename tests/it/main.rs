//! Integration tests, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the variants it looks for")]

mod harness;

mod cancel;
mod cli;
mod execute_turn;
mod failures;
mod postgres;
mod resume;
mod smoke;
mod tidy;
mod tools;
