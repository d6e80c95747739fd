//! Every error as a status: its code, its stable reason, its details. The one table; `error.proto`
//! is its public face.
//!
//! What goes out is safe to show. Internals are logged here, once, under an id that the client gets
//! instead of them.

use std::{collections::HashMap, fmt::Display, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};
use uuid::Uuid;

use super::{
    decode::not_as_announced,
    page::BadToken,
    standing::Closed,
    violations::{Refused, Violation, Violations},
};
use crate::{
    codec,
    model::{
        CallId, RequestId, Seq, TurnId,
        import::{Flaw, Place},
    },
    pb::{ErrorReason, FieldReason},
    provider, store, turn,
};

/// The `domain` of every ErrorInfo.
pub const DOMAIN: &str = "contextd.dev";
/// When to come again to a server that is full or cannot reach its database.
const RETRY_BUSY: Duration = Duration::from_secs(1);
/// When to come again, to another server, after one that shuts down.
const RETRY_DRAINING: Duration = Duration::from_millis(100);

/// An RPC that a later version implements, e.g. `contextd.v1.QueueService/EnqueueMessage`.
pub fn not_implemented_rpc(rpc: &str) -> Status {
    Row::new(
        ErrorReason::NotImplemented,
        format!("{rpc} is not implemented yet"),
    )
    .with("rpc", rpc)
    .status()
}

/// A request that is larger than the server reads.
pub fn request_too_large(limit_bytes: usize) -> Status {
    let message = format!("the request is larger than {limit_bytes} bytes");
    Row::new(ErrorReason::RequestTooLarge, message)
        .with("limit_bytes", limit_bytes)
        .status()
}

/// A server that waits for its database or for the schema in it.
pub fn not_ready(closed: &Closed) -> Status {
    let reason = match closed {
        Closed::Database => ErrorReason::DatabaseUnavailable,
        Closed::Schema(_) => ErrorReason::SchemaOutdated,
    };
    retry(reason, &closed.to_string(), RETRY_BUSY)
}

/// A request whose bytes are not the message that the RPC takes.
pub fn undecodable() -> Status {
    Row::new(
        ErrorReason::InvalidRequest,
        "the request is not the message that this RPC takes",
    )
    .status()
}

/// The caller's deadline passed.
pub fn deadline_exceeded() -> Status {
    Row::new(
        ErrorReason::DeadlineExceeded,
        "the deadline passed; what was begun goes on",
    )
    .status()
}

/// An upload of which nothing came for too long, or that took too long.
pub fn upload_too_slow() -> Status {
    Row::new(
        ErrorReason::DeadlineExceeded,
        "the upload stood still or took too long; nothing is stored",
    )
    .status()
}

/// An upload whose client left: no client reads this.
pub fn upload_broke_off() -> Status {
    Row::new(
        ErrorReason::DeadlineExceeded,
        "the upload broke off; nothing is stored",
    )
    .status()
}

/// A request_id, in that field, that was used with another request.
pub fn idempotency_mismatch(key: &RequestId, field: &str) -> Status {
    Row::new(
        ErrorReason::IdempotencyMismatch,
        format!("request_id {key} was used with a different request"),
    )
    .with("request_id", key)
    .field(
        field,
        FieldReason::Conflict,
        "was used with a different request",
    )
    .status()
}

/// A defect: logged in full, and sent as nothing but the id it is logged under.
pub fn internal(defect: &dyn Display) -> Status {
    let id = Uuid::now_v7().to_string();
    tracing::error!(request.id = %id, error = %defect, "internal error");
    let mut row = Row::new(
        ErrorReason::Internal,
        "internal error; the server's log has it under the request id",
    );
    row.details.set_request_info(id, "");
    row.status()
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid(violations) => invalid(violations),
            Refused::NotImplemented { rpc, field } => not_implemented_field(rpc, &field),
        }
    }
}

impl From<BadToken> for Status {
    fn from(BadToken: BadToken) -> Self {
        Row::new(ErrorReason::PageTokenInvalid, BadToken.to_string())
            .field(
                "page_token",
                FieldReason::Invalid,
                "must be the next_page_token of the same list",
            )
            .status()
    }
}

