//! The kinds of durable events that this program writes: names of fields of the proto's
//! `Event.payload`.

pub(super) const TURN_STARTED: &str = "turn_started";
pub(super) const STEP_STARTED: &str = "step_started";
pub(super) const MESSAGE_COMMITTED: &str = "message_committed";
pub(super) const TOOL_CALL_REQUESTED: &str = "tool_call_requested";
pub(super) const APPROVAL_REQUESTED: &str = "approval_requested";
pub(super) const TOOL_CALL_COMPLETED: &str = "tool_call_completed";
pub(super) const TOOL_CALL_CANCELLED: &str = "tool_call_cancelled";
pub(super) const ACTION_REQUIRED: &str = "action_required";
pub(super) const USAGE_RECORDED: &str = "usage_recorded";
pub(super) const UNSUPPORTED_INPUT: &str = "unsupported_input";
pub(super) const TURN_RETRYING: &str = "turn_retrying";
pub(super) const TURN_RECOVERED: &str = "turn_recovered";
pub(super) const MODEL_SWITCHED: &str = "model_switched";
pub(super) const MODEL_FALLBACK: &str = "model_fallback";
pub(super) const SESSION_UPDATED: &str = "session_updated";
pub(super) const MESSAGES_APPLIED: &str = "messages_applied";
pub(super) const QUEUED_MESSAGE_CANCELLED: &str = "queued_message_cancelled";
pub(super) const QUEUED_MESSAGE_EXPIRED: &str = "queued_message_expired";
pub(super) const QUEUED_MESSAGE_DROPPED: &str = "queued_message_dropped";
pub(super) const CONTEXT_PRUNED: &str = "context_pruned";
pub(super) const CONTEXT_RESTORED: &str = "context_restored";
pub(super) const COMPACTION_STARTED: &str = "compaction_started";
pub(super) const COMPACTION_COMPLETED: &str = "compaction_completed";
pub(super) const COMPACTION_FAILED: &str = "compaction_failed";
pub(super) const COMPACTION_REVERTED: &str = "compaction_reverted";
pub(super) const TURN_COMPLETED: &str = "turn_completed";
pub(super) const TURN_CANCELLED: &str = "turn_cancelled";
pub(super) const TURN_FAILED: &str = "turn_failed";
