//! A call of a model, before it is sent: its tools and settings, its prompt, and its predicted size.
//! Turns, hosts and summaries all build it here.

use crate::{
    context::{
        estimator::{Estimator, NonTranscript},
        prompt::{self, ModelCallSettings},
        size::{ContextSize, Counters},
    },
    model::{
        ClosedTranscript, Generation, Message, Payload, Prompt, SessionConfig, ToolSet, command::TurnRequest,
        generation::Unsupported,
    },
    turn::context::{
        call_settings,
        estimators::estimator,
        measured::{LONG_TEXT, count_without_blocking},
        size::{CalledModel, Excerpt, definition_bytes, size_with},
    },
};

/// For the last step of a turn whose time has passed.
const NO_TOOLS: &ToolSet = &ToolSet { tools: Vec::new(), provider_tools: Vec::new(), mcp_servers: Vec::new() };

/// A call that a prompt is built for.
#[derive(Debug, Clone, Copy)]
pub(in crate::turn) struct PromptCall<'a> {
    config: &'a SessionConfig,
    /// The settings of the turn.
    request: &'a TurnRequest,
    /// The tools that the model is given.
    pub(in crate::turn) tools: &'a ToolSet,
    step: u32,
    pub(in crate::turn) model: CalledModel<'a>,
}

impl<'a> PromptCall<'a> {
    /// The call of a step. Its tools are those of the turn or else of the configuration. `is_late`:
    /// the turn's time has passed, so that the step has no tools.
    pub(in crate::turn) fn new(
        config: &'a SessionConfig,
        request: &'a TurnRequest,
        step: u32,
        is_late: bool,
        model: impl Into<CalledModel<'a>>,
    ) -> Self {
        let tools = match &request.tools {
            _ if is_late => NO_TOOLS,
            Some(tools) => tools,
            None => &config.tools,
        };
        Self { config, request, tools, step, model: model.into() }
    }

    /// The same call with other tools.
    pub(in crate::turn) fn with_tools(self, tools: &'a ToolSet) -> Self {
        Self { tools, ..self }
    }

    /// The prompt, without the content of its media. `max_output_tokens`: the limit of the
    /// response.
    pub(in crate::turn) fn prompt(&self, transcript: ClosedTranscript, max_output_tokens: Option<u32>) -> Prompt {
        let CalledModel { reference, resolved } = self.model;
        let settings = ModelCallSettings {
            provider: resolved.map_or("", |model| &model.provider_name),
            model: resolved.map_or(reference, |model| &model.info.name),
            supports_tools: resolved.is_none_or(|model| model.info.supports_tools),
            max_output_tokens,
            generation: self.generation(),
        };
        prompt::build(self.config, self.tools, transcript, &settings)
    }

    /// The generation settings that are sent.
    pub(in crate::turn) fn generation(&self) -> Generation {
        self.settings().0
    }

    /// The events for the settings that are left out, because the model does not support them.
    pub(in crate::turn) fn left_out(&self) -> Vec<Payload> {
        let Some(model) = self.model.resolved else {
            return Vec::new();
        };
        let unsupported = self.settings().1.into_iter();
        unsupported.map(|setting| call_settings::left_out(model, setting)).collect()
    }

    fn settings(&self) -> (Generation, Vec<Unsupported>) {
        let Self { config, request, tools, step, model } = self;
        model.resolved.map(|model| call_settings::fitting(model, config, request, tools, *step)).unwrap_or_default()
    }

    /// The parts of the prompt outside of the transcript: system prompt, tools, and the tokens that
    /// open the response. Each content is counted once.
    pub(in crate::turn) fn non_transcript(&self) -> NonTranscript {
        let (tools, model) = (self.tools, self.model.resolved);
        let system = prompt::system(self.config);
        let generation = self.generation();
        let sent = || tools.visible().filter(|_| model.is_none_or(|model| model.info.supports_tools));
        let provider_tools: Vec<&str> = model
            .filter(|model| model.info.supports_tools)
            .map(|model| tools.run_by(&model.provider_name).collect())
            .unwrap_or_default();
        let estimator = model.map_or(Estimator::Characters, estimator);
        let bytes = system.len() + sent().map(definition_bytes).sum::<usize>();
        let new = if bytes < LONG_TEXT || estimator.has_counted(&system, sent()) { 0 } else { bytes };
        count_without_blocking(new, estimator, || {
            estimator.non_transcript(&system, sent(), &generation).with_provider_tools(estimator, &provider_tools)
        })
    }

    /// The size of the prompt by the counters, as if the model were sent the whole transcript.
    pub(in crate::turn) fn size_of_all<'c>(&self, counters: Counters<'c>) -> ContextSize<'c> {
        ContextSize::new(counters, self.model.reference, self.model.frame_tokens(), self.non_transcript())
    }

    /// The size of the prompt of a transcript that has been read.
    pub(in crate::turn) fn size<'c>(&self, counters: Counters<'c>, messages: &[Message]) -> ContextSize<'c> {
        size_with(self.size_of_all(counters), self.model, &Excerpt::whole(messages), &[])
    }
}

/// The size of a session's next prompt by the counters, with the session's settings, as if the
/// model were sent the whole transcript.
pub(in crate::turn) fn own_size<'c>(
    config: &SessionConfig,
    model: CalledModel<'_>,
    counters: Counters<'c>,
) -> ContextSize<'c> {
    PromptCall::new(config, &TurnRequest::default(), 1, false, model).size_of_all(counters)
}
