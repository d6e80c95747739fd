//! Divides a context window: the reserve for the response, and the largest prompt that fits.

use crate::model::config::{ContextPolicy, UnknownWindow};

/// The window and the reserve assumed if the window is not known, in tokens (feature row S4).
pub const ASSUMED_WINDOW_AND_RESERVE: (u32, u32) = (16_000, 4_096);
/// Maximum reserve for the response if the policy does not set one, in tokens.
const MAX_RESERVE: u32 = 32_000;
/// The reserve if the model's output limit is not known, in tokens (feature row S2).
const RESERVED_UNKNOWN: u32 = 4_096;

/// If the policy does not set a reserve, it is at most a quarter of a window below this many tokens, and at most half
/// of a larger one, so that room remains for the conversation.
const SMALL_WINDOW: (u32, u32) = (32_000, 4);
/// See [`SMALL_WINDOW`].
const LARGE_WINDOW: u32 = 2;

/// The buffer reported if automatic compaction is off (feature row A10).
pub const BUFFER_WHEN_OFF: u32 = 500;

/// A window and its division, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub window: u32,
    /// Reserved for the response; at most the window.
    pub reserve: u32,
    /// The size of the window is not known but assumed.
    pub assumed: bool,
}

/// The window is not known, and the policy rejects unknown windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the context window is unknown")]
pub struct WindowUnknown;

impl Budget {
    /// The budget of a model under a policy. `window` and `max_output` are the model's limits, if known.
    pub fn of(policy: &ContextPolicy, window: Option<u32>, max_output: Option<u32>) -> Result<Self, WindowUnknown> {
        let known = policy.context_window.or(window);
        let window = match (known, policy.unknown_window) {
            (Some(window), UnknownWindow::Assume | UnknownWindow::Refuse) => window,
            (None, UnknownWindow::Assume) => ASSUMED_WINDOW_AND_RESERVE.0,
            (None, UnknownWindow::Refuse) => return Err(WindowUnknown),
        };
        let by_model = match (known, max_output) {
            (_, Some(most)) => most.min(MAX_RESERVE),
            (None, None) => ASSUMED_WINDOW_AND_RESERVE.1,
            (Some(_), None) => RESERVED_UNKNOWN,
        };
        let most = match (known, SMALL_WINDOW) {
            (None, _) => ASSUMED_WINDOW_AND_RESERVE.1,
            (Some(window), (small, part)) if window < small => window / part,
            (Some(window), _) => window / LARGE_WINDOW,
        };
        let by_model = by_model.min(most);
        let reserve = policy.output_reserve.unwrap_or(by_model).min(window);
        Ok(Self { window, reserve, assumed: known.is_none() })
    }

    /// The largest prompt that leaves room for the response (feature row D14).
    pub fn room(self) -> u32 {
        self.window - self.reserve
    }

    /// Whether a prompt of this size is too large.
    pub fn overflows(self, size: u32) -> bool {
        size > self.room()
    }

    /// Whether a prompt of this size uses more than nine tenths of the room (feature row S4).
    pub fn nearly_full(self, size: u32) -> bool {
        u64::from(size) * 10 > u64::from(self.room()) * 9
    }

    /// The unused part of the window, without the buffer that is never filled.
    pub fn free(self, used: u32, buffer: u32) -> u32 {
        self.window.saturating_sub(used).saturating_sub(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(window: Option<u32>, max_output: Option<u32>, policy: ContextPolicy) -> Result<Budget, WindowUnknown> {
        Budget::of(&policy, window, max_output)
    }

    /// Rows S2 and S4
    #[test]
    fn the_reserve_is_the_policys_or_the_models_within_bounds() {
        let shipped = ContextPolicy::default;
        let reserved = |reserve| ContextPolicy { output_reserve: Some(reserve), ..shipped() };
        let table = [
            (Some(200_000), Some(16_000), shipped(), (200_000, 16_000, false)),
            (Some(1_000_000), Some(64_000), shipped(), (1_000_000, 32_000, false)),
            (Some(2_048), None, shipped(), (2_048, 512, false)),
            (Some(4_096), None, shipped(), (4_096, 1_024, false)),
            (Some(4_096), Some(4_096), shipped(), (4_096, 1_024, false)),
            (Some(8_192), None, shipped(), (8_192, 2_048, false)),
            (Some(16_384), None, shipped(), (16_384, 4_096, false)),
            (Some(31_999), None, shipped(), (31_999, 4_096, false)),
            (Some(32_768), Some(32_768), shipped(), (32_768, 16_384, false)),
            (None, Some(64_000), shipped(), (16_000, 4_096, true)),
            (Some(200_000), Some(16_000), reserved(0), (200_000, 0, false)),
            (
                Some(4_096),
                Some(4_096),
                reserved(9_000),
                (4_096, 4_096, false), // set by the policy
            ),
            (None, None, shipped(), (16_000, 4_096, true)),
            (None, Some(1_000), shipped(), (16_000, 1_000, true)),
            (
                Some(200_000),
                Some(16_000),
                ContextPolicy { context_window: Some(50_000), ..shipped() },
                (50_000, 16_000, false),
            ),
        ];
        for (window, max_output, policy, (expected, reserve, assumed)) in table {
            let expected = Ok(Budget { window: expected, reserve, assumed });
            assert_eq!(budget(window, max_output, policy.clone()), expected, "{window:?} {max_output:?} {policy:?}");
        }
    }

    /// Row S4
    #[test]
    fn an_unknown_window_is_assumed_or_refused_by_policy() {
        let refuse = ContextPolicy { unknown_window: UnknownWindow::Refuse, ..ContextPolicy::default() };
        assert_eq!(budget(None, None, refuse.clone()), Err(WindowUnknown));
        assert!(budget(Some(1), None, refuse.clone()).is_ok());
        assert!(budget(None, None, ContextPolicy { context_window: Some(9), ..refuse }).is_ok());
    }

    /// Row D14
    #[test]
    fn a_prompt_that_fits_exactly_does_not_overflow() {
        let budget = Budget { window: 200_000, reserve: 16_000, assumed: false };
        assert_eq!(budget.room(), 184_000);
        for (size, too_large) in [(183_999, false), (184_000, false), (184_001, true)] {
            assert_eq!(budget.overflows(size), too_large, "{size}");
        }
    }

    /// Row S4
    #[test]
    fn context_is_nearly_full_above_nine_tenths_of_the_room() {
        let budget = Budget { window: 20_000, reserve: 10_000, assumed: false };
        for (size, nearly) in [(0, false), (9_000, false), (9_001, true), (u32::MAX, true)] {
            assert_eq!(budget.nearly_full(size), nearly, "{size}");
        }
        let none = Budget { window: 4_096, reserve: 4_096, assumed: false };
        assert_eq!((none.nearly_full(0), none.nearly_full(1)), (false, true));
    }

    /// Row A8
    #[test]
    fn free_tokens_exclude_the_buffer_and_are_never_negative() {
        let budget = Budget { window: 200_000, reserve: 16_000, assumed: false };
        assert_eq!(budget.free(52_100, 16_000), 131_900);
        assert_eq!(budget.free(190_000, 16_000), 0);
        assert_eq!(budget.free(250_000, 500), 0);
    }
}
