//! Builds one response in the format of each protocol.

use std::{collections::BTreeMap, sync::Arc};

use contextd::{
    model::DeclaredModel,
    pb::PromptFormat,
    provider::{
        Provider,
        anthropic::Anthropic,
        gemini::Gemini,
        openai::{OpenAi, dialect},
        responses::{Responses, dialect as dialect_of_responses},
    },
};
use serde_json::{Value, json};

use crate::harness::{
    upstream::{Reply, Upstream, anthropic, event, finished, gemini, responses},
    validate::Api,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Chat Completions.
    Chat,
    /// Anthropic Messages.
    Anthropic,
    /// The Responses API.
    Responses,
    /// Gemini's generateContent.
    Gemini,
}

/// The content of a response.
#[derive(Debug, Clone, Default)]
pub(crate) struct Says {
    thinking: Option<String>,
    text: Option<String>,
    calls: Vec<(String, String, Value)>,
}

impl Says {
    /// Reasoning, which may be empty.
    pub(crate) fn thinking(words: &str) -> Self {
        Self { thinking: Some(words.to_owned()), ..Self::default() }
    }

    /// Adds text.
    pub(crate) fn text(mut self, words: &str) -> Self {
        self.text = Some(words.to_owned());
        self
    }

    /// Adds a call.
    pub(crate) fn call(mut self, id: &str, name: &str, input: &Value) -> Self {
        self.calls.push((id.to_owned(), name.to_owned(), input.clone()));
        self
    }
}

impl Protocol {
    pub(crate) const ALL: [Self; 4] = [Self::Chat, Self::Anthropic, Self::Responses, Self::Gemini];

