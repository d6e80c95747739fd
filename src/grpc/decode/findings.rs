//! Collects the violations found while a request is decoded.

use std::collections::{BTreeMap, BTreeSet};

use super::Path;
use crate::{
    codec::DecodeError,
    grpc::violations::{RequestError, Violation, Violations},
    model::{BlobId, NewContent, media::BlobRef},
    pb::{
        FieldReason,
        limits::{Limited, Report},
    },
};

/// The stored blobs among those that a request references.
pub type StoredBlobs = BTreeMap<BlobId, BlobRef>;

/// Collects the violations and unimplemented features of one request.
#[derive(Debug)]
pub(super) struct Findings {
    rpc: &'static str,
    violations: Violations,
    not_implemented: Option<String>,
    stored: StoredBlobs,
    contents: Vec<NewContent>,
    /// The ids of `contents`.
    known: BTreeSet<BlobId>,
}

impl Findings {
    /// No findings yet.
    pub(super) fn of(rpc: &'static str) -> Self {
        Self {
            rpc,
            violations: Violations::default(),
            not_implemented: None,
            stored: StoredBlobs::new(),
            contents: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    /// The fields of a request that exceed their limits. Clears the fields that only the server sets.
    pub(super) fn check(rpc: &'static str, request: &mut impl Limited) -> Self {
        request.clear_output_only();
        let mut found = Self::of(rpc);
        request.check(Path::request(), &mut found);
        found
    }

    /// Like [`Findings::check`], for a request whose referenced blobs are `stored`.
    pub(super) fn check_with(rpc: &'static str, request: &mut impl Limited, stored: StoredBlobs) -> Self {
        Self { stored, ..Self::check(rpc, request) }
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
            if self.violations.is_empty() {
                self.invalid(at, FieldReason::Invalid, "has a value unknown to this server");
            }
            T::default()
        })
    }

    /// Reports a field that uses an unimplemented feature. Only the first is returned.
    pub(super) fn not_implemented(&mut self, at: Path<'_>) {
        self.not_implemented.get_or_insert_with(|| at.to_string());
    }

    /// Returns the value if there are no findings. Violations take precedence over unimplemented features,
    /// because a later version would reject them too.
    pub(super) fn finish<T>(self, value: T) -> Result<T, RequestError> {
        if !self.violations.is_empty() {
            return Err(RequestError::Invalid(self.violations));
        }
        match self.not_implemented {
            Some(field) => Err(RequestError::NotImplemented { rpc: self.rpc, field }),
            None => Ok(value),
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