impl From<turn::Error> for Status {
    fn from(error: turn::Error) -> Self {
        use turn::Error;
        let message = error.to_string();
        match error {
            Error::SessionNotFound(id) => resource(
                ErrorReason::SessionNotFound,
                message,
                "Session",
                id.as_str(),
            ),
            Error::SessionExists(id) => resource(
                ErrorReason::SessionAlreadyExists,
                message,
                "Session",
                id.as_str(),
            ),
            Error::TurnNotFound(id) => {
                resource(ErrorReason::TurnNotFound, message, "Turn", id.as_str())
            }
            Error::BlobNotFound(id) => {
                resource(ErrorReason::BlobNotFound, message, "Blob", id.as_str())
            }
            Error::Provider(error) => provider_failed(&error),
            Error::ModelNotFound(name) => {
                resource(ErrorReason::ModelNotFound, message, "Model", &name)
            }
            Error::ContextWindowUnknown(model) => window_unknown(message, &model),
            Error::PolicyNotFound(name) => {
                resource(ErrorReason::PolicyNotFound, message, "Policy", &name)
            }
            Error::TurnInProgress { turn, last } => turn_in_progress(message, &turn, last),
            Error::QueuedMessageNotFound(id) => resource(
                ErrorReason::QueuedMessageNotFound,
                message,
                "QueuedMessage",
                id.as_str(),
            ),
            Error::QueueFull { session, limit } => queue_full(message, session.as_str(), limit),
            Error::EtagMismatch { session, current } => {
                etag_mismatch(message, session.as_str(), &current)
            }
            Error::IdempotencyMismatch(key) => idempotency_mismatch(&key, "request_id"),
            Error::CursorAhead { last } => Row::new(ErrorReason::CursorAhead, message)
                .with("last_seq", last)
                .field(
                    "after_seq",
                    FieldReason::OutOfRange,
                    "must not be ahead of the session's last_seq",
                )
                .status(),
            Error::EventsLost { last } => Row::new(ErrorReason::EventsLost, message)
                .with("last_seq", last)
                .status(),
            Error::UnknownCalls { results, approvals } => {
                invalid(named_calls(results, approvals, NO_SUCH_CALL))
            }
            Error::AppendedCalls { results, approvals } => {
                invalid(named_calls(results, approvals, APPENDED_CALL))
            }
            Error::Misfit(flaws) => invalid(flaws.iter().map(flawed).collect()),
            Error::ContextChanged { version } => context_changed(message, version),
            Error::TranscriptOpen(calls) => Row::new(ErrorReason::TranscriptOpen, message)
                .with("call_ids", listed(&calls))
                .status(),
            Error::AtSeqAhead { last } => Row::new(ErrorReason::CursorAhead, message)
                .with("last_seq", last)
                .field(
                    "at_seq",
                    FieldReason::OutOfRange,
                    "must not be ahead of the session's last_seq",
                )
                .status(),
            Error::CompactionNotFound(id) => resource(
                ErrorReason::CompactionNotFound,
                message,
                "Compaction",
                id.as_str(),
            ),
            Error::CompactionInProgress(id) => {
                let mut row =
                    Row::new(ErrorReason::CompactionInProgress, message).with("compaction_id", &id);
                row.details.set_retry_info(Some(RETRY_BUSY));
                row.status()
            }
            Error::CompactionSuperseded { newest } => {
                Row::new(ErrorReason::CompactionSuperseded, message)
                    .with("compaction_id", &newest)
                    .status()
            }
            Error::CompactionNoGain { before, after } => {
                Row::new(ErrorReason::CompactionNoGain, message)
                    .with("tokens_before", before)
                    .with("tokens_after", after)
                    .status()
            }
            Error::PruneNotFound(_) => Row::new(ErrorReason::InvalidRequest, message)
                .field(
                    "pruned_at_seq",
                    FieldReason::Unknown,
                    "must be the pruned_at_seq of a prune of this session",
                )
                .status(),
            Error::ContextOverflow {
                used,
                window,
                largest,
            } => {
                let largest = codec::category::occupant_to_pb(largest).as_str_name();
                Row::new(ErrorReason::ContextOverflow, message)
                    .with("used_tokens", used)
                    .with("window_tokens", window)
                    .with(
                        "largest_category",
                        largest.trim_start_matches("CONTEXT_CATEGORY_"),
                    )
                    .status()
            }
            Error::MessageNotFound(_) => Row::new(ErrorReason::InvalidRequest, message)
                .field(
                    "message_id",
                    FieldReason::Unknown,
                    "must be a message of the assistant in this session",
                )
                .status(),
            Error::NoInput => Row::new(ErrorReason::NoInput, message).status(),
            Error::Draining => retry(ErrorReason::Draining, &message, RETRY_DRAINING),
            Error::ContentTooLarge { limit } => Row::new(ErrorReason::RequestTooLarge, message)
                .with("limit_bytes", limit)
                .status(),
            Error::ContentMismatch { bytes, sha256 } => {
                invalid(not_as_announced(bytes, sha256.as_ref()))
            }
            Error::UploadAbandoned => upload_broke_off(),
            Error::TooManyUploads => retry(ErrorReason::Overloaded, &message, RETRY_BUSY),
            Error::Overloaded => retry(ErrorReason::Overloaded, &message, RETRY_BUSY),
            Error::Store(error) => error.into(),
            Error::Internal(_) => internal(&message),
        }
    }
}

