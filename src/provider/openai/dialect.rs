//! What sets the services apart that speak Chat Completions: a table, so that the rest of the code
//! asks no names.

use crate::provider::{
    call_ids::CallIds,
    discovery::Family,
    http::is_in_domain,
    rules::{self, ReasoningOf, ReasoningRule},
};

/// How one kind of service differs. Everything else is as OpenAI documents it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Hosts that speak it, those below them included.
    pub hosts: &'static [&'static str],
    /// The field that bounds the answer.
    pub max_tokens: MaxTokens,
    /// Whether the role `developer` is known.
    pub developer_role: bool,
    /// Whether usage must be asked for.
    pub asks_for_usage: bool,
    /// How reasoning is handed back.
    pub reasoning_back: ReasoningBack,
    /// Whether reported reasoning tokens come on top of the reported completion tokens.
    pub reasoning_outside: bool,
    /// Which ids of calls it takes.
    pub call_ids: CallIds,
    /// Whether the ids of calls that the model made go back as they were, whatever they are.
    pub own_call_ids: bool,
    /// In which order messages may stand.
    pub turns: Turns,
    /// Whether refusals have a field of their own.
    pub refusals: bool,
    /// How reasoning effort is sent.
    pub effort: Effort,
    /// The field that bounds reasoning in tokens. `None` means there is none.
    pub budget: Option<&'static str>,
    /// Whether `top_k` is known.
    pub top_k: bool,
    /// The field of the seed.
    pub seed: &'static str,
    /// Whether an answer can be held to a schema.
    pub json_schema: bool,
    /// Words that end an answer. `None` means no limit is known.
    pub max_stops: Option<usize>,
    /// Prefixes of the names of models that refuse stop sequences.
    pub no_stops: &'static [&'static str],
    /// Prefixes of the names of models that think by default. While they think they refuse forced calls;
    /// they always refuse `temperature` and `top_p`.
    pub thinkers: &'static [&'static str],
    /// Prefixes of the names of models among them whose thinking cannot be switched off.
    pub always_thinking: &'static [&'static str],
    /// Whether it is a server that people run themselves.
    pub local: bool,
    /// How it counts a prompt. `None` means it does not.
    pub counter: Option<Counter>,
    /// How it lists its models.
    pub list: Family,
    /// Which media it can be sent. Which of them a model takes is the model's matter.
    pub takes: Takes,
}

/// Which media a service can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// Pictures, as `image_url`.
    pub pictures: bool,
    /// Pictures by their address alone.
    pub addresses: bool,
    /// Files, as `file`.
    pub files: bool,
    /// Sounds, as `input_audio`.
    pub sounds: bool,
    /// Pictures that its models made, as `images` of their messages.
    pub own_pictures: bool,
}

/// How a service counts a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// `/tokenize` takes messages and tools.
    Prompt,
    /// `/apply-template` writes the prompt, `/tokenize` counts that text.
    Text,
}

/// The field that bounds the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxTokens {
    /// `max_completion_tokens`
    Completion,
    /// `max_tokens`
    Plain,
}

/// How reasoning is handed back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningBack {
    /// Not at all.
    Never,
    /// As a text.
    Text {
        /// In that field.
        field: ReasoningField,
        /// Which of it.
        kept: ReasoningKept,
        /// Whether words are sent in its place with calls that have none, to a model that reasons.
        placeholder: bool,
    },
    /// As the `reasoning_details` that came with it, unchanged.
    Details,
}

/// The field of an answer's reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningField {
    /// `reasoning_content`
    Content,
    /// `reasoning`
    Reasoning,
}

/// Which reasoning is handed back as a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningKept {
    /// The model's own, in the tool loop that is going on.
    InLoop,
    /// Any in the tool loop that is going on, and in all later requests that of turns with calls.
    WhileCalls,
}

impl ReasoningBack {
    const fn in_loop(field: ReasoningField) -> Self {
        Self::Text {
            field,
            kept: ReasoningKept::InLoop,
            placeholder: false,
        }
    }
}

impl ReasoningField {
    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Content => "reasoning_content",
            Self::Reasoning => "reasoning",
        }
    }
}

impl Dialect {
    /// Which reasoning of earlier answers is sent.
    pub(super) fn reasoning(&self) -> ReasoningRule {
        match self.reasoning_back {
            ReasoningBack::Never => ReasoningRule::NEVER,
            ReasoningBack::Text {
                kept: ReasoningKept::InLoop,
                ..
            } => ReasoningRule {
                kept: rules::ReasoningKept::InLoop,
                of: ReasoningOf::SameModel,
            },
            ReasoningBack::Text {
                kept: ReasoningKept::WhileCalls,
                ..
            } => ReasoningRule {
                kept: rules::ReasoningKept::WhileCalls,
                of: ReasoningOf::AnyModel,
            },
            // What is attached is its details.
            ReasoningBack::Details => ReasoningRule::SIGNED,
        }
    }

