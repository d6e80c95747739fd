//! The row type of the error table, and the gRPC code of each reason.

use std::{collections::HashMap, fmt::Display, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

use crate::pb::{ErrorReason, FieldReason};

/// The `domain` of every ErrorInfo.
pub const DOMAIN: &str = "contextd.dev";

/// A row of the error table, filled in.
#[derive(Debug)]
pub(super) struct Row {
    reason: ErrorReason,
    message: String,
    metadata: HashMap<String, String>,
    fields: Vec<FieldViolation>,
    details: ErrorDetails,
}

impl Row {
    pub(super) fn new(reason: ErrorReason, message: impl Into<String>) -> Self {
        let metadata = HashMap::new();
        let fields = Vec::new();
        let details = ErrorDetails::new();
        Self { reason, message: message.into(), metadata, fields, details }
    }

    /// Adds metadata to the ErrorInfo.
    pub(super) fn with(mut self, key: &str, value: impl Display) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    /// Adds a violation to the BadRequest.
    pub(super) fn field(
        mut self,
        field: impl Into<String>,
        reason: FieldReason,
        description: impl Into<String>,
    ) -> Self {
        let reason = field_reason_name(reason).to_owned();
        self.fields.push(FieldViolation { reason, ..FieldViolation::new(field, description) });
        self
    }

    /// Adds a ResourceInfo: the resource's message type in the proto, and its id.
    pub(super) fn resource(mut self, kind: &str, id: &(impl Display + ?Sized)) -> Self {
        let kind = format!("contextd.v1.{kind}");
        self.details.set_resource_info(kind, id.to_string(), "", "");
        self
    }

    /// Adds a PreconditionFailure with advice on how to meet the precondition.
    pub(super) fn precondition(mut self, subject: impl Display, advice: &str) -> Self {
        let kind = reason_name(self.reason);
        self.details.add_precondition_failure_violation(kind, subject.to_string(), advice);
        self
    }

    /// Adds a QuotaFailure with the limit that was reached.
    pub(super) fn quota(mut self, subject: impl Display, bound: &str) -> Self {
        self.details.add_quota_failure_violation(subject.to_string(), bound);
        self
    }

    /// Adds a RetryInfo.
    pub(super) fn retry_after(mut self, delay: Duration) -> Self {
        self.details.set_retry_info(Some(delay));
        self
    }

    /// Adds a RequestInfo with the id under which the server logged the error.
    pub(super) fn request_id(mut self, id: impl Display) -> Self {
        self.details.set_request_info(id.to_string(), "");
        self
    }

    pub(super) fn status(self) -> Status {
        let Self { reason, message, metadata, fields, mut details } = self;
        details.set_error_info(reason_name(reason), DOMAIN, metadata);
        if !fields.is_empty() {
            details.set_bad_request(fields);
        }
        Status::with_error_details(code(reason), message, details)
    }
}

/// The gRPC code of a reason.
pub(super) const fn code(reason: ErrorReason) -> Code {
    use ErrorReason as R;
    match reason {
        R::InvalidRequest | R::IdempotencyMismatch | R::PageTokenInvalid | R::CursorAhead => Code::InvalidArgument,
        R::EventsExpired => Code::OutOfRange,
        R::EventsLost => Code::DataLoss,
        R::SessionNotFound
        | R::TurnNotFound
        | R::QueuedMessageNotFound
        | R::CompactionNotFound
        | R::BlobNotFound
        | R::ModelNotFound
        | R::PolicyNotFound
        | R::McpServerNotFound
        | R::KeyNotFound => Code::NotFound,
        R::SessionAlreadyExists => Code::AlreadyExists,
        R::EtagMismatch | R::ContextChanged | R::CompactionInProgress => Code::Aborted,
        R::TurnInProgress
        | R::NoInput
        | R::TranscriptOpen
        | R::ContextOverflow
        | R::ContextWindowUnknown
        | R::CompactionNoGain
        | R::CompactionSuperseded
        | R::McpToolsUnusable
        | R::TenantBeingDeleted => Code::FailedPrecondition,
        R::RequestTooLarge | R::QueueFull | R::RateLimited | R::QuotaExceeded => Code::ResourceExhausted,
        R::Overloaded
        | R::Draining
        | R::DatabaseUnavailable
        | R::SchemaOutdated
        | R::ProviderFailed
        | R::McpServerFailed => Code::Unavailable,
        R::DeadlineExceeded => Code::DeadlineExceeded,
        R::Unauthenticated => Code::Unauthenticated,
        R::PermissionDenied => Code::PermissionDenied,
        R::NotImplemented => Code::Unimplemented,
        R::Unspecified | R::Internal => Code::Internal,
    }
}

pub(super) fn reason_name(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix("ERROR_REASON_").unwrap_or(name)
}

fn field_reason_name(reason: FieldReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix("FIELD_REASON_").unwrap_or(name)
}