impl From<store::Error> for Status {
    fn from(error: store::Error) -> Self {
        use store::Error;
        match &error {
            Error::Unavailable(_) | Error::Refused(_) => {
                tracing::warn!(%error, "the database cannot be reached");
                retry(
                    ErrorReason::DatabaseUnavailable,
                    "the database cannot be reached",
                    RETRY_BUSY,
                )
            }
            Error::Busy => retry(
                ErrorReason::Overloaded,
                "no database connection became free in time",
                RETRY_BUSY,
            ),
            Error::Conflict(_) => {
                tracing::warn!(%error, "the database keeps aborting a transaction");
                retry(
                    ErrorReason::Overloaded,
                    "too many requests change the same session at once",
                    RETRY_BUSY,
                )
            }
            Error::EventsExpired { oldest } => {
                Row::new(ErrorReason::EventsExpired, error.to_string())
                    .with("oldest_seq", oldest)
                    .field(
                        "after_seq",
                        FieldReason::OutOfRange,
                        "must be at least oldest_seq - 1",
                    )
                    .status()
            }
            Error::Schema(_) | Error::Corrupt(_) | Error::Duplicate(_) | Error::Broken(_) => {
                internal(&error)
            }
        }
    }
}

fn invalid(violations: Violations) -> Status {
    let mut row = Row::new(ErrorReason::InvalidRequest, summary(&violations));
    for Violation {
        field,
        reason,
        description,
    } in violations.listed
    {
        row = row.field(field, reason, description);
    }
    row.status()
}

/// The first violation in words, and how many there are besides.
fn summary(violations: &Violations) -> String {
    let more = (violations.listed.len() + violations.cut).saturating_sub(1);
    let first = violations.listed.first().map_or_else(
        || "the request is invalid".to_owned(),
        |Violation {
             field, description, ..
         }| format!("{field}: {description}"),
    );
    match (more, violations.cut) {
        (0, _) => first,
        (more, 0) => format!("{first} (and {more} more)"),
        (more, cut) => format!("{first} (and {more} more, {cut} of them not listed)"),
    }
}

fn not_implemented_field(rpc: &str, field: &str) -> Status {
    Row::new(
        ErrorReason::NotImplemented,
        format!("{field} of {rpc} is not implemented yet"),
    )
    .with("rpc", rpc)
    .with("field", field)
    .status()
}

fn resource(reason: ErrorReason, message: String, kind: &str, name: &str) -> Status {
    let mut row = Row::new(reason, message);
    row.details
        .set_resource_info(format!("contextd.v1.{kind}"), name, "", "");
    row.status()
}

