//! The configuration of a session, as a client gives it.

use std::{ops::RangeInclusive, time::Duration};

use super::{
    Findings, Path, duration, generation, labels, limits, pinned, policy,
    text::{self, AtMost, MIB},
    tools,
};
use crate::{
    model::{SessionConfig, command::SessionDraft},
    pb,
};

/// Most bytes of a system prompt.
const LONGEST_PROMPT: AtMost = AtMost::Bytes(MIB);
/// Most characters of a policy's name.
const LONGEST_POLICY: AtMost = AtMost::Chars(128);
/// Most characters of a model reference.
const LONGEST_MODEL: AtMost = AtMost::Chars(256);
/// What a session's time to live may be.
const TTL: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(3_650 * 24);

/// Reads a session's configuration; its id is left to the caller, and what is output only is
/// ignored.
pub(super) fn draft(at: Path<'_>, session: pb::Session, found: &mut Findings) -> SessionDraft {
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
    } = session;
    let config = SessionConfig {
        model: self::model(at.field("model"), model, found),
        system_prompt: text::prose(
            at.field("system_prompt"),
            system_prompt,
            LONGEST_PROMPT,
            found,
        ),
        pinned_blocks: pinned::blocks(at.field("pinned_blocks"), pinned_blocks, found),
        tools: tools::set(at.field("tools"), tools.unwrap_or_default(), found),
        limits: limits::read(at.field("limits"), limits, found),
        generation: generation::read(at.field("generation"), generation, found),
        policy: text::line(at.field("policy"), policy, LONGEST_POLICY, found),
        overrides: policy::overrides(at.field("policy_overrides"), policy_overrides, found),
        metadata: labels::labels(at.field("metadata"), metadata, found),
        ttl: ttl.and_then(|ttl| duration::within(TTL, at.field("ttl"), ttl, found)),
    };
    SessionDraft { config }
}

/// Reads a model reference, which may be left empty. Whether there is such a model is not known
/// here.
pub(super) fn model(at: Path<'_>, reference: String, found: &mut Findings) -> String {
    text::line(at, reference, LONGEST_MODEL, found)
}
