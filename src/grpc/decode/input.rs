//! Decodes the user message that starts a turn.

use super::{Findings, Path, labels, number, part};
use crate::{
    model::{InputMessage, Role},
    pb::{self, FieldReason},
};

/// Maximum number of parts in a message.
pub(super) const MAX_PARTS: usize = 256;

/// Decodes a user message.
pub(super) fn user(at: Path<'_>, message: pb::InputMessage, found: &mut Findings) -> InputMessage {
    let pb::InputMessage {
        role,
        parts,
        pinned,
        metadata,
        response,
        create_time,
    } = message;
    user_role(at.field("role"), role, found);
    if response.is_some() {
        found.invalid(
            at.field("response"),
            FieldReason::Unsupported,
            "is only allowed in AppendMessages",
        );
    }
    if create_time.is_some() {
        found.invalid(
            at.field("create_time"),
            FieldReason::Unsupported,
            "is only allowed in AppendMessages",
        );
    }
    InputMessage {
        role: Role::User,
        parts: content(at.field("parts"), parts, found),
        pinned,
        metadata: labels::labels(at.field("metadata"), metadata, found),
        response: None,
        created_at: None,
    }
}

fn user_role(at: Path<'_>, role: i32, found: &mut Findings) {
    match number::enum_value::<pb::Role>(at, role, found) {
        Some(pb::Role::Unspecified | pb::Role::User) | None => {}
        Some(pb::Role::System | pb::Role::Assistant | pb::Role::Tool) => {
            found.invalid(at, FieldReason::Unsupported, "must be USER");
        }
    }
}

/// Reports a message without parts, or with too many.
pub(super) fn check_number(at: Path<'_>, parts: &[pb::Part], found: &mut Findings) {
    if parts.is_empty() {
        found.required(at);
    }
    if parts.len() > MAX_PARTS {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MAX_PARTS} elements"),
        );
    }
}

fn content(at: Path<'_>, parts: Vec<pb::Part>, found: &mut Findings) -> Vec<crate::model::Part> {
    check_number(at, &parts, found);
    // More are rejected, and not decoded.
    parts
        .into_iter()
        .take(MAX_PARTS)
        .enumerate()
        .filter_map(|(i, part)| part::user_part(at.index(i), part, found))
        .collect()
}
