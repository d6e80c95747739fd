//! Encodes stored sessions and turns for responses.

use crate::{
    codec::{self, field::Field as _},
    model::{Limits, event::PendingCall},
    pb,
    session::SessionState,
    store::{session::Session, turn_read::Turn},
};

/// How much of a session a response contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    Full,
    /// Without system prompt, pinned blocks and tools, for lists.
    Brief,
}

/// Encodes a session.
pub fn session(session: Session, detail: Detail) -> pb::Session {
    let Session {
        id,
        state,
        current_turn,
        holder,
        last_seq,
        revision,
        mut config,
        tools_tokens: _,
        context_tokens: _,
        model_dependent: _,
        context_version: _,
        anchor: _,
        queued,
        forked,
        open_calls: _,
        compactions,
        compacted_at,
        compacting,
        events_from: _,
        created_at,
        updated_at,
    } = session;
    if detail == Detail::Brief {
        config.system_prompt.clear();
        config.pinned_blocks.clear();
    }
    let (forked_from, forked_at) = forked.unzip();
    let (holder, lease_until) = holder.unzip();
    let mut answer = pb::Session {
        session_id: id.into_string(),
        etag: revision.to_string(),
        state: session_state(state).into(),
        current_turn_id: current_turn.map(|turn| turn.into_string()).unwrap_or_default(),
        last_seq: last_seq.0,
        queued_count: i32::try_from(queued).unwrap_or(i32::MAX),
        compaction_count: i32::try_from(compactions).unwrap_or(i32::MAX),
        last_compaction_time: compacted_at.to_field(),
        currently_compacting: compacting,
        forked_from_session_id: forked_from.map(|session| session.into_string()).unwrap_or_default(),
        forked_at_seq: forked_at.unwrap_or_default().0,
        create_time: created_at.to_field(),
        update_time: updated_at.to_field(),
        holder: holder.unwrap_or_default(),
        lease_expire_time: lease_until.to_field(),
        ..config.to_field()
    };
    if detail == Detail::Brief {
        answer.tools = None;
    }
    answer
}

/// Encodes the state of a session.
pub fn session_state(state: SessionState) -> pb::SessionState {
    match state {
        SessionState::Idle | SessionState::Deleted => pb::SessionState::Idle,
        SessionState::Running => pb::SessionState::Running,
        SessionState::AwaitingTools => pb::SessionState::AwaitingTools,
    }
}

/// Encodes a turn. `pending` are its tool calls that wait for the host.
pub fn turn(
    turn: &Turn,
    session: &str,
    limits: &Limits,
    pending: &[PendingCall],
) -> Result<pb::Turn, codec::DecodeError> {
    let (pending_calls, pending_approvals) = codec::turn::pending_to_pb(pending);
    let mut answer = pb::Turn {
        turn_id: turn.id.to_string(),
        session_id: session.to_owned(),
        request_id: turn.request_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        state: turn.state.to_field(),
        model: turn.request.model.as_ref().unwrap_or(&turn.config.model).clone(),
        limits: limits.to_field(),
        create_time: turn.started_at.to_field(),
        end_time: turn.ended_at.to_field(),
        first_seq: turn.first_seq.0,
        last_seq: turn.last_seq.unwrap_or_default().0,
        pending_calls,
        pending_approvals,
        result: turn.so_far.to_field(),
        ..pb::Turn::default()
    };
    codec::turn::outcome_into_pb(turn.outcome.as_deref().unwrap_or_default(), &mut answer)?;
    Ok(answer)
}