fn window_unknown(message: String, model: &str) -> Status {
    let mut row = Row::new(ErrorReason::ContextWindowUnknown, message).with("model", model);
    let kind = reason_name(ErrorReason::ContextWindowUnknown);
    row.details.add_precondition_failure_violation(
        kind,
        model,
        "set policy_overrides.context_window",
    );
    row.status()
}

fn turn_in_progress(message: String, turn: &TurnId, last: Seq) -> Status {
    let mut row = Row::new(ErrorReason::TurnInProgress, message)
        .with("turn_id", turn)
        .with("last_seq", last);
    let kind = reason_name(ErrorReason::TurnInProgress);
    row.details
        .add_precondition_failure_violation(kind, turn.as_str(), "watch it, or cancel it");
    row.status()
}

fn queue_full(message: String, session: &str, limit: u32) -> Status {
    let mut row = Row::new(ErrorReason::QueueFull, message).with("limit", limit);
    row.details
        .add_quota_failure_violation(session, "the messages that wait in its queue");
    row.details.set_retry_info(Some(RETRY_BUSY));
    row.status()
}

/// Calls, as many as a status can carry.
fn listed(calls: &[CallId]) -> String {
    let mut bytes = 0;
    let fits = calls.iter().take_while(|call| {
        bytes += call.as_str().len() + 1;
        bytes <= Violations::MOST_BYTES
    });
    fits.map(CallId::as_str).collect::<Vec<_>>().join(",")
}

fn context_changed(message: String, version: i64) -> Status {
    let mut row = Row::new(ErrorReason::ContextChanged, message).with("context_version", version);
    let kind = reason_name(ErrorReason::ContextChanged);
    row.details.add_precondition_failure_violation(
        kind,
        version.to_string(),
        "prepare the context again",
    );
    row.status()
}

/// A message that does not fit, by the field that is to blame.
fn flawed(flaw: &Flaw) -> Violation {
    let violation = |field, reason, description: String| Violation {
        field,
        reason,
        description,
    };
    let part = |Place { message, part }: &Place| format!("messages[{message}].parts[{part}]");
    match flaw {
        Flaw::Taken(place) => violation(
            format!("{}.tool_call.call_id", part(place)),
            FieldReason::Conflict,
            "the session has a call of this id already".into(),
        ),
        Flaw::Orphan(place) => violation(
            format!("{}.tool_result.call_id", part(place)),
            FieldReason::Unknown,
            "no call of this id waits for a result".into(),
        ),
        Flaw::Repeated(place) => violation(
            format!("{}.tool_result.call_id", part(place)),
            FieldReason::Conflict,
            "the call has a result already".into(),
        ),
        Flaw::Unanswered { call, before } => violation(
            format!("{}.tool_call", part(call)),
            FieldReason::Invalid,
            format!("has no result before messages[{before}]"),
        ),
        Flaw::PinnedApart(message) => violation(
            format!("messages[{message}].pinned"),
            FieldReason::Conflict,
            "the message with the calls is not pinned; pin that one".into(),
        ),
    }
}

const NO_SUCH_CALL: (FieldReason, &str) = (FieldReason::Unknown, "the session has no such call");
const APPENDED_CALL: (FieldReason, &str) = (
    FieldReason::Unsupported,
    "the call was appended: its result comes with AppendMessages",
);

fn provider_failed(error: &provider::Error) -> Status {
    let mut row =
        Row::new(ErrorReason::ProviderFailed, error.to_string()).with("provider", &error.provider);
    if error.is_retryable() {
        row.details
            .set_retry_info(Some(error.retry_after.unwrap_or(RETRY_BUSY)));
    }
    row.status()
}

fn etag_mismatch(message: String, session: &str, current: &str) -> Status {
    let mut row = Row::new(ErrorReason::EtagMismatch, message).with("etag", current);
    let kind = reason_name(ErrorReason::EtagMismatch);
    row.details.add_precondition_failure_violation(
        kind,
        session,
        "read the session again, then repeat",
    );
    row.status()
}

