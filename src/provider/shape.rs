//! Encodes prompts as requests in a format that hosts use when they call the model themselves.

use super::{
    Request,
    ai_sdk::{self, Version},
    anthropic, gemini, openai, responses,
};
use crate::model::{Prompt, PromptShape};

/// Encodes a prompt in this format, independent of the provider that serves the model. `provider`
/// is the configured name of that provider. Returns `None` for the neutral and the native format,
/// which are not formats of another API.
pub fn request_in(shape: PromptShape, prompt: &Prompt, provider: &str) -> Option<Request> {
    match shape {
        PromptShape::OpenAiChat => Some(openai::request(prompt)),
        PromptShape::OpenAiResponses => Some(responses::request(prompt)),
        PromptShape::Anthropic => Some(anthropic::request(prompt)),
        PromptShape::Gemini => Some(gemini::request(prompt)),
        PromptShape::AiSdk => Some(ai_sdk::request(prompt, provider, Version::Five)),
        PromptShape::AiSdk7 => Some(ai_sdk::request(prompt, provider, Version::Seven)),
        PromptShape::Neutral | PromptShape::Native => None,
    }
}