    /// The field in which words are sent in the place of missing reasoning. `None` if nothing is.
    pub(super) fn placeholder(&self) -> Option<ReasoningField> {
        match self.reasoning_back {
            ReasoningBack::Text {
                field,
                placeholder: true,
                kept: _,
            } => Some(field),
            ReasoningBack::Text {
                placeholder: false, ..
            }
            | ReasoningBack::Never
            | ReasoningBack::Details => None,
        }
    }
}

/// In which order messages may stand. What a service of one's own takes is the matter of its
/// model's template, so it is taken for strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turns {
    /// In any.
    Any,
    /// No two users or assistants in a row.
    Joined,
    /// As in Mistral's template: instructions first, then user and assistant in turns, the user
    /// first; results do not count.
    Strict,
}

/// How reasoning effort is sent to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// `reasoning_effort` in all of our levels.
    Fine,
    /// `reasoning_effort`; where the model's levels are not known `none`, `low`, `medium` or
    /// `high`.
    Coarse,
    /// The same for models whose levels are known; the others refuse it.
    Listed,
    /// `reasoning: {effort, max_tokens}`
    Object,
    /// `thinking: {type}` switches it, `reasoning_effort` is `high` or `max`.
    Thinking,
    /// `thinking: {type}` switches it.
    Switch,
    /// In no way that is known but a budget, where there is one.
    Unknown,
}

/// What a service of unknown make is taken for.
pub const COMPATIBLE: Dialect = Dialect {
    name: "compatible",
    hosts: &[],
    max_tokens: MaxTokens::Plain,
    developer_role: false,
    asks_for_usage: true,
    reasoning_back: ReasoningBack::Never,
    reasoning_outside: false,
    call_ids: CallIds::Short,
    own_call_ids: false,
    turns: Turns::Strict,
    refusals: false,
    effort: Effort::Coarse,
    budget: None,
    top_k: false,
    seed: "seed",
    json_schema: true,
    max_stops: None,
    no_stops: &[],
    thinkers: &[],
    always_thinking: &[],
    local: false,
    counter: None,
    list: Family::Compatible,
    takes: Takes {
        pictures: true,
        addresses: true,
        files: false,
        sounds: true,
        own_pictures: false,
    },
};

