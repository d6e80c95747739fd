//! Decodes requests to commands, and reports all violations of a request at once.
//!
//! There is one implementation of [`Decode`] per RPC, most of them in `requests.rs`, and one file per message or kind of
//! value. The limits of all fields, which are options in `proto/`, are checked before; what they do not express is checked
//! here. A request is read to the end even if it has violations, so that all of them are found.

mod answers;
mod append_messages;
mod blobs;
mod compact;
mod count_tokens;
mod enqueue_message;
mod execute_turn;
mod record_usage;
mod requests;
mod sessions;
mod update_session;
mod watch_events;

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

mod json;
mod json_check;
mod labels;
mod number;
mod text;

mod decoder;
mod findings;
mod hash;

#[cfg(test)]
mod tests;

pub use append_messages::DecodedAppend;
pub use blobs::{MAX_CHUNK_BYTES, blob_chunk, blob_header, content_mismatch, outside_of_blob};
pub use decoder::{Decode, decode};
pub use findings::{Findings, StoredBlobs};
pub use hash::request_hash;
pub use messages_json::MessagePaths;
pub use page::PageRequest;
pub use requests::{
    GetBlob, GetContextStats, GetTurn, ListEvents, ListKeys, ListMessages, ListModels, ListOfSession, ListSessions,
    RevokeKey, SetLimits,
};
pub use sessions::ExportMessages;
pub use stream::StreamOptions;

use crate::pb::limits::Path;
