//! Integration tests, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on says where"
)]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a test names the variants it looks for"
)]
#![allow(
    clippy::too_many_lines,
    reason = "a test is a table or a story; cutting it hides what comes next"
)]

mod harness;

mod accuracy;
mod alternation;
mod anchors;
mod anthropic;
mod api_surface;
mod append_messages;
mod approvals;
mod attacks;
mod auth;
mod backup;
mod bad_input;
mod blobs;
mod bricked;
mod bring_your_own_loop;
mod cancel;
mod cases;
mod chaos_checks;
mod chat;
mod cli;
mod coalescing;
mod commits;
mod compaction;
mod compaction_beside;
mod conformance;
mod context_properties;
mod context_size;
mod context_stats;
mod continue_turn;
mod count_tokens;
mod database_tls;
mod deadlines;
mod delete_session;
mod deltas;
mod discovery;
mod elsewhere;
mod event_fields;
mod execute_turn;
mod export_messages;
mod failures;
mod fallback;
mod faults;
mod foreign;
mod fork_session;
mod gemini;
mod generation;
mod invariants;
mod limits;
mod list_messages;
mod long_turns;
mod mcp;
mod mcp_sdks;
mod media;
mod models;
mod mutations;
mod news;
mod openai;
mod overflow;
mod paging;
mod policies;
mod postgres;
mod prepare_context;
mod protocol;
mod protocols;
mod provider_config;
mod provider_failures;
mod prune;
mod queue;
mod queue_races;
mod queue_turns;
mod real_server;
mod record_usage;
mod removed_models;
mod render_context;
mod replay;
mod responses;
mod restart;
mod resume;
mod retention;
mod retries;
mod rollback;
mod rounds;
mod runbooks;
mod selftest;
mod sequential;
mod services;
mod session_filters;
mod session_races;
mod sessions;
mod simulate;
mod small_windows;
mod smoke;
mod store;
mod summaries;
mod telemetry;
mod tidy;
mod tools;
mod totals;
mod transfer;
mod update_session;
mod upgrade;
mod uploads;
