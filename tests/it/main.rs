//! Integration tests, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the variants it looks for")]

mod harness;

mod accuracy;
mod api_surface;
mod append_messages;
mod approvals;
mod bad_input;
mod blobs;
mod cancel;
mod chat;
mod cli;
mod coalescing;
mod commits;
mod context_stats;
mod continue_turn;
mod count_tokens;
mod delete_session;
mod deltas;
mod elsewhere;
mod execute_turn;
mod failures;
mod faults;
mod fork_session;
mod generation;
mod limits;
mod list_messages;
mod media;
mod models;
mod mutations;
mod openai;
mod overflow;
mod paging;
mod postgres;
mod protocol;
mod provider_config;
mod provider_failures;
mod prune;
mod queue;
mod queue_races;
mod queue_turns;
mod restart;
mod resume;
mod retries;
mod rollback;
mod sequential;
mod session_races;
mod sessions;
mod simulate;
mod smoke;
mod store;
mod tidy;
mod tools;
mod update_session;
mod uploads;
