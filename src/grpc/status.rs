//! Maps every error to a gRPC status with a stable reason and details, in one table. The code of each reason
//! is in `code.rs`. The public contract is `error.proto`.
//!
//! Statuses contain only what is safe to show to clients. Internal errors are logged here, once, under an id
//! that the client gets instead of the details.

use std::{fmt::Display, sync::LazyLock, time::Duration};

use http::Response;
use tonic::{Code, Status, body::Body};

use self::code::Row;
use super::{
    decode::{self, content_mismatch},
    page_token::BadToken,
    readiness::ClosedReason,
    request_id,
    violations::{RequestError, Violation, Violations},
};
use crate::{
    auth,
    codec::field::Choice as _,
    mcp,
    model::{
        Access, CallId, Exceeded, RequestId, Seq, TenantId,
        append::{Flaw, Place},
        ledger::ContextCategory,
    },
    pb::{ErrorReason, FieldReason},
    provider,
    store::{self, admitted::MAX_READ_AGE},
    turn,
};

mod code;

pub use code::DOMAIN;

/// Retry delay for a server that is overloaded or cannot reach its database.
const RETRY_BUSY: Duration = Duration::from_secs(1);
/// Retry delay, with another server, for a server that is shutting down.
const RETRY_DRAINING: Duration = Duration::from_millis(100);

/// The RPC is not implemented, e.g. `contextd.v1.QueueService/EnqueueMessage`.
pub fn not_implemented_rpc(rpc: &str) -> Status {
    Row::new(ErrorReason::NotImplemented, format!("{rpc} is not implemented yet")).with("rpc", rpc).status()
}

/// The request exceeds the maximum size on the wire.
pub fn request_too_large(limit_bytes: usize) -> Status {
    let message = format!("the request is larger than {limit_bytes} bytes");
    Row::new(ErrorReason::RequestTooLarge, message).with("limit_bytes", limit_bytes).status()
}

/// The decoded request exceeds the memory limit.
pub fn decoded_request_too_large(limit_bytes: usize) -> Status {
    let message = format!(
        "the request needs more than {limit_bytes} bytes of memory; send fewer messages, parts or tools at a time"
    );
    Row::new(ErrorReason::RequestTooLarge, message).with("limit_bytes", limit_bytes).status()
}

/// The client did not send the request before the timeout.
pub fn request_too_slow() -> Status {
    Row::new(ErrorReason::DeadlineExceeded, "timed out while receiving the request; it was not processed").status()
}

/// The server waits for its database or for the schema migration.
pub fn not_ready(closed: &ClosedReason) -> Status {
    let reason = match closed {
        ClosedReason::Database => ErrorReason::DatabaseUnavailable,
        ClosedReason::Schema(_) => ErrorReason::SchemaOutdated,
    };
    Row::new(reason, closed.to_string()).retry_after(RETRY_BUSY).status()
}

/// The server has not read keys, limits and deletions for too long, so it might serve callers whose access
/// was revoked.
pub fn not_up_to_date() -> Status {
    let message = format!("keys and limits have not been read from the database for {} s", MAX_READ_AGE.as_secs());
    Row::new(ErrorReason::DatabaseUnavailable, message).retry_after(RETRY_BUSY).status()
}

/// The request bytes do not decode to the RPC's message.
pub fn undecodable() -> Status {
    Row::new(ErrorReason::InvalidRequest, "the request does not decode to this RPC's message").status()
}

/// The caller has no valid credential. The reason why it is invalid is only logged.
pub fn unauthenticated() -> Status {
    Row::new(ErrorReason::Unauthenticated, "no valid credential; send `authorization: Bearer <API key or token>`")
        .status()
}

/// The caller's credential does not grant the required access.
pub fn permission_denied(needed: Access) -> Status {
    let message = format!("the call requires `{needed}` access, which the credential does not grant");
    Row::new(ErrorReason::PermissionDenied, message).with("access", needed).status()
}