    /// The configured name of the provider, which is also used as a session id.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Anthropic => "anthropic",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
        }
    }

    /// The format of prompts and messages of this protocol.
    pub(crate) fn format(self) -> PromptFormat {
        match self {
            Self::Chat => PromptFormat::OpenaiChat,
            Self::Anthropic => PromptFormat::Anthropic,
            Self::Responses => PromptFormat::OpenaiResponses,
            Self::Gemini => PromptFormat::Gemini,
        }
    }

    /// A model that accepts images and reasons.
    pub(crate) fn model(self) -> String {
        let model = match self {
            Self::Chat => "gpt-4o",
            Self::Anthropic => "claude-haiku-5-5",
            Self::Responses => "gpt-5",
            Self::Gemini => "gemini-3-pro-preview",
        };
        format!("{}/{model}", self.name())
    }

    /// A provider that calls the service.
    pub(crate) fn provider(self, upstream: &Upstream) -> Arc<dyn Provider> {
        let declared = DeclaredModel {
            input_media: Some(vec!["image/*".to_owned()]),
            context_window: Some(100_000),
            ..DeclaredModel::default()
        };
        let model = self.model();
        let (_, model) = model.split_once('/').expect("a reference");
        let models = BTreeMap::from([(model.to_owned(), declared)]);
        match self {
            Self::Chat => {
                let settings = upstream.settings_for(Api::Chat);
                let dialect = dialect::openai();
                Arc::new(OpenAi::new(self.name(), settings, dialect, models).unwrap())
            }
            Self::Anthropic => {
                let settings = upstream.settings_for(Api::Anthropic);
                Arc::new(Anthropic::new(self.name(), settings, models).unwrap())
            }
            Self::Responses => {
                let settings = upstream.settings_for(Api::Responses);
                let dialect = dialect_of_responses::named("openai").unwrap();
                Arc::new(Responses::new(self.name(), settings, dialect, models).unwrap())
            }
            Self::Gemini => {
                let settings = upstream.settings_for(Api::Gemini);
                Arc::new(Gemini::new(self.name(), settings, models).unwrap())
            }
        }
    }

    /// A complete response.
    pub(crate) fn answer(self, says: Says) -> Reply {
        let Says { thinking, text, calls } = says;
        match self {
            Self::Chat => {
                let mut body = Vec::new();
                let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
                let said = text.map(|text| json!({"content": text}));
                body.extend(said.iter().flat_map(event));
                for (index, (id, name, input)) in calls.into_iter().enumerate() {
                    let function = json!({"name": name, "arguments": input.to_string()});
                    let call = json!({"index": index, "id": id, "type": "function", "function": function});
                    body.extend(event(&json!({"tool_calls": [call]})));
                }
                body.extend(finished(finish));
                Reply::events(body)
            }
            Self::Anthropic => {
                let mut answer = anthropic::Answer::default();
                if let Some(thinking) = thinking {
                    answer = answer.thinking(&thinking);
                }
                if let Some(text) = text {
                    answer = answer.said(&[&text]);
                }
                for (id, name, input) in calls {
                    answer = answer.call(&id, &name, &input);
                }
                answer.reply()
            }
            Self::Responses => {
                let mut answer = responses::Answer::default();
                if let Some(thinking) = thinking {
                    answer = answer.reasoning(&thinking);
                }
                if let Some(text) = text {
                    answer = answer.said(&[&text]);
                }
                for (id, name, input) in calls {
                    answer = answer.call(&id, &name, &input);
                }
                answer.reply()
            }
            Self::Gemini => {
                let mut answer = gemini::Answer::default();
                if let Some(words) = thinking.iter().find(|words| !words.is_empty()) {
                    answer = answer.thinking(words);
                }
                if let Some(text) = text {
                    answer = answer.said(&[&text]);
                    // A text without calls carries the signature itself.
                    if calls.is_empty() && thinking.is_some() {
                        answer = answer.signed();
                    }
                }
                for (number, (_, name, input)) in calls.into_iter().enumerate() {
                    answer = answer.call(&name, &input);
                    if number == 0 {
                        answer = answer.signed();
                    }
                }
                answer.reply()
            }
        }
    }

    /// The beginning of a response that never ends.
    pub(crate) fn begun(self, words: &str) -> Reply {
        match self {
            Self::Chat => Reply::events(event(&json!({"content": words}))).stall(),
            Self::Anthropic => anthropic::Answer::default().said(&[words]).begun().stall(),
            Self::Responses => responses::Answer::default().said(&[words]).begun().stall(),
            Self::Gemini => gemini::Answer::default().said(&[words]).begun().stall(),
        }
    }

    /// A response that there are too many requests.
    pub(crate) fn limited(self) -> Reply {
        match self {
            Self::Chat | Self::Responses => Reply::error(429, "rate_limit_exceeded", "Too many requests."),
            Self::Anthropic => anthropic::refused(429, "rate_limit_error", "Too many requests."),
            Self::Gemini => gemini::refused(429, "RESOURCE_EXHAUSTED", "Too many requests."),
        }
        .header("retry-after", "0")
    }

    /// A response that the prompt is too long.
    pub(crate) fn too_long(self) -> Reply {
        match self {
            Self::Chat | Self::Responses => Reply::error(400, "context_length_exceeded", "Too long."),
            Self::Anthropic => {
                anthropic::refused(400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum")
            }
            Self::Gemini => gemini::refused(
                400,
                "INVALID_ARGUMENT",
                "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            ),
        }
    }

    /// What identifies reasoning in a request. Returns `None` if the protocol does not send reasoning back.
    pub(crate) fn thought(self) -> Option<&'static str> {
        match self {
            Self::Chat => None,
            Self::Anthropic => Some(r#""type":"thinking""#),
            Self::Responses => Some(r#""type":"reasoning""#),
            Self::Gemini => Some(r#""thoughtSignature""#),
        }
    }

    /// The number of reasoning items in the last request of a turn of two steps, after a turn of the same model and one
    /// of another model.
    pub(crate) fn thoughts_after_a_switch(self) -> usize {
        match self {
            Self::Chat => 0,
            Self::Anthropic | Self::Responses => 3,
            // One is a placeholder for the reasoning of the other model's first call.
            Self::Gemini => 4,
        }
    }

    /// The number of images in a request.
    pub(crate) fn pictures(self, body: &Value) -> usize {
        let mark = match self {
            Self::Chat => r#""type":"image_url""#,
            Self::Anthropic => r#""type":"image""#,
            Self::Responses => r#""type":"input_image""#,
            Self::Gemini => r#""inlineData""#,
        };
        body.to_string().matches(mark).count()
    }
}
