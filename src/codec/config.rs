//! Session configurations, to and from bytes and in responses. The tool set is stored separately.

use std::collections::BTreeMap;

use prost::Message as _;

use crate::{
    model::{
        PinnedBlock, PinnedKind, SessionConfig, TakeMode, ToolExecution, ToolSet,
        config::PolicyOverrides,
    },
    pb,
};

use super::{
    DecodeError, generation, limits,
    number::{known, signed, unsigned},
    output, policy, read, time, tools,
};

/// Encodes the configuration without its tools, as a `Session`.
pub fn encode(config: &SessionConfig) -> Vec<u8> {
    let mut session = pb::Session::default();
    all_but_tools(config, &mut session);
    session.encode_to_vec()
}

/// Decodes the configuration. `tools` is the tool set, which is stored separately.
pub fn decode(bytes: &[u8], tools: ToolSet) -> Result<SessionConfig, DecodeError> {
    Ok(SessionConfig {
        tools,
        ..from_pb(read("session configuration", bytes)?)?
    })
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
        pinned_blocks: pinned_blocks
            .into_iter()
            .map(block_from_pb)
            .collect::<Result<_, _>>()?,
        tools: tools::from_pb(tools.unwrap_or_default())?,
        limits: limits::override_from_stored(limits)?,
        generation: generation::from_stored(generation)?,
        policy,
        overrides: policy_overrides
            .map(overrides_from_pb)
            .transpose()?
            .unwrap_or_default(),
        metadata,
        ttl: ttl.map(time::duration_from_pb).transpose()?,
    })
}

/// Sets the configuration fields (10 to 19) of a `Session` in a response.
pub fn config_into_session(config: &SessionConfig, session: &mut pb::Session) {
    all_but_tools(config, session);
    session.tools = Some(tools::to_pb(&config.tools));
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
    session.pinned_blocks = pinned_blocks.iter().map(block_to_pb).collect();
    session.limits = limits::override_to_stored(limits);
    session.generation = generation::to_stored(generation);
    session.policy.clone_from(policy);
    session.policy_overrides =
        (*overrides != PolicyOverrides::default()).then(|| overrides_to_pb(overrides));
    session.metadata.clone_from(metadata);
    session.ttl = ttl.map(time::duration_to_pb);
}

/// Converts a session's policy overrides for the wire.
pub fn overrides_to_pb(overrides: &PolicyOverrides) -> pb::Policy {
    let PolicyOverrides {
        execution,
        default_output_limits,
        output_limits,
        max_pending,
        take,
        fallback_models,
        context,
    } = overrides;
    let tools = pb::ToolPolicy {
        execution: execution_to_pb(*execution).into(),
        default_output_limits: default_output_limits.map(output::to_pb),
        output_limits: output_limits
            .iter()
            .map(|(name, limits)| (name.clone(), output::to_pb(*limits)))
            .collect(),
        cancel_wait: None,
    };
    let queue = (max_pending.is_some() || take.is_some()).then(|| pb::QueuePolicy {
        max_pending: max_pending.map(signed),
        take: take_to_pb(*take).into(),
    });
    pb::Policy {
        tools: Some(tools),
        queue,
        fallback_models: fallback_models.clone(),
        ..policy::to_pb(context)
    }
}

/// Reads stored policy overrides.
pub fn overrides_from_pb(policy: pb::Policy) -> Result<PolicyOverrides, DecodeError> {
    let context = policy::from_pb(&policy)?;
    let pb::Policy {
        tools,
        queue,
        fallback_models,
        ..
    } = policy;
    let pb::QueuePolicy { max_pending, take } = queue.unwrap_or_default();
    let pb::ToolPolicy {
        execution,
        default_output_limits,
        output_limits,
        cancel_wait: _,
    } = tools.unwrap_or_default();
    Ok(PolicyOverrides {
        execution: execution_from_pb(known("tool execution", execution)?),
        default_output_limits: default_output_limits.map(output::from_pb).transpose()?,
        output_limits: output_limits
            .into_iter()
            .map(|(name, limits)| Ok((name, output::from_pb(limits)?)))
            .collect::<Result<BTreeMap<_, _>, DecodeError>>()?,
        max_pending: max_pending
            .map(|most| unsigned("queue policy", most))
            .transpose()?,
        take: take_from_pb(known("take mode", take)?),
        fallback_models,
        context,
    })
}