/// The tenant has reached one of its limits.
pub fn limit_reached(exceeded: &Exceeded) -> Status {
    let Exceeded { quota, limit, retry_after } = *exceeded;
    let reason = match retry_after {
        Some(_) => ErrorReason::RateLimited,
        None => ErrorReason::QuotaExceeded,
    };
    let row = Row::new(reason, exceeded.to_string())
        .with("quota", quota)
        .with("limit", limit)
        .quota("tenant", &format!("{quota}: {limit}"));
    match retry_after {
        Some(delay) => row.retry_after(delay),
        None => row,
    }
    .status()
}

/// The tenant is being deleted.
pub fn tenant_being_deleted(tenant: &TenantId) -> Status {
    let message = format!("the tenant {tenant} is being deleted");
    Row::new(ErrorReason::TenantBeingDeleted, message)
        .precondition(tenant, "wait until the deletion completes")
        .status()
}

/// The server is at its capacity.
pub fn overloaded() -> Status {
    Row::new(ErrorReason::Overloaded, "the server is overloaded").retry_after(RETRY_BUSY).status()
}

/// Marks a response that rejects a call because the server is at its capacity.
#[derive(Debug, Clone, Copy)]
pub struct Overloaded;

impl Overloaded {
    /// The gRPC code of the rejection.
    pub const CODE: Code = code::code(ErrorReason::Overloaded);
    /// The reason in metrics and logs.
    pub const REASON: &'static str = "overloaded";

    /// The response. Its headers are encoded once, because an overload produces many of them.
    pub fn response() -> Response<Body> {
        static ANSWER: LazyLock<Response<()>> = LazyLock::new(|| {
            let mut answer = overloaded().into_http();
            answer.extensions_mut().remove::<Status>();
            answer.extensions_mut().insert(Overloaded);
            answer
        });
        ANSWER.clone().map(|()| Body::empty())
    }
}

/// The caller's deadline passed.
pub fn deadline_exceeded() -> Status {
    Row::new(ErrorReason::DeadlineExceeded, "deadline exceeded; work already started continues").status()
}

/// The upload stalled, or took too long in total.
pub fn upload_too_slow() -> Status {
    Row::new(ErrorReason::DeadlineExceeded, "the upload stalled or took too long; nothing was stored").status()
}

/// The client of an upload disconnected, so it does not read this status.
pub fn upload_interrupted() -> Status {
    Row::new(ErrorReason::DeadlineExceeded, "the upload ended early; nothing was stored").status()
}

/// The idempotency key in `field` was already used with a different request.
pub fn idempotency_mismatch(key: &RequestId, field: &str) -> Status {
    request_id_reused(key, field).status()
}

fn request_id_reused(key: &RequestId, field: &str) -> Row {
    Row::new(ErrorReason::IdempotencyMismatch, format!("request_id {key} was already used with a different request"))
        .with("request_id", key)
        .field(field, FieldReason::Conflict, "was already used with a different request")
}

/// An internal error. It is logged with all details. The client gets only the id of the log line.
pub fn internal(defect: &dyn Display) -> Status {
    let id = request_id::current();
    tracing::error!(request.id = %id, error = %defect, "internal error");
    Row::new(ErrorReason::Internal, "internal error; search the server's log for the request id")
        .request_id(id)
        .status()
}

impl From<RequestError> for Status {
    fn from(refused: RequestError) -> Self {
        match refused {
            RequestError::Invalid(violations) => invalid_request(violations).status(),
            RequestError::NotImplemented { rpc, field } => not_implemented_field(rpc, &field),
        }
    }
}

impl From<BadToken> for Status {
    fn from(BadToken: BadToken) -> Self {
        Row::new(ErrorReason::PageTokenInvalid, BadToken.to_string())
            .field("page_token", FieldReason::Invalid, "must be the next_page_token of the same list")
            .status()
    }
}

