//! How a window is divided: what is kept free for the answer, and the largest prompt that fits.

use crate::model::config::{ContextPolicy, UnknownWindow};

/// The window that is taken where none is known, and what is kept free of it (feature row S4).
pub const ASSUMED: (u32, u32) = (16_000, 4_096);
/// The most that is kept free for an answer where the policy does not say.
const MOST_RESERVED: u32 = 32_000;
/// What is kept free where the model's limit is not known (feature row S2).
const RESERVED_UNKNOWN: u32 = 4_096;

/// Where the policy does not say, a window below this many tokens keeps at most one part in four of it
/// free, and a larger one at most half: what is left has room for a conversation.
const SMALL_WINDOW: (u32, u32) = (32_000, 4);
/// See [`SMALL_WINDOW`].
const LARGE_WINDOW: u32 = 2;

/// The buffer that is shown where nothing is compacted by itself (feature row A10).
pub const BUFFER_WHEN_OFF: u32 = 500;

/// A window and how it is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The whole window in tokens.
    pub window: u32,
    /// Kept free for the answer, at most the window.
    pub reserve: u32,
    /// The size of the window is not known.
    pub assumed: bool,
}

/// The policy wants a window that is known, and none is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the context window is not known")]
pub struct WindowUnknown;

impl Budget {
    /// The window of a model under a policy; `window` and `max_output` are what is known of the
    /// model.
    pub fn of(
        policy: &ContextPolicy,
        window: Option<u32>,
        max_output: Option<u32>,
    ) -> Result<Self, WindowUnknown> {
        let known = policy.context_window.or(window);
        let window = match (known, policy.unknown_window) {
            (Some(window), UnknownWindow::Assume | UnknownWindow::Refuse) => window,
            (None, UnknownWindow::Assume) => ASSUMED.0,
            (None, UnknownWindow::Refuse) => return Err(WindowUnknown),
        };
        let by_model = match (known, max_output) {
            (_, Some(most)) => most.min(MOST_RESERVED),
            (None, None) => ASSUMED.1,
            (Some(_), None) => RESERVED_UNKNOWN,
        };
        let most = match (known, SMALL_WINDOW) {
            (None, _) => ASSUMED.1,
            (Some(window), (small, part)) if window < small => window / part,
            (Some(window), _) => window / LARGE_WINDOW,
        };
        let by_model = by_model.min(most);
        let reserve = policy.output_reserve.unwrap_or(by_model).min(window);
        Ok(Self {
            window,
            reserve,
            assumed: known.is_none(),
        })
    }

    /// The largest prompt that leaves room for the answer. One token more is too large (feature row
    /// D14).
    pub fn room(self) -> u32 {
        self.window - self.reserve
    }

    /// Whether a size is too large.
    pub fn overflows(self, size: u32) -> bool {
        size > self.room()
    }

    /// Whether a size is near that: more than nine tenths of it (feature row S4).
    pub fn nearly_full(self, size: u32) -> bool {
        u64::from(size) * 10 > u64::from(self.room()) * 9
    }

    /// What is left of the window after what is used and what is never filled.
    pub fn free(self, used: u32, buffer: u32) -> u32 {
        self.window.saturating_sub(used).saturating_sub(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(
        window: Option<u32>,
        max_output: Option<u32>,
        policy: ContextPolicy,
    ) -> Result<Budget, WindowUnknown> {
        Budget::of(&policy, window, max_output)
    }

    /// Rows S2 and S4
    #[test]
    fn the_reserve_is_the_policys_or_the_models_within_bounds() {
        let shipped = ContextPolicy::default;
        let reserved = |reserve| ContextPolicy {
            output_reserve: Some(reserve),
            ..shipped()
        };
        let table = [
            (
                Some(200_000),
                Some(16_000),
                shipped(),
                (200_000, 16_000, false),
            ),
            (
                Some(1_000_000),
                Some(64_000),
                shipped(),
                (1_000_000, 32_000, false),
            ),
            (Some(2_048), None, shipped(), (2_048, 512, false)),
            (Some(4_096), None, shipped(), (4_096, 1_024, false)),
            (Some(4_096), Some(4_096), shipped(), (4_096, 1_024, false)),
            (Some(8_192), None, shipped(), (8_192, 2_048, false)),
            (Some(16_384), None, shipped(), (16_384, 4_096, false)),
            (Some(31_999), None, shipped(), (31_999, 4_096, false)),
            (
                Some(32_768),
                Some(32_768),
                shipped(),
                (32_768, 16_384, false),
            ),
            (None, Some(64_000), shipped(), (16_000, 4_096, true)),
            (
                Some(200_000),
                Some(16_000),
                reserved(0),
                (200_000, 0, false),
            ),
            (
                Some(4_096),
                Some(4_096),
                reserved(9_000),
                (4_096, 4_096, false), // the policy's own number
            ),
            (None, None, shipped(), (16_000, 4_096, true)),
            (None, Some(1_000), shipped(), (16_000, 1_000, true)),
            (
                Some(200_000),
                Some(16_000),
                ContextPolicy {
                    context_window: Some(50_000),
                    ..shipped()
                },
                (50_000, 16_000, false),
            ),
        ];
        for (window, max_output, policy, (expected, reserve, assumed)) in table {
            let expected = Ok(Budget {
                window: expected,
                reserve,
                assumed,
            });
            assert_eq!(
                budget(window, max_output, policy.clone()),
                expected,
                "{window:?} {max_output:?} {policy:?}"
            );
        }
    }

    /// Row S4
    #[test]
    fn an_unknown_window_is_assumed_or_refused_by_policy() {
        let refuse = ContextPolicy {
            unknown_window: UnknownWindow::Refuse,
            ..ContextPolicy::default()
        };
        assert_eq!(budget(None, None, refuse.clone()), Err(WindowUnknown));
        assert!(budget(Some(1), None, refuse.clone()).is_ok());
        assert!(
            budget(
                None,
                None,
                ContextPolicy {
                    context_window: Some(9),
                    ..refuse
                }
            )
            .is_ok()
        );
    }

    /// Row D14
    #[test]
    fn a_prompt_that_fits_exactly_does_not_overflow() {
        let budget = Budget {
            window: 200_000,
            reserve: 16_000,
            assumed: false,
        };
        assert_eq!(budget.room(), 184_000);
        for (size, too_large) in [(183_999, false), (184_000, false), (184_001, true)] {
            assert_eq!(budget.overflows(size), too_large, "{size}");
        }
    }

    /// Row S4
    #[test]
    fn context_is_nearly_full_above_nine_tenths_of_the_room() {
        let budget = Budget {
            window: 20_000,
            reserve: 10_000,
            assumed: false,
        };
        for (size, nearly) in [(0, false), (9_000, false), (9_001, true), (u32::MAX, true)] {
            assert_eq!(budget.nearly_full(size), nearly, "{size}");
        }
        let none = Budget {
            window: 4_096,
            reserve: 4_096,
            assumed: false,
        };
        assert_eq!((none.nearly_full(0), none.nearly_full(1)), (false, true));
    }

    /// Row A8
    #[test]
    fn free_tokens_exclude_the_buffer_and_are_never_negative() {
        let budget = Budget {
            window: 200_000,
            reserve: 16_000,
            assumed: false,
        };
        assert_eq!(budget.free(52_100, 16_000), 131_900);
        assert_eq!(budget.free(190_000, 16_000), 0);
        assert_eq!(budget.free(250_000, 500), 0);
    }
}
