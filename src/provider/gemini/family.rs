//! What the generations of Gemini models take: a table, so that the rest of the code asks no names.
//! Sources: Google's documentation of thinking, of thought signatures and of multimodal function
//! responses.

use crate::{model::generation::ReasoningEffort, provider::ModelInfo};

/// How a model is asked to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking {
    /// It does not, or cannot be asked to.
    Never,
    /// By a budget in tokens within these bounds. `off`: none at all is taken too.
    Budget { least: u32, most: u32, off: bool },
    /// By a level.
    Level,
}

/// What a family of models takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family {
    /// How it is asked to think.
    pub(super) thinking: Thinking,
    /// Whether the first call of each step must be signed.
    pub(super) signs_calls: bool,
    /// Whether a tool's result may hold media.
    pub(super) media_in_results: bool,
    /// Whether an answer can be held to JSON where there are tools.
    pub(super) json_beside_tools: bool,
}

/// The generation of a Gemini model whose name tells none.
const NEWEST: f32 = f32::MAX;

/// The first generation with signed calls, levels and media in results.
const THIRD: f32 = 3.0;

/// The first generation that thinks.
const FIRST_THINKING: f32 = 2.5;

/// Numbers beyond it are dates.
const LAST_GENERATION: f32 = 20.0;

impl Family {
    /// What a model takes.
    pub(super) fn of(model: &ModelInfo) -> Self {
        let name = model.name.as_str();
        let is_gemini = name.contains("gemini");
        let generation = generation(name);
        let has_levels = model
            .reasoning_efforts
            .as_ref()
            .is_some_and(|levels| !levels.is_empty());
        let thinking = match generation {
            _ if has_levels => Thinking::Level,
            _ if !is_gemini => Thinking::Never,
            generation if generation >= THIRD => Thinking::Level,
            generation if generation >= FIRST_THINKING => budget(name),
            _ => Thinking::Never,
        };
        Self {
            thinking,
            signs_calls: is_gemini && generation >= THIRD,
            media_in_results: is_gemini && generation >= THIRD,
            json_beside_tools: !is_gemini || generation >= THIRD,
        }
    }
}

/// The bounds of the generation 2.5.
fn budget(name: &str) -> Thinking {
    let (least, most, off) = match name {
        name if name.contains("pro") => (128, 32_768, false),
        name if name.contains("lite") => (512, 24_576, true),
        _ => (1, 24_576, true),
    };
    Thinking::Budget { least, most, off }
}

/// `gemini-2.5-flash-lite` is of 2.5, `gemini-3-pro-preview` of 3; `gemini-pro` is the first one.
fn generation(name: &str) -> f32 {
    let after = name.split_once("gemini-").map_or(name, |(_, after)| after);
    let number = |word: &str| {
        let number: f32 = word.parse().ok()?;
        (1.0..LAST_GENERATION).contains(&number).then_some(number)
    };
    match after.split(['-', '@', ':']).find_map(number) {
        Some(generation) => generation,
        None if matches!(after, "pro" | "pro-vision") || after.starts_with("exp-") => 1.0,
        None => NEWEST,
    }
}

/// The levels of models whose own are not known.
pub(super) const LEVELS: [ReasoningEffort; 3] = [
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_known_by_its_generation() {
        let flash = Thinking::Budget {
            least: 1,
            most: 24_576,
            off: true,
        };
        let pro = Thinking::Budget {
            least: 128,
            most: 32_768,
            off: false,
        };
        for (name, thinking, newest) in [
            ("gemini-pro", Thinking::Never, false),
            ("gemini-exp-1206", Thinking::Never, false),
            ("gemini-1.5-pro", Thinking::Never, false),
            ("gemini-2.0-flash-001", Thinking::Never, false),
            ("gemini-2.5-flash-preview-09-2025", flash, false),
            ("gemini-2.5-pro", pro, false),
            ("gemini-3-flash-preview", Thinking::Level, true),
            ("gemini-3.1-pro-preview", Thinking::Level, true),
            ("gemini-4-argon", Thinking::Level, true),
            ("models/gemini-flash-latest", Thinking::Level, true),
            ("learnlm-1.5-pro-experimental", Thinking::Never, false),
            ("gemma-3-27b-it", Thinking::Never, false),
        ] {
            let family = Family::of(&ModelInfo::unknown(name));
            assert_eq!(family.thinking, thinking, "{name}");
            assert_eq!(
                (family.signs_calls, family.media_in_results),
                (newest, newest),
                "{name}"
            );
        }
        let gemma = ModelInfo {
            reasoning_efforts: Some(LEVELS.to_vec()),
            ..ModelInfo::unknown("gemma-4-31b-it")
        };
        assert_eq!(Family::of(&gemma).thinking, Thinking::Level);
    }
}
