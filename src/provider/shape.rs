//! Prompts as requests that hosts send by themselves, in the shape that they speak.

use super::{
    Request,
    ai_sdk::{self, Version},
    anthropic, gemini, openai, responses,
};
use crate::model::{Prompt, PromptShape};

/// The request that a host sends by itself which speaks that shape, whoever serves the model.
/// `provider` is the configured name of who does. `None` means there is no such shape.
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
