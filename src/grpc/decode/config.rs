//! Decodes the configuration of a session.

use super::{Findings, Path, generation, labels, pinned, policy, text, tools};
use crate::{
    codec::field::Field,
    model::command::SessionDraft,
    pb::{self, FieldReason},
};

/// Decodes the configuration of a session, whose limits are checked. The caller decodes the session id. The
/// conversion is the same as for stored configurations.
pub(super) fn draft(at: Path<'_>, mut session: pb::Session, found: &mut Findings) -> SessionDraft {
    check(at, &mut session, found);
    SessionDraft { config: found.converted(at, Field::from_field("session", session)) }
}

/// Checks what the limits of the fields do not express, and replaces characters that cannot be stored.
fn check(at: Path<'_>, session: &mut pb::Session, found: &mut Findings) {
    text::clean(&mut session.system_prompt);
    pinned::check(at.field("pinned_blocks"), &mut session.pinned_blocks, found);
    if let Some(tools) = &mut session.tools {
        tools::check(at.field("tools"), tools, found);
    }
    if let Some(generation) = &mut session.generation {
        generation::check(at.field("generation"), generation, found);
    }
    if let Some(overrides) = &session.policy_overrides {
        let at = at.field("policy_overrides");
        policy::check(at, overrides, found);
        policy::check_other_models(at, &session.model, overrides, found);
    }
    session.metadata = labels::labels(std::mem::take(&mut session.metadata));
}

/// Reports large fields that a request with a `configuration_blob`, to which responses move them, would set but that are
/// missing: requests do not read the blob. `paths` are the fields that the request sets, `None` for all.
pub(super) fn check_large_fields(session: Option<&pb::Session>, paths: Option<&[String]>, found: &mut Findings) {
    let Some(session) = session.filter(|session| session.configuration_blob.is_some()) else {
        return;
    };
    let large = [
        ("system_prompt", session.system_prompt.is_empty()),
        ("pinned_blocks", session.pinned_blocks.is_empty()),
        ("tools", session.tools.is_none()),
    ];
    let is_set_by = |name: &str| {
        paths.is_none_or(|paths| {
            let mut roots = paths.iter().filter_map(|path| path.split('.').next());
            roots.any(|root| root == name)
        })
    };
    let only_in_blob = large.into_iter().filter(|(name, is_absent)| *is_absent && is_set_by(name));
    for (name, _) in only_in_blob {
        found.invalid(
            Path::to("session").field(name),
            FieldReason::Required,
            "must be set, or configuration_blob must be absent: requests do not read the blob",
        );
    }
}
