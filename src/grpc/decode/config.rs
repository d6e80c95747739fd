//! Decodes the configuration of a session.

use std::{mem::take, ops::RangeInclusive, time::Duration};

use super::{
    Findings, Path, duration, generation, labels, limits, pinned, policy,
    text::{self, MIB, MaxLength},
    tools,
};
use crate::{
    codec,
    model::command::SessionDraft,
    pb::{self, FieldReason},
};

/// Maximum size of a system prompt, in bytes.
const MAX_PROMPT_SIZE: MaxLength = MaxLength::Bytes(MIB);
/// Maximum length of a policy's name, in characters.
const MAX_POLICY_LENGTH: MaxLength = MaxLength::Chars(128);
/// Maximum length of a model reference, in characters.
const MAX_MODEL_LENGTH: MaxLength = MaxLength::Chars(256);
/// Allowed range of a session's TTL.
const TTL: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(3_650 * 24);

/// Decodes the configuration of a session. The caller decodes the session id, and output-only fields are
/// ignored. Limits are checked here; the conversion is the same as for stored configurations.
pub(super) fn draft(at: Path<'_>, mut session: pb::Session, found: &mut Findings) -> SessionDraft {
    check(at, &mut session, found);
    SessionDraft {
        config: found.converted(at, codec::config::from_pb(session)),
    }
}

fn check(at: Path<'_>, session: &mut pb::Session, found: &mut Findings) {
    let pb::Session {
        session_id: _,
        etag: _,
        model,
        system_prompt,
        pinned_blocks,
        tools,
        limits,
        generation,
        policy,
        policy_overrides,
        metadata,
        ttl,
        state: _,
        current_turn_id: _,
        last_seq: _,
        queued_count: _,
        compaction_count: _,
        last_compaction_time: _,
        currently_compacting: _,
        forked_from_session_id: _,
        forked_at_seq: _,
        create_time: _,
        update_time: _,
        holder: _,
        lease_expire_time: _,
        configuration_blob: _,
    } = session;
    text::check_single_line(at.field("model"), model, MAX_MODEL_LENGTH, found);
    let at_prompt = at.field("system_prompt");
    *system_prompt = text::free_text(at_prompt, take(system_prompt), MAX_PROMPT_SIZE, found);
    pinned::check(at.field("pinned_blocks"), pinned_blocks, found);
    if let Some(tools) = tools {
        tools::check(at.field("tools"), tools, found);
    }
    if let Some(limits) = limits {
        limits::check(at.field("limits"), limits, found);
    }
    if let Some(generation) = generation {
        generation::check(at.field("generation"), generation, found);
    }
    text::check_single_line(at.field("policy"), policy, MAX_POLICY_LENGTH, found);
    if let Some(overrides) = policy_overrides {
        let at = at.field("policy_overrides");
        policy::check(at, overrides, found);
        policy::check_other_models(at, model, overrides, found);
    }
    *metadata = labels::labels(at.field("metadata"), take(metadata), found);
    if let Some(ttl) = ttl {
        duration::within(TTL, at.field("ttl"), *ttl, found);
    }
}

/// Reports large fields that the request would set but that are missing, in a session with a
/// `configuration_blob`. Responses move large fields to that blob, and requests do not read it. `paths` are
/// the fields that the request sets, `None` for all.
pub(super) fn check_large_fields(
    at: Path<'_>,
    session: &pb::Session,
    paths: Option<&[String]>,
    found: &mut Findings,
) {
    if session.configuration_blob.is_none() {
        return;
    }
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
    let only_in_blob = large
        .into_iter()
        .filter(|(name, is_absent)| *is_absent && is_set_by(name));
    for (name, _) in only_in_blob {
        found.invalid(
            at.field(name),
            FieldReason::Required,
            "must be set, or configuration_blob must be absent: requests do not read the blob",
        );
    }
}

/// Decodes a model reference, which may be empty. Does not check that the model exists.
pub(super) fn model(at: Path<'_>, reference: String, found: &mut Findings) -> String {
    text::single_line(at, reference, MAX_MODEL_LENGTH, found)
}
