//! The kinds of durable events that this version writes. Each is the name of a field of the proto's `Event.payload`.

pub(crate) const TURN_STARTED: &str = "turn_started";
pub(crate) const STEP_STARTED: &str = "step_started";
pub(crate) const MESSAGE_COMMITTED: &str = "message_committed";
pub(crate) const TOOL_CALL_REQUESTED: &str = "tool_call_requested";
pub(crate) const APPROVAL_REQUESTED: &str = "approval_requested";
pub(crate) const TOOL_CALL_COMPLETED: &str = "tool_call_completed";
pub(crate) const TOOL_CALL_CANCELLED: &str = "tool_call_cancelled";
pub(crate) const ACTION_REQUIRED: &str = "action_required";
pub(crate) const USAGE_RECORDED: &str = "usage_recorded";
pub(crate) const UNSUPPORTED_INPUT: &str = "unsupported_input";
pub(crate) const TURN_RETRYING: &str = "turn_retrying";
pub(crate) const TURN_RECOVERED: &str = "turn_recovered";
pub(crate) const MODEL_SWITCHED: &str = "model_switched";
pub(crate) const MODEL_FALLBACK: &str = "model_fallback";
pub(crate) const SESSION_UPDATED: &str = "session_updated";
pub(crate) const MESSAGES_APPLIED: &str = "messages_applied";
pub(crate) const QUEUED_MESSAGE_CANCELLED: &str = "queued_message_cancelled";
pub(crate) const QUEUED_MESSAGE_EXPIRED: &str = "queued_message_expired";
pub(crate) const QUEUED_MESSAGE_DROPPED: &str = "queued_message_dropped";
pub(crate) const CONTEXT_PRUNED: &str = "context_pruned";
pub(crate) const CONTEXT_RESTORED: &str = "context_restored";
pub(crate) const COMPACTION_STARTED: &str = "compaction_started";
pub(crate) const COMPACTION_COMPLETED: &str = "compaction_completed";
pub(crate) const COMPACTION_FAILED: &str = "compaction_failed";
pub(crate) const COMPACTION_REVERTED: &str = "compaction_reverted";
pub(crate) const TURN_COMPLETED: &str = "turn_completed";
pub(crate) const TURN_CANCELLED: &str = "turn_cancelled";
pub(crate) const TURN_FAILED: &str = "turn_failed";

/// The ref of a `turn_recovered`: the owner handed the turn over.
pub(crate) const HANDED_OVER: &str = "handed_over";
/// The ref of a `turn_recovered`: the owner's lease expired.
pub(crate) const LEASE_EXPIRED: &str = "lease_expired";
