//! Decodes messages of users.

use super::{Findings, Path, labels, number, part};
use crate::{
    model::{InputMessage, Role},
    pb::{self, FieldReason, limits::input_message},
};

/// Decodes a user message.
pub(super) fn user(at: Path<'_>, message: pb::InputMessage, found: &mut Findings) -> InputMessage {
    let pb::InputMessage { role, parts, pinned, metadata, response, create_time } = message;
    user_role(at.field("role"), role, found);
    for (field, is_set) in [("response", response.is_some()), ("create_time", create_time.is_some())] {
        if is_set {
            let expected = "is only allowed in AppendMessages";
            found.invalid(at.field(field), FieldReason::Unsupported, expected);
        }
    }
    let at_parts = at.field("parts");
    // More are rejected, and not decoded.
    let parts = parts.into_iter().take(input_message::PARTS).enumerate();
    InputMessage {
        role: Role::User,
        parts: parts.filter_map(|(i, part)| part::user_part(at_parts.index(i), part, found)).collect(),
        pinned,
        metadata: labels::labels(metadata),
        response: None,
        created_at: None,
    }
}

fn user_role(at: Path<'_>, role: i32, found: &mut Findings) {
    match number::choice(role) {
        Some(pb::Role::Unspecified | pb::Role::User) | None => {}
        Some(pb::Role::System | pb::Role::Assistant | pb::Role::Tool) => {
            found.invalid(at, FieldReason::Unsupported, "must be USER");
        }
    }
}
