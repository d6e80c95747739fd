//! Settings of the turn engine, as read from the server's configuration.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    model::{Limits, config::Policy},
    turn::retry::Retries,
};

/// Settings of the turn engine.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The model of sessions that name none.
    pub default_model: String,
    /// Interval between refreshes of the model lists of local model servers. `None` disables the
    /// refresh.
    pub models_refresh: Option<Duration>,
    /// Policies by name. Contains [`DEFAULT_POLICY`].
    pub policies: BTreeMap<String, Policy>,
    /// Limits of turns that set none.
    pub limits: Limits,
    /// Owners that may fail on one step before the turn is ended as failed.
    pub max_takeovers: u32,
    /// Most turns that run on this replica at once.
    pub max_running: usize,
    pub is_shared: bool,
    /// Deltas that arrive within this time are sent together.
    pub delta_flush: Duration,
    /// Most bytes of one model response.
    pub max_answer_bytes: usize,
    /// Retry policy for failed model calls.
    pub retries: Retries,
    /// Interval at which partial text is shared with other replicas. `None` if there are no other
    /// replicas.
    pub share_interval: Option<Duration>,
    /// Longest interval between two polls for changes that were not announced.
    pub poll_interval: Duration,
    pub uploads: UploadBounds,
    /// Most token counts for hosts that run at once.
    pub counts_at_once: usize,
    /// Limit in bytes of the messages of one session that a model sees. At the limit, no large
    /// content is accepted.
    pub max_session_bytes: u64,
    /// Bytes that all calls which read whole sessions may hold together.
    pub prompt_memory: usize,
    pub max_prompt_media_bytes: u64,
    pub retention: Retention,
}

/// Name of the policy of sessions that name none.
pub const DEFAULT_POLICY: &str = "default";

/// Retention periods, and how expired rows are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Idempotency keys, measured from their request.
    pub request_ids: Duration,
    /// Queued messages in a final state, measured from their end. Not shorter than `request_ids`: a
    /// repeated request is answered from them.
    pub queue: Duration,
    /// Events, measured from their creation. `None` means as long as their session.
    pub events: Option<Duration>,
    /// Sessions, measured from their last use. `None` means until they are deleted, or until their
    /// own time to live has passed.
    pub sessions: Option<Duration>,
    /// Tool sets that no configuration references, measured from when that was first observed.
    pub tool_sets: Duration,
    /// Longest interval between two searches for expired rows.
    pub interval: Duration,
    /// Most rows removed by one statement.
    pub batch: u32,
}

/// Limits of uploads.
#[derive(Debug, Clone, Copy)]
pub struct UploadBounds {
    /// Most bytes of one upload.
    pub max_bytes: u64,
    /// Most uploads that run on this replica at once.
    pub max_at_once: usize,
    /// Longest time an upload may wait for its next piece.
    pub idle: Duration,
    /// Longest duration of an upload.
    pub total: Duration,
}