impl From<turn::Error> for Status {
    fn from(error: turn::Error) -> Self {
        use ErrorReason as R;
        use turn::Error;
        let message = error.to_string();
        let row = |reason| Row::new(reason, message.as_str());
        let about = |reason, kind, id: &dyn Display| row(reason).resource(kind, id);
        let unknown = |field, why| row(R::InvalidRequest).field(field, FieldReason::Unknown, why);
        let row = match error {
            Error::SessionNotFound(id) => about(R::SessionNotFound, "Session", &id),
            Error::SessionExists(id) => about(R::SessionAlreadyExists, "Session", &id),
            Error::TurnNotFound(id) => about(R::TurnNotFound, "Turn", &id),
            Error::BlobNotFound(id) => about(R::BlobNotFound, "Blob", &id),
            Error::ModelNotFound(it) => about(R::ModelNotFound, "Model", &it.model),
            Error::PolicyNotFound(name) => about(R::PolicyNotFound, "Policy", &name),
            Error::Provider(error) => provider_failed(&error),
            Error::Mcp(error) => mcp_failed(&error),
            Error::QueuedMessageNotFound(id) => about(R::QueuedMessageNotFound, "QueuedMessage", &id),
            Error::CompactionNotFound(id) => about(R::CompactionNotFound, "Compaction", &id),
            Error::ContextWindowUnknown(model) => row(R::ContextWindowUnknown)
                .with("model", &model)
                .precondition(model, "set policy_overrides.context_window"),
            Error::TurnInProgress { turn, last } => row(R::TurnInProgress)
                .with("turn_id", &turn)
                .with("last_seq", last)
                .precondition(turn, "watch or cancel the turn"),
            Error::QueueFull { session, limit } => {
                row(R::QueueFull).with("limit", limit).quota(session, "queued messages").retry_after(RETRY_BUSY)
            }
            Error::EtagMismatch { session, current } => {
                row(R::EtagMismatch).with("etag", current).precondition(session, "read the session again, then retry")
            }
            Error::IdempotencyMismatch(key) => request_id_reused(&key, "request_id"),
            Error::CursorAhead { last } => ahead(row(R::CursorAhead), "after_seq", last),
            Error::AtSeqAhead { last } => ahead(row(R::CursorAhead), "at_seq", last),
            Error::EventsLost { last } => row(R::EventsLost).with("last_seq", last),
            Error::UnknownCalls { results, approvals } => {
                invalid_request(call_violations(results, approvals, NO_SUCH_CALL))
            }
            Error::AppendedCalls { results, approvals } => {
                invalid_request(call_violations(results, approvals, APPENDED_CALL))
            }
            Error::Misfit(flaws) => return append_rejected(&flaws, &[]),
            Error::ContextChanged { version } => row(R::ContextChanged)
                .with("context_version", version)
                .precondition(version, "prepare the context again"),
            Error::TranscriptOpen(calls) => row(R::TranscriptOpen).with("call_ids", joined_call_ids(&calls)),
            Error::CompactionInProgress(id) => {
                row(R::CompactionInProgress).with("compaction_id", &id).retry_after(RETRY_BUSY)
            }
            Error::CompactionSuperseded { newest } => row(R::CompactionSuperseded).with("compaction_id", &newest),
            Error::CompactionNoGain { before, after } => {
                row(R::CompactionNoGain).with("tokens_before", before).with("tokens_after", after)
            }
            Error::PruneNotFound(_) => unknown("pruned_at_seq", NOT_A_PRUNE),
            Error::MessageNotFound(_) => unknown("message_id", NOT_AN_ANSWER),
            Error::ContextOverflow { used, window, largest } => row(R::ContextOverflow)
                .with("used_tokens", used)
                .with("window_tokens", window)
                .with("largest_category", category_name(largest)),
            Error::NoInput => row(R::NoInput),
            Error::Draining => row(R::Draining).retry_after(RETRY_DRAINING),
            Error::DeadlinePassed => row(R::DeadlineExceeded),
            Error::ContentTooLarge { limit } | Error::SessionTooLarge { limit } => {
                row(R::RequestTooLarge).with("limit_bytes", limit)
            }
            Error::ContentMismatch { bytes, sha256 } => invalid_request(content_mismatch(bytes, sha256.as_ref())),
            Error::UploadAbandoned => return upload_interrupted(),
            Error::ForkInProgress(_) => row(R::Overloaded).retry_after(RETRY_BUSY),
            Error::TooManyUploads | Error::Overloaded => row(R::Overloaded).retry_after(RETRY_BUSY),
            Error::Exceeded(exceeded) => return limit_reached(&exceeded),
            Error::TenantBeingDeleted(tenant) => return tenant_being_deleted(&tenant),
            Error::Store(error) => return error.into(),
            Error::Internal(_) => return internal(&message),
        };
        row.status()
    }
}

