//! Which strategies of compaction are tried where the first is not enough.

use crate::model::compaction::Strategy;

/// The ways to try, one after the other. What need not become smaller waits rather than to lose
/// what no summary was written of.
pub fn ladder(first: Strategy, must: bool) -> impl Iterator<Item = Strategy> {
    let next = [Strategy::MiddleRemoval, Strategy::Truncation];
    let further = next.into_iter().filter(move |next| must && *next > first);
    std::iter::once(first).chain(further)
}
