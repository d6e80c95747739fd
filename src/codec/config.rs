//! Session configurations, to and from bytes and in responses. The tool set is stored separately.

use prost::Message as _;

use crate::{
    model::{PinnedBlock, PinnedKind, SessionConfig, ToolSet},
    pb,
};

use super::{
    DecodeError,
    field::{Field, choices, messages, unless_default},
    read,
};

/// Encodes the configuration without its tools, as a `Session`.
pub fn encode(config: &SessionConfig) -> Vec<u8> {
    let mut session = pb::Session::default();
    all_but_tools(config, &mut session);
    session.encode_to_vec()
}

/// Decodes the configuration. `tools` is the tool set, which is stored separately.
pub fn decode(bytes: &[u8], tools: ToolSet) -> Result<SessionConfig, DecodeError> {
    Ok(SessionConfig { tools, ..from_pb(read("session configuration", bytes)?)? })
}

/// Reads a configuration that was stored or sent.
pub fn from_pb(session: pb::Session) -> Result<SessionConfig, DecodeError> {
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
    Ok(SessionConfig {
        model,
        system_prompt,
        pinned_blocks: Field::from_field("pinned_blocks", pinned_blocks)?,
        tools: unless_default::from_field("tools", tools)?,
        limits: unless_default::from_field("limits", limits)?,
        generation: unless_default::from_field("generation", generation)?,
        policy,
        overrides: unless_default::from_field("policy_overrides", policy_overrides)?,
        metadata,
        ttl: Field::from_field("ttl", ttl)?,
    })
}

/// Sets the configuration fields (10 to 19) of a `Session` in a response.
pub fn config_into_session(config: &SessionConfig, session: &mut pb::Session) {
    all_but_tools(config, session);
    session.tools = Some(config.tools.to_field());
}

fn all_but_tools(config: &SessionConfig, session: &mut pb::Session) {
    let SessionConfig {
        model,
        system_prompt,
        pinned_blocks,
        tools: _,
        limits,
        generation,
        policy,
        overrides,
        metadata,
        ttl,
    } = config;
    session.model.clone_from(model);
    session.system_prompt.clone_from(system_prompt);
    session.pinned_blocks = pinned_blocks.to_field();
    session.limits = unless_default::to_field(limits);
    session.generation = unless_default::to_field(generation);
    session.policy.clone_from(policy);
    session.policy_overrides = unless_default::to_field(overrides);
    session.metadata.clone_from(metadata);
    session.ttl = ttl.to_field();
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
}

/// The category in which a pinned block is counted. Other categories are an error.
pub(crate) fn kind_from_pb(category: pb::ContextCategory) -> Result<PinnedKind, DecodeError> {
    PinnedKind::from_field("category", category.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{arbitrary, tools};

    proptest! {
        #[test]
        fn configurations_round_trip(config in arbitrary::config()) {
            prop_assert_eq!(decode(&encode(&config), config.tools.clone()), Ok(config));
        }

        #[test]
        fn session_response_holds_the_whole_configuration(config in arbitrary::config()) {
            let mut session = pb::Session::default();
            config_into_session(&config, &mut session);
            let tools = tools::from_pb(session.tools.clone().unwrap()).unwrap();
            prop_assert_eq!(decode(&session.encode_to_vec(), tools), Ok(config));
        }
    }

    #[test]
    fn session_response_keeps_fields_that_are_not_configuration() {
        let mut session = pb::Session { session_id: "s1".to_owned(), last_seq: 7, ..pb::Session::default() };
        config_into_session(&SessionConfig::default(), &mut session);
        assert_eq!((session.session_id.as_str(), session.last_seq), ("s1", 7));
    }
}
