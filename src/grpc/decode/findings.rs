//! What was found while a request was read.

use std::collections::{BTreeMap, BTreeSet};

use super::path::Path;
use crate::{
    codec::DecodeError,
    grpc::violations::{Refused, Violation, Violations},
    model::{BlobId, NewContent, media::Kept},
    pb::FieldReason,
};

/// What is stored of the blobs that a request names.
pub type Stored = BTreeMap<BlobId, Kept>;

/// Collects violations and what is not implemented, over one request.
#[derive(Debug)]
pub(super) struct Findings {
    rpc: &'static str,
    violations: Violations,
    not_implemented: Option<String>,
    stored: Stored,
    contents: Vec<NewContent>,
    /// The ids of the contents.
    known: BTreeSet<BlobId>,
}

impl Findings {
    /// Nothing found yet in a request of this RPC.
    pub(super) fn of(rpc: &'static str) -> Self {
        let violations = Violations::default();
        let stored = Stored::new();
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

    /// The same where these of the blobs that the request names are stored.
    pub(super) fn with(rpc: &'static str, stored: Stored) -> Self {
        Self {
            stored,
            ..Self::of(rpc)
        }
    }

    /// What is stored of a blob. `None` means it was not looked up or does not exist.
    pub(super) fn stored(&self, id: &BlobId) -> Option<Kept> {
        self.stored.get(id).cloned()
    }

    /// Takes content out of the request. The same content counts once.
    pub(super) fn lay_aside(&mut self, content: NewContent) {
        if self.known.insert(content.id().clone()) {
            self.contents.push(content);
        }
    }

    /// All content that was laid aside.
    pub(super) fn take_contents(&mut self) -> Vec<NewContent> {
        std::mem::take(&mut self.contents)
    }

    /// Notes a wrong field. In a message of another API that is its place there, and the field is
    /// said in words.
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

    /// Notes a field that must be set.
    pub(super) fn required(&mut self, at: Path<'_>) {
        self.invalid(at, FieldReason::Required, "must be set");
    }

    /// What a checked message converts to, by the conversion that reads stored ones. What that
    /// refuses, the check has found: limits that are tightened belong into the check, so that
    /// what is stored stays readable.
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
                    "has a value that this server does not know",
                );
            }
            T::default()
        })
    }

    /// Notes a field that asks for something that a later version does. Only the first is reported.
    pub(super) fn not_implemented(&mut self, at: Path<'_>) {
        self.not_implemented.get_or_insert_with(|| at.to_string());
    }

    /// The value, unless something was found. What is invalid wins: it stays so whatever the server
    /// learns.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Refused> {
        let Self {
            rpc,
            violations,
            not_implemented,
            stored: _,
            contents: _,
            known: _,
        } = self;
        if !violations.is_empty() {
            return Err(Refused::Invalid(violations));
        }
        match not_implemented {
            Some(field) => Err(Refused::NotImplemented { rpc, field }),
            None => Ok(value),
        }
    }
}
