//! Collects the violations found while a request is decoded.

use std::collections::{BTreeMap, BTreeSet};

use super::{Path, hash::idempotency};
use crate::{
    codec::DecodeError,
    grpc::violations::{RequestError, Violation, Violations},
    model::{BlobId, NewContent, command::Idempotency, media::BlobRef},
    pb::{FieldReason, limits::Report},
};

/// The stored blobs among those that a request references.
pub type StoredBlobs = BTreeMap<BlobId, BlobRef>;

/// Collects the violations and unimplemented features of one request.
#[derive(Debug)]
pub struct Findings {
    rpc: &'static str,
    /// The hash of a request with a `request_id`.
    hash: String,
    violations: Violations,
    not_implemented: Option<String>,
    stored: StoredBlobs,
    contents: Vec<NewContent>,
    /// The ids of `contents`.
    known: BTreeSet<BlobId>,
}

impl Findings {
    /// No findings yet. `stored` are the blobs that the request references.
    pub(super) fn new(rpc: &'static str, stored: StoredBlobs) -> Self {
        Self {
            rpc,
            hash: String::new(),
            violations: Violations::default(),
            not_implemented: None,
            stored,
            contents: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    /// Sets the hash of the request.
    pub(super) fn set_hash(&mut self, hash: String) {
        self.hash = hash;
    }

    /// The idempotency key of the request, with its hash.
    pub(super) fn idempotency(&self, request_id: String) -> Idempotency {
        idempotency(request_id, self.hash.clone())
    }

    /// A blob that the request references. Returns `None` if it does not exist or was not looked up.
    pub(super) fn stored(&self, id: &BlobId) -> Option<BlobRef> {
        self.stored.get(id).cloned()
    }

    /// Takes inline content out of the request. Identical content is kept once.
    pub(super) fn add_content(&mut self, content: NewContent) {
        if self.known.insert(content.id().clone()) {
            self.contents.push(content);
        }
    }

    /// All content that was taken out of the request.
    pub(super) fn take_contents(&mut self) -> Vec<NewContent> {
        std::mem::take(&mut self.contents)
    }

    /// Reports an invalid field.
    pub(super) fn invalid(&mut self, at: Path<'_>, reason: FieldReason, description: impl Into<String>) {
        Report::invalid(self, at, reason, description.into());
    }

    /// Reports a required field that is not set.
    pub(super) fn required(&mut self, at: Path<'_>) {
        Report::required(self, at);
    }

    /// The result of converting a checked message with the conversion that also reads stored messages. An
    /// error of the conversion should already be reported by a check. Stricter limits belong in the check, so
    /// that stored messages stay readable.
    pub(super) fn converted<T: Default>(&mut self, at: Path<'_>, converted: Result<T, DecodeError>) -> T {
        converted.unwrap_or_else(|_| {
            self.unknown_value(at);
            T::default()
        })
    }

    /// Reports a value that a conversion rejects, unless a check has reported the reason.
    fn unknown_value(&mut self, at: Path<'_>) {
        if self.violations.is_empty() {
            self.invalid(at, FieldReason::Invalid, "has a value unknown to this server");
        }
    }

    /// Reports a field that uses an unimplemented feature. Only the first is returned.
    pub(super) fn not_implemented(&mut self, at: Path<'_>) {
        self.not_implemented.get_or_insert_with(|| at.to_string());
    }

    /// Returns the value if there are no findings. Violations take precedence over unimplemented features,
    /// because a later version would reject them too.
    pub(super) fn finish<T>(mut self, value: Result<T, DecodeError>) -> Result<T, RequestError> {
        if let Err(error) = &value {
            self.unknown_value(Path::to(error.what()));
        }
        match (value, self.not_implemented) {
            (Ok(value), None) if self.violations.is_empty() => Ok(value),
            (Ok(_), Some(field)) if self.violations.is_empty() => {
                Err(RequestError::NotImplemented { rpc: self.rpc, field })
            }
            (_, _) => Err(RequestError::Invalid(self.violations)),
        }
    }
}

impl Report for Findings {
    /// For a message in another API's format, the violation names the position in that message, and the
    /// description names the field.
    fn invalid(&mut self, at: Path<'_>, reason: FieldReason, description: String) {
        let (field, description) = match at.of_foreign() {
            Some((place, field)) if !field.is_empty() => (place.to_owned(), format!("{field}: {description}")),
            Some((place, _)) => (place.to_owned(), description),
            None => (at.to_string(), description),
        };
        self.violations.add(Violation { field, reason, description });
    }
}