impl From<auth::Error> for Status {
    fn from(error: auth::Error) -> Self {
        use auth::Error;
        match error {
            Error::Forbidden { needed } => permission_denied(needed),
            Error::TooManyKeys { limit } => Row::new(ErrorReason::QuotaExceeded, error.to_string())
                .with("quota", "live_keys")
                .with("limit", limit)
                .quota("tenant", &format!("{limit} live API keys"))
                .status(),
            Error::KeyNotFound(ref id) => {
                Row::new(ErrorReason::KeyNotFound, error.to_string()).resource("ApiKey", id).status()
            }
            Error::Store(error) => error.into(),
            Error::Unreadable { .. } | Error::KeyFile { .. } | Error::Http(_) | Error::Randomness(_) => {
                internal(&error)
            }
        }
    }
}

impl From<store::Error> for Status {
    fn from(error: store::Error) -> Self {
        use store::Error;
        let busy = |reason, message: &str| Row::new(reason, message).retry_after(RETRY_BUSY);
        let row = match &error {
            Error::Unavailable(_) | Error::Refused(_) => {
                tracing::warn!(%error, "the database cannot be reached");
                let message = "the database cannot be reached";
                busy(ErrorReason::DatabaseUnavailable, message)
            }
            Error::Outage(outage, _) => {
                tracing::warn!(%error, "the database cannot be used");
                busy(ErrorReason::DatabaseUnavailable, &outage.to_string())
            }
            Error::Busy => {
                let message = "timed out while waiting for a database connection";
                busy(ErrorReason::Overloaded, message)
            }
            Error::Conflict(_) => {
                tracing::warn!(%error, "the database keeps aborting a transaction");
                let message = "too many requests change the same session at once";
                busy(ErrorReason::Overloaded, message)
            }
            Error::EventsExpired { oldest } => Row::new(ErrorReason::EventsExpired, error.to_string())
                .with("oldest_seq", oldest)
                .field("after_seq", FieldReason::OutOfRange, "must be at least oldest_seq - 1"),
            Error::TenantDeleted(tenant) => return tenant_being_deleted(tenant),
            Error::Schema(_)
            | Error::Corrupt(_)
            | Error::Duplicate(_)
            | Error::NoRowSecurityScope
            | Error::Broken(_) => {
                return internal(&error);
            }
        };
        row.status()
    }
}

/// The field names a position after the session's last seq.
fn ahead(row: Row, field: &str, last: Seq) -> Row {
    row.with("last_seq", last).field(field, FieldReason::OutOfRange, "must not be greater than the session's last_seq")
}

/// The name of a category without its prefix.
fn category_name(largest: ContextCategory) -> &'static str {
    let name = largest.to_pb().as_str_name();
    name.trim_start_matches("CONTEXT_CATEGORY_")
}

fn invalid_request(violations: Violations) -> Row {
    let mut row = Row::new(ErrorReason::InvalidRequest, summary(&violations));
    for Violation { field, reason, description } in violations.listed {
        row = row.field(field, reason, description);
    }
    row
}

/// The first violation, and the number of further ones.
fn summary(violations: &Violations) -> String {
    let more = (violations.listed.len() + violations.unlisted).saturating_sub(1);
    let first = violations.listed.first().map_or_else(
        || "the request is invalid".to_owned(),
        |Violation { field, description, .. }| format!("{field}: {description}"),
    );
    match (more, violations.unlisted) {
        (0, _) => first,
        (more, 0) => format!("{first} (and {more} more)"),
        (more, cut) => format!("{first} (and {more} more, {cut} of them not listed)"),
    }
}

fn not_implemented_field(rpc: &str, field: &str) -> Status {
    Row::new(ErrorReason::NotImplemented, format!("{field} of {rpc} is not implemented yet"))
        .with("rpc", rpc)
        .with("field", field)
        .status()
}

