//! Encodes prompts as requests in a format that hosts use when they call the model themselves.

use super::{
    Request,
    ai_sdk::{self, Version},
    anthropic, gemini, openai, responses,
};
use crate::model::{Prompt, PromptFormat};

/// Encodes a prompt in this format, independent of the provider that serves the model. `provider`
/// is the configured name of that provider. Returns `None` for the neutral and the native format,
/// which are not formats of another API.
pub fn request_in(shape: PromptFormat, prompt: &Prompt, provider: &str) -> Option<Request> {
    match shape {
        PromptFormat::OpenAiChat => Some(openai::request(prompt)),
        PromptFormat::OpenAiResponses => Some(responses::request(prompt)),
        PromptFormat::Anthropic => Some(anthropic::request(prompt)),
        PromptFormat::Gemini => Some(gemini::request(prompt)),
        PromptFormat::AiSdk => Some(ai_sdk::request(prompt, provider, Version::Five)),
        PromptFormat::AiSdk7 => Some(ai_sdk::request(prompt, provider, Version::Seven)),
        PromptFormat::Neutral | PromptFormat::Native => None,
    }
}
