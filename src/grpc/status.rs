//! Every error as a status: its stable reason and its details, in one table; the code of each reason
//! stands in `code.rs`. `error.proto` is its public face.
//!
//! What goes out is safe to show. Internals are logged here, once, under an id that the client gets
//! instead of them.

use std::{fmt::Display, sync::LazyLock, time::Duration};

use http::Response;
use tonic::{Code, Status, body::Body};

use self::code::Row;
use super::{
    decode::{self, not_as_announced},
    page_token::BadToken,
    readiness::Closed,
    request_id,
    violations::{Refused, Violation, Violations},
};
use crate::{
    auth, codec, mcp,
    model::{
        Access, CallId, Exceeded, RequestId, Seq, TenantId,
        append::{Flaw, Place},
        ledger::Occupant,
    },
    pb::{ErrorReason, FieldReason},
    provider,
    store::{self, admitted::KNOWN_FOR},
    turn,
};

mod code;

pub use code::DOMAIN;

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

/// A request that takes more memory than the server gives it, once it is decoded.
pub fn request_unpacks_too_large(limit_bytes: usize) -> Status {
    let message = format!(
        "the request takes more than {limit_bytes} bytes of memory; send fewer messages, parts or tools at a time"
    );
    Row::new(ErrorReason::RequestTooLarge, message)
        .with("limit_bytes", limit_bytes)
        .status()
}

/// A request that its client did not send in time.
pub fn request_too_slow() -> Status {
    Row::new(
        ErrorReason::DeadlineExceeded,
        "the request did not arrive in time; nothing was done",
    )
    .status()
}

/// A server that waits for its database or for the schema in it.
pub fn not_ready(closed: &Closed) -> Status {
    let reason = match closed {
        Closed::Database => ErrorReason::DatabaseUnavailable,
        Closed::Schema(_) => ErrorReason::SchemaOutdated,
    };
    Row::new(reason, closed.to_string())
        .retry_after(RETRY_BUSY)
        .status()
}

/// A server that has not read keys, limits and deletions for too long: whom it would serve may have
/// been locked out.
pub fn not_up_to_date() -> Status {
    let message = format!(
        "keys and limits were not read from the database for {} s",
        KNOWN_FOR.as_secs()
    );
    Row::new(ErrorReason::DatabaseUnavailable, message)
        .retry_after(RETRY_BUSY)
        .status()
}

/// A request whose bytes are not the message that the RPC takes.
pub fn undecodable() -> Status {
    Row::new(
        ErrorReason::InvalidRequest,
        "the request is not the message that this RPC takes",
    )
    .status()
}

/// A caller without a valid credential. Why it is not valid is in the log only.
pub fn unauthenticated() -> Status {
    Row::new(
        ErrorReason::Unauthenticated,
        "no valid credential; send `authorization: Bearer <API key or token>`",
    )
    .status()
}

/// A caller whose credential does not allow this.
pub fn permission_denied(needed: Access) -> Status {
    Row::new(
        ErrorReason::PermissionDenied,
        format!("this takes the access `{needed}`"),
    )
    .with("access", needed)
    .status()
}