/// The ids of the calls. A list that would not fit into a status is cut.
fn joined_call_ids(calls: &[CallId]) -> String {
    let mut bytes = 0;
    let fits = calls.iter().take_while(|call| {
        bytes += call.as_str().len() + 1;
        bytes <= Violations::MAX_LISTED_BYTES
    });
    fits.map(CallId::as_str).collect::<Vec<_>>().join(",")
}

/// Messages that cannot be appended. `places` maps them to fields of the request if it used the format of
/// another API.
pub fn append_rejected(flaws: &[Flaw], places: &[decode::MessagePaths]) -> Status {
    let violations = flaws.iter().map(|flaw| append_violation(flaw, places));
    invalid_request(violations.collect()).status()
}

/// The violation for a message that cannot be appended.
fn append_violation(flaw: &Flaw, places: &[decode::MessagePaths]) -> Violation {
    let violation = |field, reason, description: String| Violation { field, reason, description };
    let message = |at: usize| match places.get(at) {
        Some(place) => place.message.clone(),
        None => format!("messages[{at}]"),
    };
    let part = |Place { message, part }: &Place, field: &str| {
        let there = places.get(*message).and_then(|place| place.parts.get(*part));
        there.cloned().unwrap_or_else(|| format!("messages[{message}].parts[{part}].{field}"))
    };
    match flaw {
        Flaw::Taken(place) => violation(
            part(place, "tool_call.call_id"),
            FieldReason::Conflict,
            "the session already has a call with this id".into(),
        ),
        Flaw::Orphan(place) => violation(
            part(place, "tool_result.call_id"),
            FieldReason::Unknown,
            "no call with this id is waiting for a result".into(),
        ),
        Flaw::Repeated(place) => {
            violation(part(place, "tool_result.call_id"), FieldReason::Conflict, "the call already has a result".into())
        }
        Flaw::Unanswered { call, before } => violation(
            part(call, "tool_call"),
            FieldReason::Invalid,
            format!("has no result before {}", message(*before)),
        ),
        Flaw::PinnedApart(at) => violation(
            format!("{}.pinned", message(*at)),
            FieldReason::Conflict,
            "the message with the calls is not pinned; pin that message".into(),
        ),
    }
}

const NOT_A_PRUNE: &str = "must be the pruned_at_seq of a prune of this session";
const NOT_AN_ANSWER: &str = "must be an assistant message of this session";
const NO_SUCH_CALL: (FieldReason, &str) = (FieldReason::Unknown, "the session has no such call");
const APPENDED_CALL: (FieldReason, &str) =
    (FieldReason::Unsupported, "the call was appended; append its result with AppendMessages");

fn provider_failed(error: &provider::Error) -> Row {
    let row = Row::new(ErrorReason::ProviderFailed, error.to_string()).with("provider", &error.provider);
    if error.is_retryable() { row.retry_after(error.retry_after.unwrap_or(RETRY_BUSY)) } else { row }
}

fn mcp_failed(error: &mcp::Error) -> Row {
    let text = error.to_string();
    match error {
        mcp::Error::UnknownServer(server) => {
            Row::new(ErrorReason::McpServerNotFound, text).resource("McpServer", server)
        }
        mcp::Error::ListFailed { server, reason: _ } => {
            Row::new(ErrorReason::McpServerFailed, text).with("server", server)
        }
        mcp::Error::InvalidTools { server, reason: _ } => {
            Row::new(ErrorReason::McpToolsUnusable, text).with("server", server)
        }
    }
}

/// Call ids are not repeated in the description: the index identifies the call.
fn call_violations(
    results: Vec<(usize, CallId)>,
    approvals: Vec<(usize, CallId)>,
    (reason, description): (FieldReason, &'static str),
) -> Violations {
    let violation = |list: &'static str| {
        move |(i, _)| Violation { field: format!("{list}[{i}].call_id"), reason, description: description.into() }
    };
    results.into_iter().map(violation("results")).chain(approvals.into_iter().map(violation("approvals"))).collect()
}

#[cfg(test)]
mod tests;
