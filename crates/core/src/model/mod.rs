//! Domain types of contextd: plain data that is always valid, without IO, async, SQL or wire formats. Policy settings
//! derive serde because the configuration uses these types directly.

pub mod access;
pub mod append;
pub mod calibration;
pub mod command;
pub mod compaction;
pub mod config;
pub mod declared_model;
pub mod delta;
pub mod derive;
pub mod erasure;
pub mod event;
pub mod failure;
pub mod generation;
pub mod id;
pub mod json;
pub mod ledger;
pub mod media;
pub mod message;
pub mod occupancy;
pub mod policy;
pub mod price;
pub mod prompt;
pub mod queue;
pub mod quota;
pub mod service_rules;
pub mod tally;
pub mod tool;
pub mod transcript;
pub mod turn;
pub mod usage;

pub use access::{Access, ApiKey, Principal};
pub use calibration::Calibration;
pub use compaction::{Compaction, CompactionState};
pub use config::{PinnedBlock, PinnedKind, SessionConfig, ToolExecution};
pub use declared_model::DeclaredModel;
pub use delta::Delta;
pub use erasure::TenantDeletion;
pub use event::Payload;
pub use failure::{Failure, FailurePhase, FailureReason};
pub use generation::Generation;
pub use id::{
    BlobId, CallId, CompactionId, Fence, MessageId, RequestId, Seq, SessionId, SessionKey, StepPosition, TenantId,
    TurnFence, TurnId,
};
pub use ledger::{Anchor, CategoryCount, Ledger, PrepareReport, PruneReport, Restored, UsageReceipt};
pub use media::{Contents, Media, NewContent};
pub use message::{
    Citation, Content, FinishReason, InputMessage, Message, ModelResponse, OutputPart, Part, ProviderItem, Role,
    ToolCall, ToolOutcome, ToolResult, Truncation,
};
pub use price::CachePrices;
pub use prompt::{Prompt, PromptFormat, PromptNote, PromptNoteKind, RequestDiff};
pub use queue::{AppliedMessage, Delivery, DropReason, TakeMode};
pub use quota::{Exceeded, Quota, TenantLimits};
pub use tally::Tally;
pub use tool::{Keep, McpServerTools, McpTool, OutputLimits, ProviderTool, Tool, ToolCategory, ToolExecutor, ToolSet};
pub use transcript::{ClosedTranscript, Transcript};
pub use turn::{
    CancelCause, CancelOutcome, CompletionReason, Ending, Limits, LimitsOverride, TurnResult, TurnState, Undone,
};
pub use usage::{Category, Estimate, PartSize, TokenBasis, TokenCount, Usage, UsagePurpose, UsageTotals};