/// A tenant that is at one of its limits.
pub fn limit_reached(exceeded: &Exceeded) -> Status {
    let Exceeded {
        quota,
        limit,
        retry_after,
    } = *exceeded;
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

/// A tenant that is being deleted.
pub fn tenant_being_deleted(tenant: &TenantId) -> Status {
    let message = format!("the tenant {tenant} is being deleted");
    Row::new(ErrorReason::TenantBeingDeleted, message)
        .precondition(tenant, "wait until its deletion is done")
        .status()
}

/// A server at its limit.
pub fn overloaded() -> Status {
    Row::new(ErrorReason::Overloaded, "the server is overloaded")
        .retry_after(RETRY_BUSY)
        .status()
}

/// Marks an answer that refuses a call because the server has as much to do as it may.
#[derive(Debug, Clone, Copy)]
pub struct Overloaded;

impl Overloaded {
    /// Its code.
    pub const CODE: Code = code::code(ErrorReason::Overloaded);
    /// Its reason, as metrics and the log have it.
    pub const REASON: &'static str = "overloaded";

    /// The answer. Its headers are written once: in an overload there are many.
    pub fn answer() -> Response<Body> {
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
        "the upload stalled or took too long; nothing is stored",
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
    request_id_reused(key, field).status()
}

fn request_id_reused(key: &RequestId, field: &str) -> Row {
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
}

/// A defect: logged in full, and sent as nothing but the id it is logged under.
pub fn internal(defect: &dyn Display) -> Status {
    let id = request_id::current();
    tracing::error!(request.id = %id, error = %defect, "internal error");
    Row::new(
        ErrorReason::Internal,
        "internal error; the server's log has it under the request id",
    )
    .request_id(id)
    .status()
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid(violations) => violated(violations).status(),
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
    #[expect(clippy::too_many_lines, reason = "a table, one row for each error")]
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
            Error::QueuedMessageNotFound(id) => {
                about(R::QueuedMessageNotFound, "QueuedMessage", &id)
            }
            Error::CompactionNotFound(id) => about(R::CompactionNotFound, "Compaction", &id),
            Error::ContextWindowUnknown(model) => row(R::ContextWindowUnknown)
                .with("model", &model)
                .precondition(model, "set policy_overrides.context_window"),
            Error::TurnInProgress { turn, last } => row(R::TurnInProgress)
                .with("turn_id", &turn)
                .with("last_seq", last)
                .precondition(turn, "watch it, or cancel it"),
            Error::QueueFull { session, limit } => row(R::QueueFull)
                .with("limit", limit)
                .quota(session, "the messages that wait in its queue")
                .retry_after(RETRY_BUSY),
            Error::EtagMismatch { session, current } => row(R::EtagMismatch)
                .with("etag", current)
                .precondition(session, "read the session again, then repeat"),
            Error::IdempotencyMismatch(key) => request_id_reused(&key, "request_id"),
            Error::CursorAhead { last } => ahead(row(R::CursorAhead), "after_seq", last),
            Error::AtSeqAhead { last } => ahead(row(R::CursorAhead), "at_seq", last),
            Error::EventsLost { last } => row(R::EventsLost).with("last_seq", last),
            Error::UnknownCalls { results, approvals } => {
                violated(named_calls(results, approvals, NO_SUCH_CALL))
            }
            Error::AppendedCalls { results, approvals } => {
                violated(named_calls(results, approvals, APPENDED_CALL))
            }
            Error::Misfit(flaws) => return misfit(&flaws, &[]),
            Error::ContextChanged { version } => row(R::ContextChanged)
                .with("context_version", version)
                .precondition(version, "prepare the context again"),
            Error::TranscriptOpen(calls) => row(R::TranscriptOpen).with("call_ids", listed(&calls)),
            Error::CompactionInProgress(id) => row(R::CompactionInProgress)
                .with("compaction_id", &id)
                .retry_after(RETRY_BUSY),
            Error::CompactionSuperseded { newest } => {
                row(R::CompactionSuperseded).with("compaction_id", &newest)
            }
            Error::CompactionNoGain { before, after } => row(R::CompactionNoGain)
                .with("tokens_before", before)
                .with("tokens_after", after),
            Error::PruneNotFound(_) => unknown("pruned_at_seq", NOT_A_PRUNE),
            Error::MessageNotFound(_) => unknown("message_id", NOT_AN_ANSWER),
            Error::ContextOverflow {
                used,
                window,
                largest,
            } => row(R::ContextOverflow)
                .with("used_tokens", used)
                .with("window_tokens", window)
                .with("largest_category", category_name(largest)),
            Error::NoInput => row(R::NoInput),
            Error::Draining => row(R::Draining).retry_after(RETRY_DRAINING),
            Error::DeadlinePassed => row(R::DeadlineExceeded),
            Error::ContentTooLarge { limit } | Error::SessionTooLarge { limit } => {
                row(R::RequestTooLarge).with("limit_bytes", limit)
            }
            Error::ContentMismatch { bytes, sha256 } => {
                violated(not_as_announced(bytes, sha256.as_ref()))
            }
            Error::UploadAbandoned => return upload_broke_off(),
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
            Error::KeyNotFound(ref id) => Row::new(ErrorReason::KeyNotFound, error.to_string())
                .resource("ApiKey", id)
                .status(),
            Error::Store(error) => error.into(),
            Error::Unreadable { .. }
            | Error::KeyFile { .. }
            | Error::Http(_)
            | Error::Randomness(_) => internal(&error),
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
                tracing::warn!(%error, "the database is of no use now");
                busy(ErrorReason::DatabaseUnavailable, &outage.to_string())
            }
            Error::Busy => {
                let message = "no database connection became free in time";
                busy(ErrorReason::Overloaded, message)
            }
            Error::Conflict(_) => {
                tracing::warn!(%error, "the database keeps aborting a transaction");
                let message = "too many requests change the same session at once";
                busy(ErrorReason::Overloaded, message)
            }
            Error::EventsExpired { oldest } => {
                Row::new(ErrorReason::EventsExpired, error.to_string())
                    .with("oldest_seq", oldest)
                    .field(
                        "after_seq",
                        FieldReason::OutOfRange,
                        "must be at least oldest_seq - 1",
                    )
            }
            Error::TenantDeleted(tenant) => return tenant_being_deleted(tenant),
            Error::Schema(_)
            | Error::Corrupt(_)
            | Error::Duplicate(_)
            | Error::NoReach
            | Error::Broken(_) => {
                return internal(&error);
            }
        };
        row.status()
    }
}

