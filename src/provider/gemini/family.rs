//! What each generation of Gemini models accepts, as a table, so that no other code inspects model
//! names. Sources: Google's documentation of thinking, of thought signatures and of multimodal
//! function responses.

use crate::provider::ModelInfo;

/// How thinking is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking {
    /// The model has no thinking, or it cannot be requested.
    Never,
    /// With a budget in tokens within these bounds. `off`: a budget of zero is accepted too.
    Budget { min: u32, max: u32, off: bool },
    /// With a level.
    Level,
}

/// What a family of models accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family {
    /// How thinking is requested.
    pub(super) thinking: Thinking,
    /// Whether the first call of each step must be signed.
    pub(super) signs_calls: bool,
    /// Whether tool results may contain media.
    pub(super) media_in_results: bool,
    /// Whether a JSON response can be requested together with tools.
    pub(super) json_with_tools: bool,
}

/// The generation of a Gemini model whose name does not contain one.
const NEWEST: f32 = f32::MAX;

/// The first generation with signed calls, levels and media in tool results.
const THIRD: f32 = 3.0;

/// The first generation with thinking.
const FIRST_THINKING: f32 = 2.5;

/// Larger numbers are dates.
const LAST_GENERATION: f32 = 20.0;

impl Family {
    /// What a model accepts.
    pub(super) fn of(model: &ModelInfo) -> Self {
        let name = model.name.as_str();
        let is_gemini = name.contains("gemini");
        let generation = generation(name);
        let has_levels = model.effort_levels().is_some();
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
            json_with_tools: !is_gemini || generation >= THIRD,
        }
    }
}

/// The budget bounds of generation 2.5.
fn budget(name: &str) -> Thinking {
    let (least, most, off) = match name {
        name if name.contains("pro") => (128, 32_768, false),
        name if name.contains("lite") => (512, 24_576, true),
        _ => (1, 24_576, true),
    };
    Thinking::Budget { min: least, max: most, off }
}

/// The generation of a model: 2.5 for `gemini-2.5-flash-lite`, 3 for `gemini-3-pro-preview`, 1 for
/// `gemini-pro`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::rules::COMMON_LEVELS;

    #[test]
    fn a_model_is_known_by_its_generation() {
        let flash = Thinking::Budget { min: 1, max: 24_576, off: true };
        let pro = Thinking::Budget { min: 128, max: 32_768, off: false };
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
            assert_eq!((family.signs_calls, family.media_in_results), (newest, newest), "{name}");
        }
        let gemma =
            ModelInfo { reasoning_efforts: Some(COMMON_LEVELS.to_vec()), ..ModelInfo::unknown("gemma-4-31b-it") };
        assert_eq!(Family::of(&gemma).thinking, Thinking::Level);
    }
}
