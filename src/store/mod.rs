//! The memory of contextd: the only SQL.
//!
//! Writes are single statements or pipelined transactions ([`pipeline`]): nothing is awaited
//! between BEGIN and COMMIT, so a caller that goes away leaves no open transaction. What decides
//! (leases, deadlines) is the database's clock; ids are the caller's.

/// Statements with named parameters, in the order in which a transition sends them.
macro_rules! named {
    ($($file:literal),+ $(,)?) => {
        std::sync::LazyLock::new(|| vec![$($crate::store::named_parameters::Named::new(include_str!($file))),+])
    };
}

/// A statement with named parameters that stands alone.
macro_rules! named_alone {
    ($file:literal) => {
        std::sync::LazyLock::new(|| {
            $crate::store::named_parameters::Named::new(include_str!($file))
        })
    };
}

pub mod admission;
pub mod admitted;
mod anchor;
pub mod answers;
pub mod api_key;
pub mod attendance;
pub mod blob;
pub mod bounded_page;
pub mod calibration;
pub mod chunk;
pub mod commit;
pub mod compaction;
pub mod compaction_read;
mod composite;
mod connection_queue;
mod connections;
mod counters;
pub mod database_address;
mod database_tls;
pub mod delete;
pub mod erasure;
pub mod error;
pub mod event;
pub mod event_page;
pub mod following;
pub mod fork;
mod generations;
pub mod grant;
pub mod idempotency;
pub mod import;
mod insist;
pub mod known_call;
pub mod lease;
mod lent;
pub mod listen;
pub mod lost_commits;
pub mod message;
pub mod migrate;
pub mod named_parameters;
mod own_sessions;
pub mod owned;
pub mod pipeline;
pub mod pool;
mod priority;
pub mod prune;
pub mod queue;
mod queue_numbers;
pub mod quota;
mod recent_events;
mod replica;
pub mod rollback;
pub mod row;
mod row_security;
pub mod rows;
mod seen;
pub mod session;
pub mod session_filter;
pub mod session_labels;
pub mod session_memory;
mod standby;
mod statement;
mod statements;
pub mod stats;
pub mod step;
pub mod stored_bytes;
pub mod sweep;
pub mod take;
pub mod tool_call;
pub mod transfer;
pub mod turn;
pub mod turn_read;
pub mod update;
pub mod upload;
pub mod usage;
pub mod version;
pub mod written;
pub mod written_bytes;
mod written_chunks;

pub use admitted::AdmittedAt;
pub use error::{Error, Outage};
pub use pool::{Connection, Database, Settings};
pub use priority::NewRequest;
pub use replica::Store;
pub use row_security::Reach;
#[doc(hidden)]
pub use statements::{hot_statements, hot_transitions};
