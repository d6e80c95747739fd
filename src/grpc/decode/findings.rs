//! What was found while a request was read.

use super::Path;
use crate::{
    grpc::violations::{Refused, Violation, Violations},
    pb::FieldReason,
};

/// Collects violations and what is not implemented, over one request.
#[derive(Debug)]
pub(super) struct Findings {
    rpc: &'static str,
    violations: Violations,
    not_implemented: Option<String>,
}

impl Findings {
    /// Nothing found yet in a request of this RPC.
    pub(super) fn of(rpc: &'static str) -> Self {
        Self { rpc, violations: Violations::default(), not_implemented: None }
    }

    /// Notes a wrong field.
    pub(super) fn invalid(&mut self, at: Path<'_>, reason: FieldReason, description: impl Into<String>) {
        self.violations.add(Violation { field: at.to_string(), reason, description: description.into() });
    }

    /// Notes a field that must be set.
    pub(super) fn required(&mut self, at: Path<'_>) {
        self.invalid(at, FieldReason::Required, "must be set");
    }

    /// Notes a field that asks for something that a later version does. Only the first is told.
    pub(super) fn not_implemented(&mut self, at: Path<'_>) {
        self.not_implemented.get_or_insert_with(|| at.to_string());
    }

    /// The value, unless something was found. What is invalid wins: it stays so whatever the server learns.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Refused> {
        let Self { rpc, violations, not_implemented } = self;
        if !violations.is_empty() {
            return Err(Refused::Invalid(violations));
        }
        match not_implemented {
            Some(field) => Err(Refused::NotImplemented { rpc, field }),
            None => Ok(value),
        }
    }
}
