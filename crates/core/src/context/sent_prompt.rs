//! Checks whether the usage reported by a provider is plausible for the prompt that was sent.

use super::estimate;
use crate::model::{Content, Message};

/// Properties of a prompt that limit its plausible size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentPrompt {
    /// Estimate of the whole prompt.
    pub estimated: u32,
    /// Estimate of what every service counts: text, calls and results, instructions and tools; no media, no reasoning
    /// and no provider items.
    pub certain: u32,
    /// It contains parts that cannot be estimated well: media, or content read by the provider's own tools.
    pub has_unknown_parts: bool,
    /// The window of the model. `None` if it is not known.
    pub window: Option<u32>,
}

/// Why a report is not accepted as the size of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implausibility {
    /// Larger than the window.
    BeyondWindow,
    /// Far larger than the estimate.
    TooLarge,
    /// Far smaller than the estimate.
    TooSmall,
}

impl Implausibility {
    /// The name in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::BeyondWindow => "beyond_window",
            Self::TooLarge => "too_large",
            Self::TooSmall => "too_small",
        }
    }
}

/// A report that differs from the estimate by more than this factor is not accepted: vocabularies differ by less.
const MAX_DEVIATION_FACTOR: u32 = 4;

/// Tokens above the estimate up to which a report is accepted: gateways and services add system prompts.
const MAX_HIDDEN_TOKENS: u32 = 16_384;

/// Tokens below the estimate up to which a report is accepted.
const MAX_MISSING_TOKENS: u32 = 1_024;

impl SentPrompt {
    /// Why a report cannot be the size of this prompt. Returns `None` if it is plausible.
    pub fn implausibility(&self, reported: u32) -> Option<Implausibility> {
        let margin = |tokens| estimate::count(tokens).margin;
        let most = self.estimated.saturating_add(margin(self.estimated));
        let least = self.certain.saturating_sub(margin(self.certain));
        let is_too_large = reported > most.saturating_mul(MAX_DEVIATION_FACTOR)
            && reported - most > MAX_HIDDEN_TOKENS
            && !self.has_unknown_parts;
        let is_too_small =
            reported.saturating_mul(MAX_DEVIATION_FACTOR) < least && least - reported > MAX_MISSING_TOKENS;
        if self.window.is_some_and(|window| reported > window) {
            Some(Implausibility::BeyondWindow)
        } else if is_too_large {
            Some(Implausibility::TooLarge)
        } else {
            is_too_small.then_some(Implausibility::TooSmall)
        }
    }
}

/// Estimated tokens of parts that services count differently or not at all: media, reasoning, and provider items.
pub fn uncertain_tokens(messages: &[Message]) -> u32 {
    let parts = messages.iter().flat_map(|message| message.parts.iter().map(|stored| (stored, message.role)));
    parts
        .filter(|(stored, _)| match &stored.part.content {
            Content::Reasoning { .. } | Content::Media(_) | Content::ProviderItem(_) | Content::Unknown(_) => true,
            Content::ToolResult(result) => result.media().next().is_some(),
            Content::Text(_) | Content::Refusal(_) | Content::ToolCall(_) => false,
        })
        .map(|(stored, role)| estimate::part(&stored.part, role).tokens)
        .fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::testing;

    #[test]
    fn reports_that_cannot_be_the_size_of_the_prompt_are_not_believed() {
        let text = |tokens: u32| SentPrompt {
            estimated: tokens,
            certain: tokens,
            has_unknown_parts: false,
            window: Some(200_000),
        };
        let pictures = SentPrompt { certain: 20_000, has_unknown_parts: true, ..text(50_000) };
        let no_window = SentPrompt { window: None, ..text(50_000) };
        for (prompt, reported, doubt) in [
            (text(50_000), 50_000, None),
            (text(50_000), 200_000, None),
            (text(50_000), 200_001, Some(Implausibility::BeyondWindow)),
            (no_window, 220_000, None),
            (no_window, 220_001, Some(Implausibility::TooLarge)),
            (no_window, u32::MAX, Some(Implausibility::TooLarge)),
            (text(10), 11 + 16_384, None),
            (text(10), 12 + 16_384, Some(Implausibility::TooLarge)),
            (text(50_000), 11_250, None),
            (text(50_000), 11_249, Some(Implausibility::TooSmall)),
            (text(50_000), 10, Some(Implausibility::TooSmall)),
            (text(50_000), 0, Some(Implausibility::TooSmall)),
            (text(1_000), 10, None),
            (text(1_150), 10, Some(Implausibility::TooSmall)),
            (text(1_150), 0, Some(Implausibility::TooSmall)),
            (text(0), 0, None),
            (pictures, 199_000, None),
            (pictures, 200_001, Some(Implausibility::BeyondWindow)),
            (pictures, 4_500, None),
            (pictures, 4_499, Some(Implausibility::TooSmall)),
        ] {
            assert_eq!(prompt.implausibility(reported), doubt, "{reported} of {prompt:?}");
        }
    }

    #[test]
    fn what_services_may_not_count_is_told_apart() {
        let mut answer = testing::assistant("12345678");
        assert_eq!(uncertain_tokens(std::slice::from_ref(&answer)), 0);
        answer.parts[0].part.content = Content::Reasoning { text: "12345678".to_owned(), redacted: false };
        assert_eq!(uncertain_tokens(&[answer.clone(), answer]), 4);
    }
}
