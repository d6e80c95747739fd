//! Collects the violations found while a request is decoded.

use std::collections::{BTreeMap, BTreeSet};

use super::path::Path;
use crate::{
    codec::DecodeError,
    grpc::violations::{RequestError, Violation, Violations},
    model::{BlobId, NewContent, media::BlobRef},
    pb::FieldReason,
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
    /// No findings yet, for a request of this RPC.
    pub(super) fn of(rpc: &'static str) -> Self {
        let violations = Violations::default();
        let stored = StoredBlobs::new();
        let contents = Vec::new();
        let known = BTreeSet::new();
        Self {
            rpc,
            violations,
            not_implemented: None,
            stored,
            contents,
            known,
        }
    }

    /// No findings yet, for a request whose referenced blobs are `stored`.
    pub(super) fn with(rpc: &'static str, stored: StoredBlobs) -> Self {
        Self {
            stored,
            ..Self::of(rpc)
        }
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

    /// Reports an invalid field. For a message in another API's format, the violation names the position in
    /// that message, and the description names the field.
    pub(super) fn invalid(
        &mut self,
        at: Path<'_>,
        reason: FieldReason,
        description: impl Into<String>,
    ) {
        let description = description.into();
        let (field, description) = match at.of_foreign() {
            Some((place, field)) if !field.is_empty() => {
                (place.to_owned(), format!("{field}: {description}"))
            }
            Some((place, _)) => (place.to_owned(), description),
            None => (at.to_string(), description),
        };
        self.violations.add(Violation {
            field,
            reason,
            description,
        });
    }

    /// Reports a required field that is not set.
    pub(super) fn required(&mut self, at: Path<'_>) {
        self.invalid(at, FieldReason::Required, "must be set");
    }

    /// The result of converting a checked message with the conversion that also reads stored messages. An
    /// error of the conversion should already be reported by a check. Stricter limits belong in the check, so
    /// that stored messages stay readable.
    pub(super) fn converted<T: Default>(
        &mut self,
        at: Path<'_>,
        converted: Result<T, DecodeError>,
    ) -> T {
        converted.unwrap_or_else(|_| {
            if self.violations.is_empty() {
                self.invalid(
                    at,
                    FieldReason::Invalid,
                    "has a value unknown to this server",
                );
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
        let Self {
            rpc,
            violations,
            not_implemented,
            stored: _,
            contents: _,
            known: _,
        } = self;
        if !violations.is_empty() {
            return Err(RequestError::Invalid(violations));
        }
        match not_implemented {
            Some(field) => Err(RequestError::NotImplemented { rpc, field }),
            None => Ok(value),
        }
    }
}
