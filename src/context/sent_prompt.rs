//! Whether what a provider reports can be the size of the prompt that was sent.

use super::estimate;
use crate::model::{Content, Message};

/// A prompt that was sent, as far as it bounds what can be reported of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentPrompt {
    /// The estimate of all of it.
    pub estimated: u32,
    /// The part that each service counts: text, calls and results, instructions and tools; no media, no
    /// reasoning and no items of a provider's own.
    pub certain: u32,
    /// It holds what cannot be estimated well: media, or what the provider's own tools read.
    pub holds_unknown: bool,
    /// The window of the model. `None` if it is not known.
    pub window: Option<u32>,
}

/// Why a report is not believed to be the size of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// It is larger than the window.
    BeyondWindow,
    /// It is far larger than the estimate.
    TooLarge,
    /// It is far smaller than the estimate.
    TooSmall,
}

impl Doubt {
    /// Its name in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::BeyondWindow => "beyond_window",
            Self::TooLarge => "too_large",
            Self::TooSmall => "too_small",
        }
    }
}

/// The factor between estimate and report beyond which a report is not believed: vocabularies differ by less.
const MOST_APART: u32 = 4;

/// Tokens above the estimate up to which a report is believed: gateways and services add system prompts.
const HIDDEN_AT_MOST: u32 = 16_384;

/// Tokens below the estimate up to which a report is believed.
const MISSING_AT_MOST: u32 = 1_024;

impl SentPrompt {
    /// Why a report cannot be the size of this prompt. `None`: it can.
    pub fn doubt(&self, reported: u32) -> Option<Doubt> {
        let margin = |tokens| estimate::count(tokens).margin;
        let most = self.estimated.saturating_add(margin(self.estimated));
        let least = self.certain.saturating_sub(margin(self.certain));
        let is_too_large = reported > most.saturating_mul(MOST_APART)
            && reported - most > HIDDEN_AT_MOST
            && !self.holds_unknown;
        let is_too_small =
            reported.saturating_mul(MOST_APART) < least && least - reported > MISSING_AT_MOST;
        if self.window.is_some_and(|window| reported > window) {
            Some(Doubt::BeyondWindow)
        } else if is_too_large {
            Some(Doubt::TooLarge)
        } else {
            is_too_small.then_some(Doubt::TooSmall)
        }
    }
}

/// Tokens, from their characters, of parts that a service may count as it likes, or not at all: media, reasoning,
/// and items of a provider's own.
pub fn uncertain_tokens(messages: &[Message]) -> u32 {
    let parts = messages
        .iter()
        .flat_map(|message| message.parts.iter().map(|stored| (stored, message.role)));
    parts
        .filter(|(stored, _)| match &stored.part.content {
            Content::Reasoning { .. }
            | Content::Media(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => true,
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
            holds_unknown: false,
            window: Some(200_000),
        };
        let pictures = SentPrompt {
            certain: 20_000,
            holds_unknown: true,
            ..text(50_000)
        };
        let no_window = SentPrompt {
            window: None,
            ..text(50_000)
        };
        for (prompt, reported, doubt) in [
            (text(50_000), 50_000, None),
            (text(50_000), 200_000, None),
            (text(50_000), 200_001, Some(Doubt::BeyondWindow)),
            (no_window, 220_000, None),
            (no_window, 220_001, Some(Doubt::TooLarge)),
            (no_window, u32::MAX, Some(Doubt::TooLarge)),
            (text(10), 11 + 16_384, None),
            (text(10), 12 + 16_384, Some(Doubt::TooLarge)),
            (text(50_000), 11_250, None),
            (text(50_000), 11_249, Some(Doubt::TooSmall)),
            (text(50_000), 10, Some(Doubt::TooSmall)),
            (text(50_000), 0, Some(Doubt::TooSmall)),
            (text(1_000), 10, None),
            (text(1_150), 10, Some(Doubt::TooSmall)),
            (text(1_150), 0, Some(Doubt::TooSmall)),
            (text(0), 0, None),
            (pictures, 199_000, None),
            (pictures, 200_001, Some(Doubt::BeyondWindow)),
            (pictures, 4_500, None),
            (pictures, 4_499, Some(Doubt::TooSmall)),
        ] {
            assert_eq!(prompt.doubt(reported), doubt, "{reported} of {prompt:?}");
        }
    }

    #[test]
    fn what_services_may_not_count_is_told_apart() {
        let mut answer = testing::assistant("12345678");
        assert_eq!(uncertain_tokens(std::slice::from_ref(&answer)), 0);
        answer.parts[0].part.content = Content::Reasoning {
            text: "12345678".to_owned(),
            redacted: false,
        };
        assert_eq!(uncertain_tokens(&[answer.clone(), answer]), 4);
    }
}
