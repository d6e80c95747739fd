//! Decodes requests to commands, and reports all violations of a request at once.
//!
//! There is one function per RPC, and one file per message or kind of value. [`Findings::check`] checks the limits of all
//! fields, which are options in `proto/`; what they do not express is checked here. A decoder always returns a value,
//! which is discarded if there are any violations.

mod admin;
mod answers;
mod append_messages;
mod blobs;
mod compaction;
mod context;
mod count_tokens;
mod events;
mod execute_turn;
mod fork_session;
mod models;
mod queue;
mod sessions;
mod turns;
mod update_session;

mod config;
mod generation;
mod input;
mod media;
mod messages_json;
mod page;
mod part;
mod pinned;
mod policy;
mod provided;
mod response;
mod schema;
mod stream;
mod tools;

mod id;
mod json;
mod json_check;
mod labels;
mod number;
mod text;

mod findings;
mod hash;

#[cfg(test)]
mod tests;

pub use admin::{
    ListKeys, RevokeKey, SetLimits, create_key, delete_tenant, get_tenant_deletion, get_tenant_limits, list_keys,
    revoke_key, set_tenant_limits,
};
pub use answers::submit_tool_results;
pub use append_messages::{DecodedAppend, append_messages};
pub use blobs::{GetBlob, MAX_CHUNK_BYTES, blob_chunk, blob_header, content_mismatch, get_blob, outside_of_blob};
pub use compaction::{ListCompactions, compact, list_compactions, revert_compaction};
pub use context::{
    GetContextStats, get_context_stats, prepare_context, prune_tool_outputs, record_usage, render_context,
    restore_tool_outputs,
};
pub use count_tokens::count_tokens;
pub use events::{ListEvents, list_events, watch_events};
pub use execute_turn::execute_turn;
pub use findings::StoredBlobs;
pub use fork_session::fork_session;
pub use hash::request_hash;
pub use media::{blobs_in_messages, blobs_in_results};
pub use messages_json::MessagePaths;
pub use models::{ListModels, get_model, list_models};
pub use page::PageRequest;
pub use queue::{ListQueuedMessages, cancel_queued_message, clear_queue, enqueue_message, list_queued_messages};
pub use sessions::{
    ExportMessages, ListMessages, ListSessions, MessageView, create_session, export_messages, get_session,
    list_messages, list_sessions,
};
pub use stream::StreamOptions;
pub use turns::{GetTurn, ListTurns, cancel_turn, get_turn, list_turns};
pub use update_session::{delete_session, update_session};

use crate::pb::limits::Path;
use findings::Findings;