/// A position that the session has not reached.
fn ahead(row: Row, field: &str, last: Seq) -> Row {
    row.with("last_seq", last).field(
        field,
        FieldReason::OutOfRange,
        "must not be ahead of the session's last_seq",
    )
}

/// The name of a category without its prefix.
fn category_name(largest: Occupant) -> &'static str {
    let name = codec::category::occupant_to_pb(largest).as_str_name();
    name.trim_start_matches("CONTEXT_CATEGORY_")
}

fn violated(violations: Violations) -> Row {
    let mut row = Row::new(ErrorReason::InvalidRequest, summary(&violations));
    for Violation {
        field,
        reason,
        description,
    } in violations.listed
    {
        row = row.field(field, reason, description);
    }
    row
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

/// Calls, as many as a status can carry.
fn listed(calls: &[CallId]) -> String {
    let mut bytes = 0;
    let fits = calls.iter().take_while(|call| {
        bytes += call.as_str().len() + 1;
        bytes <= Violations::MOST_BYTES
    });
    fits.map(CallId::as_str).collect::<Vec<_>>().join(",")
}

/// Messages that do not fit. `places` say where they stand in the request, if they came in another
/// API's shape.
pub fn misfit(flaws: &[Flaw], places: &[decode::Place]) -> Status {
    let violations = flaws.iter().map(|flaw| flawed(flaw, places));
    violated(violations.collect()).status()
}

/// Why a message does not fit.
fn flawed(flaw: &Flaw, places: &[decode::Place]) -> Violation {
    let violation = |field, reason, description: String| Violation {
        field,
        reason,
        description,
    };
    let message = |at: usize| match places.get(at) {
        Some(place) => place.message.clone(),
        None => format!("messages[{at}]"),
    };
    let part = |Place { message, part }: &Place, field: &str| {
        let there = places
            .get(*message)
            .and_then(|place| place.parts.get(*part));
        there
            .cloned()
            .unwrap_or_else(|| format!("messages[{message}].parts[{part}].{field}"))
    };
    match flaw {
        Flaw::Taken(place) => violation(
            part(place, "tool_call.call_id"),
            FieldReason::Conflict,
            "the session has a call of this id already".into(),
        ),
        Flaw::Orphan(place) => violation(
            part(place, "tool_result.call_id"),
            FieldReason::Unknown,
            "no call of this id waits for a result".into(),
        ),
        Flaw::Repeated(place) => violation(
            part(place, "tool_result.call_id"),
            FieldReason::Conflict,
            "the call has a result already".into(),
        ),
        Flaw::Unanswered { call, before } => violation(
            part(call, "tool_call"),
            FieldReason::Invalid,
            format!("has no result before {}", message(*before)),
        ),
        Flaw::PinnedApart(at) => violation(
            format!("{}.pinned", message(*at)),
            FieldReason::Conflict,
            "the message with the calls is not pinned; pin that one".into(),
        ),
    }
}

const NOT_A_PRUNE: &str = "must be the pruned_at_seq of a prune of this session";
const NOT_AN_ANSWER: &str = "must be a message of the assistant in this session";
const NO_SUCH_CALL: (FieldReason, &str) = (FieldReason::Unknown, "the session has no such call");
const APPENDED_CALL: (FieldReason, &str) = (
    FieldReason::Unsupported,
    "the call was appended: its result comes with AppendMessages",
);

fn provider_failed(error: &provider::Error) -> Row {
    let row =
        Row::new(ErrorReason::ProviderFailed, error.to_string()).with("provider", &error.provider);
    if error.is_retryable() {
        row.retry_after(error.retry_after.unwrap_or(RETRY_BUSY))
    } else {
        row
    }
}

fn mcp_failed(error: &mcp::Error) -> Row {
    let text = error.to_string();
    match error {
        mcp::Error::Unknown(server) => {
            Row::new(ErrorReason::McpServerNotFound, text).resource("McpServer", server)
        }
        mcp::Error::Failed { server, reason: _ } => {
            Row::new(ErrorReason::McpServerFailed, text).with("server", server)
        }
        mcp::Error::Tools { server, reason: _ } => {
            Row::new(ErrorReason::McpToolsUnusable, text).with("server", server)
        }
    }
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

#[cfg(test)]
mod tests;
