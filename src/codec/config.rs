//! Session configurations, to and from bytes and in responses. The tool set is stored separately.

use prost::Message as _;

use crate::{
    model::{PinnedBlock, PinnedKind, SessionConfig, ToolSet},
    pb,
};

use super::{
    DecodeError,
    field::{Field, choices, messages},
    read,
};

/// Encodes the configuration without its tools, as a `Session`.
pub fn encode(config: &SessionConfig) -> Vec<u8> {
    pb::Session { tools: None, ..config.to_field() }.encode_to_vec()
}

/// Decodes the configuration. `tools` is the tool set, which is stored separately.
pub fn decode(bytes: &[u8], tools: ToolSet) -> Result<SessionConfig, DecodeError> {
    let session: pb::Session = read("session configuration", bytes)?;
    Ok(SessionConfig { tools, ..Field::from_field("session configuration", session)? })
}

choices! {
    PinnedKind = ContextCategory {
        Pinned, Memory, Skills, Agents;
        Unspecified => Pinned;
        not SystemPrompt, Tools, McpTools, DeferredTools, Summary, User, Assistant, Reasoning,
            ToolCalls, ToolResults, Media, Queued
    }
}

messages! {
    PinnedBlock = PinnedBlock { name, text, kind = category, }
    // The fields 10 to 19 of a session.
    SessionConfig = Session {
        model,
        system_prompt,
        pinned_blocks,
        tools,
        limits via unless_default,
        generation via unless_default,
        policy,
        overrides = policy_overrides via unless_default,
        metadata,
        ttl,
        _ = session_id,
        _ = etag,
        _ = state,
        _ = current_turn_id,
        _ = last_seq,
        _ = queued_count,
        _ = compaction_count,
        _ = last_compaction_time,
        _ = currently_compacting,
        _ = forked_from_session_id,
        _ = forked_at_seq,
        _ = create_time,
        _ = update_time,
        _ = holder,
        _ = lease_expire_time,
        _ = configuration_blob,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::arbitrary;

    proptest! {
        #[test]
        fn configurations_round_trip(config in arbitrary::config()) {
            prop_assert_eq!(decode(&encode(&config), config.tools.clone()), Ok(config));
        }

        #[test]
        fn session_response_holds_the_whole_configuration(config in arbitrary::config()) {
            let session: pb::Session = config.to_field();
            let tools = Field::from_field("tools", session.tools.clone()).unwrap();
            prop_assert_eq!(decode(&session.encode_to_vec(), tools), Ok(config));
        }
    }

    #[test]
    fn session_response_keeps_fields_that_are_not_configuration() {
        let session = pb::Session { session_id: "s1".to_owned(), last_seq: 7, ..SessionConfig::default().to_field() };
        assert_eq!((session.session_id.as_str(), session.last_seq), ("s1", 7));
        let tools = Some(pb::ToolSet::default());
        let configured: pb::Session = SessionConfig::default().to_field();
        assert_eq!(configured, pb::Session { tools, ..pb::Session::default() });
    }
}
