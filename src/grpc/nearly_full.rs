//! The notice that the context is nearly full. It is the only notice that depends on what the stream has
//! already sent. The threshold is in `context/budget.rs`.

use crate::{
    context::budget::Budget,
    pb::{self, NoticeCode, event::Payload},
};

/// Returns the notice for the first step whose prompt nearly fills the context window. `shown` is whether the
/// previous step's prompt did so too, and is updated.
pub(super) fn nearly_full(payload: &Payload, shown: &mut bool) -> Option<pb::Notice> {
    let Payload::StepStarted(started) = payload else {
        return None;
    };
    let pb::StepStarted { model: _, etag: _, context_tokens, context_window, output_reserve } = started;
    let tokens = context_tokens.as_ref().map_or(0, |count| count.tokens);
    let unsigned = |number: i32| u32::try_from(number).unwrap_or_default();
    let window = unsigned(*context_window);
    let budget = Budget { window, reserve: unsigned(*output_reserve).min(window), assumed: false };
    let is = window > 0 && budget.nearly_full(unsigned(tokens));
    let was = std::mem::replace(shown, is);
    (is && !was).then(|| pb::Notice {
        code: NoticeCode::ContextNearlyFull.into(),
        text: format!("The context is nearly full: {tokens} of {} tokens", budget.room()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_full_notice_is_shown_once_until_the_prompt_shrinks() {
        let mut shown = false;
        let mut step = |tokens, window, reserve| {
            let context_tokens = Some(pb::TokenCount { tokens, ..pb::TokenCount::default() });
            let started = pb::StepStarted {
                context_tokens,
                context_window: window,
                output_reserve: reserve,
                ..Default::default()
            };
            nearly_full(&Payload::StepStarted(started), &mut shown).map(|notice| (notice.code(), notice.text))
        };
        let told = |text: &str| Some((NoticeCode::ContextNearlyFull, text.to_owned()));
        assert_eq!(step(900, 1_200, 200), None, "nine tenths of what there is room for");
        assert_eq!(step(901, 1_200, 200), told("The context is nearly full: 901 of 1000 tokens"));
        assert_eq!(step(950, 1_200, 200), None);
        assert_eq!(step(500, 1_200, 200), None);
        assert_eq!(step(1_100, 1_200, 200), told("The context is nearly full: 1100 of 1000 tokens"));
        assert_eq!(step(500, 0, 0), None, "the context window is not known");
        assert_eq!(nearly_full(&Payload::Thinking(pb::Thinking::default()), &mut true), None);
    }
}
