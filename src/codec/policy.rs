//! A session's policy overrides, to and from their proto forms.

use crate::{
    model::{
        TakeMode, ToolExecution,
        compaction::{CompactionOverrides, Guard, InstructionsMode},
        config::{ContextOverrides, PolicyOverrides, PruneMode, PruneOverrides, UnknownWindow},
    },
    pb,
};

use super::{
    DecodeError,
    field::{Field, choices, messages, unless_default},
};

choices! {
    InstructionsMode = InstructionsMode { Append, Replace }
    Guard = ContextGuard { None, TwoLevel }
    PruneMode = PruneMode { Always, WhenItPays, OnOverflow }
    UnknownWindow = UnknownWindow { Assume, Refuse }
    ToolExecution = ToolExecution { Parallel, Sequential }
    TakeMode = TakeMode { All, OneAtATime, Latest }
}

messages! {
    CompactionOverrides = CompactionPolicy {
        enabled,
        strategy,
        threshold,
        keep_turns,
        keep_ratio,
        summary_model,
        summary_max_tokens,
        instructions,
        instructions_mode,
        background,
        guard,
        guard_request_ratio,
        guard_stream_ratio,
        guard_max_restarts,
    }
    PruneOverrides = PrunePolicy {
        mode,
        minimum_tokens,
        protect_tokens,
        protect_turns,
        protected_tools,
    }
}

impl Field<pb::Policy> for PolicyOverrides {
    fn to_field(&self) -> pb::Policy {
        let Self { execution, default_output_limits, output_limits, max_pending, take, fallback_models, context } =
            self;
        let ContextOverrides { compaction, prune, output_reserve, context_window, unknown_window } = context;
        pb::Policy {
            compaction: unless_default::to_field(compaction),
            prune: unless_default::to_field(prune),
            tools: Some(pb::ToolPolicy {
                execution: execution.to_field(),
                default_output_limits: default_output_limits.to_field(),
                output_limits: output_limits.to_field(),
                cancel_wait: None,
            }),
            queue: (max_pending.is_some() || take.is_some())
                .then(|| pb::QueuePolicy { max_pending: max_pending.to_field(), take: take.to_field() }),
            output_reserve: output_reserve.to_field(),
            context_window: context_window.to_field(),
            unknown_window: unknown_window.to_field(),
            fallback_models: fallback_models.clone(),
        }
    }

    fn from_field(_: &'static str, policy: pb::Policy) -> Result<Self, DecodeError> {
        let pb::Policy {
            compaction,
            prune,
            tools,
            queue,
            output_reserve,
            context_window,
            unknown_window,
            fallback_models,
        } = policy;
        let pb::QueuePolicy { max_pending, take } = queue.unwrap_or_default();
        let pb::ToolPolicy { execution, default_output_limits, output_limits, cancel_wait: _ } =
            tools.unwrap_or_default();
        let default_output_limits = Field::from_field("default_output_limits", default_output_limits)?;
        Ok(Self {
            execution: Field::from_field("execution", execution)?,
            default_output_limits,
            output_limits: Field::from_field("output_limits", output_limits)?,
            max_pending: Field::from_field("max_pending", max_pending)?,
            take: Field::from_field("take", take)?,
            fallback_models,
            context: ContextOverrides {
                compaction: unless_default::from_field("compaction", compaction)?,
                prune: unless_default::from_field("prune", prune)?,
                output_reserve: Field::from_field("output_reserve", output_reserve)?,
                context_window: Field::from_field("context_window", context_window)?,
                unknown_window: Field::from_field("unknown_window", unknown_window)?,
            },
        })
    }
}