fn take_to_pb(take: Option<TakeMode>) -> pb::TakeMode {
    match take {
        None => pb::TakeMode::Unspecified,
        Some(TakeMode::All) => pb::TakeMode::All,
        Some(TakeMode::OneAtATime) => pb::TakeMode::OneAtATime,
        Some(TakeMode::Latest) => pb::TakeMode::Latest,
    }
}

fn take_from_pb(take: pb::TakeMode) -> Option<TakeMode> {
    match take {
        pb::TakeMode::Unspecified => None,
        pb::TakeMode::All => Some(TakeMode::All),
        pb::TakeMode::OneAtATime => Some(TakeMode::OneAtATime),
        pb::TakeMode::Latest => Some(TakeMode::Latest),
    }
}

fn execution_to_pb(execution: Option<ToolExecution>) -> pb::ToolExecution {
    match execution {
        None => pb::ToolExecution::Unspecified,
        Some(ToolExecution::Parallel) => pb::ToolExecution::Parallel,
        Some(ToolExecution::Sequential) => pb::ToolExecution::Sequential,
    }
}

fn execution_from_pb(execution: pb::ToolExecution) -> Option<ToolExecution> {
    match execution {
        pb::ToolExecution::Unspecified => None,
        pb::ToolExecution::Parallel => Some(ToolExecution::Parallel),
        pb::ToolExecution::Sequential => Some(ToolExecution::Sequential),
    }
}

fn block_to_pb(block: &PinnedBlock) -> pb::PinnedBlock {
    let PinnedBlock { name, text, kind } = block;
    pb::PinnedBlock {
        name: name.clone(),
        text: text.clone(),
        category: kind_to_pb(*kind).into(),
    }
}

fn block_from_pb(block: pb::PinnedBlock) -> Result<PinnedBlock, DecodeError> {
    let pb::PinnedBlock {
        name,
        text,
        category,
    } = block;
    Ok(PinnedBlock {
        name,
        text,
        kind: kind_from_pb(known("pinned block category", category)?)?,
    })
}

fn kind_to_pb(kind: PinnedKind) -> pb::ContextCategory {
    match kind {
        PinnedKind::Pinned => pb::ContextCategory::Pinned,
        PinnedKind::Memory => pb::ContextCategory::Memory,
        PinnedKind::Skills => pb::ContextCategory::Skills,
        PinnedKind::Agents => pb::ContextCategory::Agents,
    }
}

/// The category in which a pinned block is counted. Other categories are an error.
pub(crate) fn kind_from_pb(category: pb::ContextCategory) -> Result<PinnedKind, DecodeError> {
    use pb::ContextCategory as C;
    match category {
        C::Unspecified | C::Pinned => Ok(PinnedKind::Pinned),
        C::Memory => Ok(PinnedKind::Memory),
        C::Skills => Ok(PinnedKind::Skills),
        C::Agents => Ok(PinnedKind::Agents),
        C::SystemPrompt
        | C::Tools
        | C::McpTools
        | C::DeferredTools
        | C::Summary
        | C::User
        | C::Assistant
        | C::Reasoning
        | C::ToolCalls
        | C::ToolResults
        | C::Media
        | C::Queued => Err(DecodeError::new(
            "pinned block",
            format_args!("its category must not be {}", category.as_str_name()),
        )),
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
            let mut session = pb::Session::default();
            config_into_session(&config, &mut session);
            let tools = tools::from_pb(session.tools.clone().unwrap()).unwrap();
            prop_assert_eq!(decode(&session.encode_to_vec(), tools), Ok(config));
        }
    }

    #[test]
    fn session_response_keeps_fields_that_are_not_configuration() {
        let mut session = pb::Session {
            session_id: "s1".to_owned(),
            last_seq: 7,
            ..pb::Session::default()
        };
        config_into_session(&SessionConfig::default(), &mut session);
        assert_eq!((session.session_id.as_str(), session.last_seq), ("s1", 7));
    }
}
