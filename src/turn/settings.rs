//! What the server's configuration says about turns.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    model::{Limits, config::Policy},
    turn::run::retry::Retries,
};

/// What the server's configuration says about turns.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Model of sessions that name none.
    pub default_model: String,
    /// How often servers nearby are asked which models they have. `None` means no service is.
    pub models_refresh: Option<Duration>,
    /// Policies by name; `default` is one of them.
    pub policies: BTreeMap<String, Policy>,
    /// Bounds of turns that set none.
    pub limits: Limits,
    /// Owners that may fail on one step before the turn is given up.
    pub max_takeovers: u32,
    /// Turns that run on this replica at once.
    pub max_running: usize,
    /// Whether more than one tenant shares this replica.
    pub is_shared: bool,
    /// Deltas within this time go out together.
    pub delta_flush: Duration,
    /// Bytes of one answer of a model.
    pub max_answer_bytes: usize,
    /// How failed calls of models are repeated.
    pub retries: Retries,
    /// How often text on its way is shared with other replicas. `None` means there are no others.
    pub share_interval: Option<Duration>,
    /// Within what time the database is polled for what was not announced.
    pub poll_interval: Duration,
    /// Bounds of uploads.
    pub uploads: UploadBounds,
    /// Counts of tokens for hosts that run at once.
    pub counts_at_once: usize,
    /// Bytes of the messages of one session that a model sees, beyond which no large content is taken.
    pub max_session_bytes: u64,
    /// Bytes that all calls may hold together which read whole sessions.
    pub prompt_memory: usize,
    /// Bytes of media in one prompt.
    pub max_prompt_media_bytes: u64,
    /// For how long what is kept.
    pub retention: Retention,
}

/// Name of the policy of sessions that name none.
pub const DEFAULT_POLICY: &str = "default";

/// For how long what is kept, and how it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Idempotency keys, from their request on.
    pub request_ids: Duration,
    /// Queued messages that ended, from their end on. Not shorter than `request_ids`: a repeated
    /// request is answered from them.
    pub queue: Duration,
    /// Events, from when they happened on. `None` means for as long as their session.
    pub events: Option<Duration>,
    /// Sessions, from their last use on. `None` means until they are deleted, or for their own
    /// time to live.
    pub sessions: Option<Duration>,
    /// Tool sets to which no configuration refers any more, from when that was first seen on.
    pub tool_sets: Duration,
    /// Within what time what is to go is looked for again.
    pub interval: Duration,
    /// Most rows that one statement removes.
    pub batch: u32,
}

/// Bounds of uploads.
#[derive(Debug, Clone, Copy)]
pub struct UploadBounds {
    /// Bytes of one.
    pub max_bytes: u64,
    /// How many run on this replica at once.
    pub max_at_once: usize,
    /// How long one may stand still.
    pub idle: Duration,
    /// How long one may take.
    pub total: Duration,
}