/// All of them; the last one is taken for whatever no host tells.
pub const DIALECTS: &[Dialect] = &[
    Dialect {
        name: "openai",
        hosts: &["api.openai.com"],
        max_tokens: MaxTokens::Completion,
        developer_role: true,
        turns: Turns::Any,
        refusals: true,
        effort: Effort::Fine,
        max_stops: Some(4),
        takes: Takes {
            files: true,
            ..COMPATIBLE.takes
        },
        ..COMPATIBLE
    },
    Dialect {
        name: "openrouter",
        hosts: &["openrouter.ai"],
        reasoning_back: ReasoningBack::Details,
        turns: Turns::Joined,
        effort: Effort::Object,
        top_k: true,
        takes: Takes {
            files: true,
            own_pictures: true,
            ..COMPATIBLE.takes
        },
        list: Family::OpenRouter,
        ..COMPATIBLE
    },
    Dialect {
        name: "deepseek",
        hosts: &["api.deepseek.com"],
        reasoning_back: ReasoningBack::Text {
            field: ReasoningField::Content,
            kept: ReasoningKept::WhileCalls,
            placeholder: true,
        },
        turns: Turns::Joined,
        effort: Effort::Thinking,
        json_schema: false,
        takes: Takes {
            pictures: false,
            sounds: false,
            ..COMPATIBLE.takes
        },
        ..COMPATIBLE
    },
    Dialect {
        name: "groq",
        hosts: &["api.groq.com"],
        reasoning_back: ReasoningBack::in_loop(ReasoningField::Reasoning),
        turns: Turns::Any,
        max_stops: Some(4),
        ..COMPATIBLE
    },
    Dialect {
        name: "xai",
        hosts: &["api.x.ai"],
        turns: Turns::Any,
        reasoning_outside: true,
        effort: Effort::Listed,
        no_stops: &["grok-4.6"],
        ..COMPATIBLE
    },
    Dialect {
        name: "mistral",
        hosts: &["api.mistral.ai"],
        asks_for_usage: false,
        call_ids: CallIds::Nine,
        seed: "random_seed",
        takes: Takes {
            sounds: false,
            ..COMPATIBLE.takes
        },
        list: Family::Mistral,
        ..COMPATIBLE
    },
    Dialect {
        name: "together",
        hosts: &["api.together.xyz", "api.together.ai"],
        effort: Effort::Unknown,
        top_k: true,
        ..COMPATIBLE
    },
    Dialect {
        name: "fireworks",
        hosts: &["api.fireworks.ai"],
        top_k: true,
        ..COMPATIBLE
    },
    Dialect {
        name: "cerebras",
        hosts: &["api.cerebras.ai"],
        turns: Turns::Any,
        ..COMPATIBLE
    },
    Dialect {
        name: "moonshot",
        hosts: &["api.moonshot.ai", "api.moonshot.cn"],
        reasoning_back: ReasoningBack::Text {
            field: ReasoningField::Content,
            kept: ReasoningKept::WhileCalls,
            placeholder: true,
        },
        own_call_ids: true,
        turns: Turns::Any,
        effort: Effort::Switch,
        thinkers: &["kimi-k2.", "kimi-k2-thinking", "kimi-k3"],
        always_thinking: &["kimi-k2.7-code", "kimi-k2-thinking", "kimi-k3"],
        ..COMPATIBLE
    },
    Dialect {
        name: "zai",
        hosts: &["api.z.ai"],
        reasoning_back: ReasoningBack::in_loop(ReasoningField::Content),
        turns: Turns::Any,
        effort: Effort::Switch,
        ..COMPATIBLE
    },
    Dialect {
        name: "perplexity",
        hosts: &["api.perplexity.ai"],
        ..COMPATIBLE
    },
    Dialect {
        name: "llamacpp",
        reasoning_back: ReasoningBack::in_loop(ReasoningField::Content),
        own_call_ids: true,
        effort: Effort::Unknown,
        budget: Some("thinking_budget_tokens"),
        top_k: true,
        local: true,
        counter: Some(Counter::Text),
        list: Family::LlamaCpp,
        ..COMPATIBLE
    },
    Dialect {
        name: "lmstudio",
        reasoning_back: ReasoningBack::in_loop(ReasoningField::Reasoning),
        own_call_ids: true,
        top_k: true,
        local: true,
        takes: Takes {
            addresses: false,
            sounds: false,
            ..COMPATIBLE.takes
        },
        list: Family::LmStudio,
        ..COMPATIBLE
    },
    Dialect {
        name: "ollama",
        reasoning_back: ReasoningBack::in_loop(ReasoningField::Reasoning),
        own_call_ids: true,
        local: true,
        takes: Takes {
            addresses: false,
            sounds: false,
            ..COMPATIBLE.takes
        },
        list: Family::Ollama,
        ..COMPATIBLE
    },
    Dialect {
        name: "vllm",
        reasoning_back: ReasoningBack::in_loop(ReasoningField::Reasoning),
        own_call_ids: true,
        budget: Some("thinking_token_budget"),
        top_k: true,
        local: true,
        counter: Some(Counter::Prompt),
        list: Family::Server,
        ..COMPATIBLE
    },
    COMPATIBLE,
];

/// Services that speak nothing of their own but put something of their own into prompts, by how
/// their hosts end.
const SERVICES: &[(&str, &str)] = &[
    ("api.venice.ai", "venice"),
    ("aiplatform.googleapis.com", "gemini-vertex"),
];

/// The service at a host whose dialect does not tell it. `None` means not known.
pub fn service_of_host(host: &str) -> Option<&'static str> {
    let ends = |end: &str| {
        host.strip_suffix(end)
            .is_some_and(|start| start.is_empty() || start.ends_with(['.', '-']))
    };
    SERVICES
        .iter()
        .find(|(end, _)| ends(end))
        .map(|(_, service)| *service)
}

/// The dialect of that name.
pub fn named(name: &str) -> Option<&'static Dialect> {
    DIALECTS.iter().find(|dialect| dialect.name == name)
}

/// What OpenAI itself speaks.
pub fn original() -> &'static Dialect {
    named("openai").unwrap_or(&COMPATIBLE)
}

/// The dialect that a host speaks.
pub fn of_host(host: &str) -> &'static Dialect {
    let speaks = |domain: &&str| is_in_domain(host, domain);
    DIALECTS
        .iter()
        .find(|dialect| dialect.hosts.iter().any(speaks))
        .unwrap_or(&COMPATIBLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialect_is_detected_by_host_and_defaults_to_compatible() {
        let table = [
            ("api.openai.com", "openai"),
            ("eu.api.openai.com", "openai"),
            ("api.openai.com.example.org", "compatible"),
            ("notopenrouter.ai", "compatible"),
            ("openrouter.ai", "openrouter"),
            ("api.mistral.ai", "mistral"),
            ("127.0.0.1", "compatible"),
        ];
        for (host, expected) in table {
            assert_eq!(of_host(host).name, expected, "{host}");
        }
    }

    #[test]
    fn every_dialect_is_found_by_its_name() {
        for dialect in DIALECTS {
            assert_eq!(named(dialect.name), Some(dialect));
        }
        assert_eq!(named("klingon"), None);
    }
}
