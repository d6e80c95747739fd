//! Decodes requests to commands, and reports all violations of a request at once.
//!
//! There is one function per RPC, and one file per message or kind of value. Each decoder reports violations
//! to [`Findings`] and returns a value, which is discarded if there are any violations. Messages are
//! destructured exhaustively, so that a new field fails the build until it is handled here.

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
mod limits;
mod media;
mod media_type;
mod messages_json;
mod output_limits;
mod page;
mod part;
mod pinned;
mod policy;
mod provided;
mod response;
mod schema;
mod stream;
mod tools;

mod duration;
mod id;
mod json;
mod json_check;
mod labels;
mod number;
mod text;
mod timestamp;

mod findings;
mod hash;
mod ignored;
mod path;

#[cfg(test)]
mod tests;

pub use admin::{
    CREATE_KEY, GET_TENANT_LIMITS, LIST_KEYS, ListKeys, REVOKE_KEY, RevokeKey, SET_TENANT_LIMITS,
    SetLimits, create_key, delete_tenant, get_tenant_deletion, get_tenant_limits, list_keys,
    revoke_key, set_tenant_limits,
};
pub use answers::{SUBMIT_TOOL_RESULTS, submit_tool_results};
pub use append_messages::{APPEND_MESSAGES, DecodedAppend, append_messages};
pub use blobs::{
    GET_BLOB, GetBlob, MAX_CHUNK_BYTES, PUT_BLOB, blob_chunk, blob_header, content_mismatch,
    get_blob, outside_of_blob,
};
pub use compaction::{
    COMPACT, LIST_COMPACTIONS, ListCompactions, REVERT_COMPACTION, compact, list_compactions,
    revert_compaction,
};
pub use context::{
    GET_CONTEXT_STATS, GetContextStats, PREPARE_CONTEXT, PRUNE_TOOL_OUTPUTS, RECORD_USAGE,
    RENDER_CONTEXT, RESTORE_TOOL_OUTPUTS, get_context_stats, prepare_context, prune_tool_outputs,
    record_usage, render_context, restore_tool_outputs,
};
pub use count_tokens::{COUNT_TOKENS, count_tokens};
pub use events::{LIST_EVENTS, ListEvents, WATCH_EVENTS, list_events, watch_events};
pub use execute_turn::{EXECUTE_TURN, execute_turn};
pub use findings::StoredBlobs;
pub use fork_session::{FORK_SESSION, fork_session};
pub use hash::request_hash;
pub use media::{blobs_in_messages, blobs_in_results};
pub use messages_json::MessagePaths;
pub use models::{GET_MODEL, LIST_MODELS, ListModels, get_model, list_models};
pub use page::PageRequest;
pub use queue::{
    CANCEL_QUEUED_MESSAGE, CLEAR_QUEUE, ENQUEUE_MESSAGE, LIST_QUEUED_MESSAGES, ListQueuedMessages,
    cancel_queued_message, clear_queue, enqueue_message, list_queued_messages,
};
pub use sessions::{
    CREATE_SESSION, EXPORT_MESSAGES, ExportMessages, GET_SESSION, LIST_MESSAGES, LIST_SESSIONS,
    ListMessages, ListSessions, MessageView, create_session, export_messages, get_session,
    list_messages, list_sessions,
};
pub use stream::StreamOptions;
pub use turns::{
    CANCEL_TURN, GET_TURN, GetTurn, LIST_TURNS, ListTurns, cancel_turn, get_turn, list_turns,
};
pub use update_session::{DELETE_SESSION, UPDATE_SESSION, delete_session, update_session};

use findings::Findings;
use path::Path;