/// The calls themselves are not repeated: the index says which.
fn named_calls(
    results: Vec<(usize, CallId)>,
    approvals: Vec<(usize, CallId)>,
    (reason, description): (FieldReason, &'static str),
) -> Violations {
    let violation = |list: &'static str| {
        move |(i, _)| Violation {
            field: format!("{list}[{i}].call_id"),
            reason,
            description: description.into(),
        }
    };
    results
        .into_iter()
        .map(violation("results"))
        .chain(approvals.into_iter().map(violation("approvals")))
        .collect()
}

fn retry(reason: ErrorReason, message: &str, after: Duration) -> Status {
    let mut row = Row::new(reason, message);
    row.details.set_retry_info(Some(after));
    row.status()
}

/// One row of the table, filled in.
#[derive(Debug)]
struct Row {
    reason: ErrorReason,
    message: String,
    metadata: HashMap<String, String>,
    fields: Vec<FieldViolation>,
    details: ErrorDetails,
}

impl Row {
    fn new(reason: ErrorReason, message: impl Into<String>) -> Self {
        let metadata = HashMap::new();
        let fields = Vec::new();
        let details = ErrorDetails::new();
        Self {
            reason,
            message: message.into(),
            metadata,
            fields,
            details,
        }
    }

    /// Adds metadata to the ErrorInfo.
    fn with(mut self, key: &str, value: impl Display) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    /// Adds a violation to the BadRequest.
    fn field(
        mut self,
        field: impl Into<String>,
        reason: FieldReason,
        description: impl Into<String>,
    ) -> Self {
        let reason = field_reason_name(reason).to_owned();
        self.fields.push(FieldViolation {
            reason,
            ..FieldViolation::new(field, description)
        });
        self
    }

    fn status(self) -> Status {
        let Self {
            reason,
            message,
            metadata,
            fields,
            mut details,
        } = self;
        details.set_error_info(reason_name(reason), DOMAIN, metadata);
        if !fields.is_empty() {
            details.set_bad_request(fields);
        }
        Status::with_error_details(code(reason), message, details)
    }
}

/// The code that goes with each reason.
const fn code(reason: ErrorReason) -> Code {
    use ErrorReason as R;
    match reason {
        R::InvalidRequest | R::IdempotencyMismatch | R::PageTokenInvalid | R::CursorAhead => {
            Code::InvalidArgument
        }
        R::EventsExpired => Code::OutOfRange,
        R::EventsLost => Code::DataLoss,
        R::SessionNotFound
        | R::TurnNotFound
        | R::QueuedMessageNotFound
        | R::CompactionNotFound
        | R::BlobNotFound
        | R::ModelNotFound
        | R::PolicyNotFound => Code::NotFound,
        R::SessionAlreadyExists => Code::AlreadyExists,
        R::EtagMismatch | R::ContextChanged | R::CompactionInProgress => Code::Aborted,
        R::TurnInProgress
        | R::NoInput
        | R::TranscriptOpen
        | R::ContextOverflow
        | R::ContextWindowUnknown
        | R::CompactionNoGain
        | R::CompactionSuperseded => Code::FailedPrecondition,
        R::RequestTooLarge | R::QueueFull | R::RateLimited | R::QuotaExceeded => {
            Code::ResourceExhausted
        }
        R::Overloaded
        | R::Draining
        | R::DatabaseUnavailable
        | R::SchemaOutdated
        | R::ProviderFailed => Code::Unavailable,
        R::DeadlineExceeded => Code::DeadlineExceeded,
        R::Unauthenticated => Code::Unauthenticated,
        R::PermissionDenied => Code::PermissionDenied,
        R::NotImplemented => Code::Unimplemented,
        R::Unspecified | R::Internal => Code::Internal,
    }
}

fn reason_name(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix("ERROR_REASON_").unwrap_or(name)
}

fn field_reason_name(reason: FieldReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix("FIELD_REASON_").unwrap_or(name)
}

#[cfg(test)]
mod tests;
