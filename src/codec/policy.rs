//! A session's context overrides, to and from their proto forms.

use crate::{
    model::{
        compaction::{CompactionOverrides, Guard, InstructionsMode, Ratio, Strategy},
        config::{ContextOverrides, PruneMode, PruneOverrides, UnknownWindow},
    },
    pb,
};

use super::{
    DecodeError,
    number::{known, signed, unsigned},
};

/// An override of one setting, and the proto field for it.
pub trait Field<P>: Sized {
    /// Converts the override to its field.
    fn to_field(&self) -> P;

    /// Reads the override. `name` is the field's name for errors.
    fn from_field(name: &'static str, field: P) -> Result<Self, DecodeError>;
}

impl Field<Self> for Option<bool> {
    fn to_field(&self) -> Self {
        *self
    }

    fn from_field(_: &'static str, field: Self) -> Result<Self, DecodeError> {
        Ok(field)
    }
}

/// An optional number; `None` differs from 0.
impl Field<Option<i32>> for Option<u32> {
    fn to_field(&self) -> Option<i32> {
        self.map(signed)
    }

    fn from_field(name: &'static str, field: Option<i32>) -> Result<Self, DecodeError> {
        field.map(|number| unsigned(name, number)).transpose()
    }
}

impl Field<Option<f64>> for Option<Ratio> {
    fn to_field(&self) -> Option<f64> {
        self.map(Ratio::get)
    }

    fn from_field(name: &'static str, field: Option<f64>) -> Result<Self, DecodeError> {
        let read = |share| {
            let outside = || DecodeError::new(name, format_args!("{share} is not between 0 and 1"));
            Ratio::new(share).ok_or_else(outside)
        };
        field.map(read).transpose()
    }
}

/// An empty text means no override.
impl Field<String> for Option<String> {
    fn to_field(&self) -> String {
        self.clone().unwrap_or_default()
    }

    fn from_field(_: &'static str, field: String) -> Result<Self, DecodeError> {
        Ok(Some(field).filter(|text| !text.is_empty()))
    }
}

impl Field<Self> for Vec<String> {
    fn to_field(&self) -> Self {
        self.clone()
    }

    fn from_field(_: &'static str, field: Self) -> Result<Self, DecodeError> {
        Ok(field)
    }
}

/// Enums with the same variants as the proto, where UNSPECIFIED means no override.
macro_rules! choices {
    ($($choice:ident = $proto:ident { $($variant:ident),+ $(,)? })+) => {
        $(impl Field<i32> for Option<$choice> {
            fn to_field(&self) -> i32 {
                let choice = match self {
                    None => pb::$proto::Unspecified,
                    $(Some($choice::$variant) => pb::$proto::$variant,)+
                };
                choice.into()
            }

            fn from_field(name: &'static str, field: i32) -> Result<Self, DecodeError> {
                Ok(match known(name, field)? {
                    pb::$proto::Unspecified => None,
                    $(pb::$proto::$variant => Some($choice::$variant),)+
                })
            }
        })+
    };
}

/// Structs with the same fields as a proto message. An absent message means no override.
macro_rules! messages {
    ($($changes:ident = $proto:ident { $($field:ident),+ $(,)? })+) => {
        $(impl Field<Option<pb::$proto>> for $changes {
            fn to_field(&self) -> Option<pb::$proto> {
                let changes = *self != Self::default();
                changes.then(|| pb::$proto { $($field: self.$field.to_field(),)+ })
            }

            fn from_field(
                _: &'static str,
                field: Option<pb::$proto>,
            ) -> Result<Self, DecodeError> {
                let Some(message) = field else {
                    return Ok(Self::default());
                };
                Ok(Self {
                    $($field: Field::from_field(stringify!($field), message.$field)?,)+
                })
            }
        })+
    };
}

choices! {
    Strategy = CompactionStrategy {
        ReactiveOverflow, ProactiveThreshold, MiddleRemoval, Truncation,
    }
    InstructionsMode = InstructionsMode { Append, Replace }
    Guard = ContextGuard { None, TwoLevel }
    PruneMode = PruneMode { Always, WhenItPays, OnOverflow }
    UnknownWindow = UnknownWindow { Assume, Refuse }
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

/// Converts the overrides. Those of tools, the queue and fallback models are not included.
pub(super) fn to_pb(overrides: &ContextOverrides) -> pb::Policy {
    let ContextOverrides {
        compaction,
        prune,
        output_reserve,
        context_window,
        unknown_window,
    } = overrides;
    pb::Policy {
        compaction: compaction.to_field(),
        prune: prune.to_field(),
        output_reserve: output_reserve.to_field(),
        context_window: context_window.to_field(),
        unknown_window: unknown_window.to_field(),
        ..pb::Policy::default()
    }
}

/// Reads stored overrides.
pub(super) fn from_pb(policy: &pb::Policy) -> Result<ContextOverrides, DecodeError> {
    let pb::Policy {
        compaction,
        prune,
        tools: _,
        queue: _,
        output_reserve,
        context_window,
        unknown_window,
        fallback_models: _,
    } = policy;
    Ok(ContextOverrides {
        compaction: Field::from_field("compaction", compaction.clone())?,
        prune: Field::from_field("prune", prune.clone())?,
        output_reserve: Field::from_field("output_reserve", *output_reserve)?,
        context_window: Field::from_field("context_window", *context_window)?,
        unknown_window: Field::from_field("unknown_window", *unknown_window)?,
    })
}
