//! Clears fields that are ignored in requests, so that they do not affect the request hash.

use crate::pb::{self, part};

/// Clears the output-only fields of a session.
pub(super) fn clear_session(session: &mut pb::Session) {
    let pb::Session {
        session_id: _,
        etag,
        model: _,
        system_prompt: _,
        pinned_blocks: _,
        tools: _,
        limits: _,
        generation: _,
        policy: _,
        policy_overrides: _,
        metadata: _,
        ttl: _,
        state,
        current_turn_id,
        last_seq,
        queued_count,
        compaction_count,
        last_compaction_time,
        currently_compacting,
        forked_from_session_id,
        forked_at_seq,
        create_time,
        update_time,
        holder,
        lease_expire_time,
        configuration_blob,
    } = session;
    etag.clear();
    *state = 0;
    current_turn_id.clear();
    *last_seq = 0;
    *queued_count = 0;
    *compaction_count = 0;
    *last_compaction_time = None;
    *currently_compacting = false;
    forked_from_session_id.clear();
    *forked_at_seq = 0;
    *create_time = None;
    *update_time = None;
    holder.clear();
    *lease_expire_time = None;
    *configuration_blob = None;
}

/// Clears the output-only fields of a tool result, and the tool's name, which the call has.
pub(super) fn clear_result(result: &mut pb::ToolResult) {
    let pb::ToolResult {
        call_id: _,
        tool_name,
        parts,
        outcome: _,
        truncation,
        prune_mark,
        display_text,
    } = result;
    tool_name.clear();
    parts.iter_mut().for_each(clear_part);
    *truncation = None;
    *prune_mark = None;
    display_text.clear();
}

/// Clears the output-only fields of a part.
pub(super) fn clear_part(part: &mut pb::Part) {
    let pb::Part {
        content,
        citations: _,
        provider_metadata_json: _,
        tokens,
        preview_of,
        sanitized,
    } = part;
    match content {
        Some(part::Content::Media(media)) => clear_media(media),
        Some(part::Content::ToolResult(result)) => clear_result(result),
        Some(part::Content::ToolCall(call)) => call.arguments_blob = None,
        Some(
            part::Content::Text(_)
            | part::Content::Reasoning(_)
            | part::Content::Refusal(_)
            | part::Content::ProviderItem(_)
            | part::Content::StepStart(_)
            | part::Content::CompactionMarker(_),
        )
        | None => {}
    }
    *tokens = None;
    *preview_of = None;
    *sanitized = false;
}

fn clear_media(media: &mut pb::Media) {
    let pb::Media {
        media_type: _,
        filename: _,
        size_bytes,
        width,
        height,
        source: _,
    } = media;
    *size_bytes = 0;
    *width = 0;
    *height = 0;
}
