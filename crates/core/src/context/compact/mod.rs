//! Plans a compaction: selects the messages that it replaces, from the messages in the prompt, their sizes and the
//! policy, before a model is called.
//!
//! A compaction hides all messages of a range except the newest message of a user and the request of the newest turn.
//! Messages that the model has not responded to and pinned messages are kept too, unless the prompt cannot be sent
//! otherwise. A range never ends between a call and its result, and it always includes the range of the active
//! compaction, which it supersedes.

use std::{cmp::Reverse, collections::BTreeSet};

pub mod digest;
pub mod gain;
pub mod ladder;
pub mod summary_prompt;
pub mod trigger;

use self::{
    ladder::{CompactionMethod, Substitute},
    trigger::share,
};
use super::{budget::Budget, estimate, prune, size::EstimateCorrection};
use crate::model::{
    CompactionId, Message, Role, Seq,
    compaction::{CompactionPolicy, Ratio, Strategy},
};

#[cfg(test)]
mod tests;

/// A compacted context fills at most one part in this many of the room, so that the next compaction does not follow
/// immediately.
const TARGET_ROOM_DIVISOR: u32 = 2;
/// Middle removal keeps at most one part in this many of the target size at the beginning.
const HEAD_DIVISOR: u32 = 4;
/// The excerpt gets one part in this many of the target size; the kept messages get the rest.
const EXCERPT_DIVISOR: u64 = 2;
/// An excerpt uses at most this many tenths of its room, because its size is an estimate.
const EXCERPT_TENTHS: u32 = 8;
/// Upper bound of the size of the note about messages that are left out, in tokens.
const NOTE_TOKENS: u64 = 40;

/// The active compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveCompaction {
    pub id: CompactionId,
    /// The first message that it replaces.
    pub from: Seq,
    /// The last message that it replaces.
    pub to: Seq,
    /// Number of messages that it replaces.
    pub messages: u32,
    /// The summary that replaces them, as it was written.
    pub summary: Option<String>,
    /// Whether it replaces pinned messages too.
    pub hides_pinned: bool,
}

/// The input of a plan: a context that may have to be compacted.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a> {
    /// The messages in the prompt, in order.
    pub messages: &'a [Message],
    pub active_compaction: Option<&'a ActiveCompaction>,
    /// Estimated size of the rest of the prompt.
    pub non_transcript_tokens: u32,
    /// Upper bound of the size of the prompt.
    pub size: u32,
    pub budget: Budget,
    pub policy: &'a CompactionPolicy,
    /// Requested size of the prompt in tokens. `None` means a fraction of the room.
    pub target: Option<u32>,
    /// Correction of estimates after the transcript was rewritten. `None` means the ratio of `size` to its estimate.
    pub correction: Option<EstimateCorrection>,
}

/// A planned compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub method: CompactionMethod,
    /// The first message that it replaces.
    pub from: Seq,
    /// The last message that it replaces.
    pub to: Seq,
    /// Messages in the range that are kept, in addition to pinned ones; if `hides_pinned`, including pinned ones.
    pub kept: Vec<Seq>,
    /// Whether it replaces pinned messages too; also set if the active compaction does.
    pub hides_pinned: bool,
    /// Indexes of the hidden messages of the prompt, the active summary included.
    pub hidden: Vec<usize>,
    /// Number of messages that it replaces, including those of the active compaction.
    pub stands_for: u32,
    /// The active summary is carried over, because no model writes a new one.
    pub carries_summary: bool,
}

/// Plans a compaction in this way. Returns `None` if no message may be hidden.
pub fn plan(way: CompactionMethod, situation: &PlanInput<'_>) -> Option<Plan> {
    let mut field = RangePlanner::of(situation);
    let (head, tail) = match way {
        CompactionMethod::KeepUnanswered(Strategy::ReactiveOverflow) => {
            (0, field.newest_turns(situation.policy.keep_turns))
        }
        CompactionMethod::KeepUnanswered(Strategy::ProactiveThreshold) => {
            (0, field.newest_share(situation.policy.keep_ratio, situation.target)?)
        }
        CompactionMethod::KeepUnanswered(Strategy::MiddleRemoval) => field.both_ends(),
        CompactionMethod::KeepUnanswered(Strategy::Truncation) => (0, field.newest_that_fits()),
        CompactionMethod::Excerpt => (0, field.unanswered(field.target_tokens / EXCERPT_DIVISOR)?),
        CompactionMethod::SummariseUnanswered(_) => (0, field.unanswered(field.summary())?),
        CompactionMethod::Omit => {
            let carried = field.active_summary_tokens().min(field.target_tokens / EXCERPT_DIVISOR);
            (0, field.unanswered(carried + NOTE_TOKENS)?)
        }
        CompactionMethod::ExcerptPinned => {
            let substitute = field.target_tokens / EXCERPT_DIVISOR;
            field.unpin(substitute);
            (0, field.boundary(0, substitute)?)
        }
        CompactionMethod::OmitPinned => {
            let carried = field.active_summary_tokens().min(field.target_tokens / EXCERPT_DIVISOR);
            field.unpin(carried + NOTE_TOKENS);
            (0, field.boundary(0, carried + NOTE_TOKENS)?)
        }
    };
    field.plan(way, head, tail)
}

impl Plan {
    /// The strategy to report.
    pub fn strategy(&self) -> Strategy {
        self.method.strategy()
    }

    /// An excerpt of the hidden messages, each truncated to the same length, after the active summary. Returns `None`
    /// if too little of each would be left.
    pub fn excerpt(&self, situation: &PlanInput<'_>) -> Option<String> {
        digest::excerpt(
            active_summary(situation),
            self.hidden_messages(situation.messages),
            self.excerpt_budget(situation),
        )
    }

    /// A note about the hidden messages, after the active summary, which is truncated if it is too large.
    pub fn note(&self, situation: &PlanInput<'_>) -> String {
        let left_out = self.hidden_messages(situation.messages).count();
        digest::omission_note(active_summary(situation), left_out, self.excerpt_budget(situation) / 2)
    }

    /// The room for an excerpt, in tokens.
    fn excerpt_budget(&self, situation: &PlanInput<'_>) -> u32 {
        let room = situation.budget.room() / TARGET_ROOM_DIVISOR;
        let target = situation.target.unwrap_or(room).max(1);
        self.substitute_budget_for(situation, target) / 10 * EXCERPT_TENTHS
    }

    /// The size of the prompt with a summary of `summary` tokens in place of the hidden messages.
    pub fn size_after(&self, situation: &PlanInput<'_>, summary: u32) -> u32 {
        let gone = self.hidden.iter().map(|at| u64::from(size(&situation.messages[*at]))).sum::<u64>();
        let whole = estimated(situation);
        let after = whole.saturating_sub(gone) + u64::from(summary);
        match situation.correction {
            Some(lesson) => u32::try_from(lesson.apply(after)).unwrap_or(u32::MAX),
            None => scaled(after, situation.size, whole),
        }
    }

    /// The maximum size of the replacement text, in tokens, for the prompt to have the requested size.
    pub fn substitute_budget(&self, situation: &PlanInput<'_>) -> u32 {
        situation.target.map_or(u32::MAX, |target| self.substitute_budget_for(situation, target))
    }

    /// Like [`Self::substitute_budget`], for a prompt of `target` tokens.
    fn substitute_budget_for(&self, situation: &PlanInput<'_>, target: u32) -> u32 {
        let gone = self.hidden.iter().map(|at| u64::from(size(&situation.messages[*at]))).sum::<u64>();
        let whole = estimated(situation);
        // The inverse of `after`.
        let most = match situation.correction {
            Some(lesson) => u128::from(lesson.estimate_of(target.into())),
            None => u128::from(target) * u128::from(whole) / u128::from(situation.size.max(1)),
        };
        u32::try_from(most.saturating_sub(u128::from(whole.saturating_sub(gone)))).unwrap_or(u32::MAX)
    }

    /// The hidden messages, without the active summary.
    pub fn hidden_messages<'a>(&'a self, messages: &'a [Message]) -> impl Iterator<Item = &'a Message> + 'a {
        self.hidden.iter().map(|at| &messages[*at]).filter(|message| !message.is_summary)
    }

    /// The tools called in the kept messages, and those only called in hidden ones.
    pub fn tools(&self, messages: &[Message]) -> (Vec<String>, Vec<String>) {
        let stays = messages.iter().enumerate().filter(|(at, _)| self.hidden.binary_search(at).is_err());
        let stay = tools(stays.map(|(_, message)| message));
        let mut gone = tools(self.hidden_messages(messages));
        gone.retain(|tool| !stay.contains(tool));
        (stay, gone)
    }
}

/// The messages in the prompt, with the properties that limit where a range may end.
struct RangePlanner<'a> {
    situation: &'a PlanInput<'a>,
    /// Estimated size of the prompt.
    whole: u64,
    /// Prefix sums of the sizes of the messages that may be hidden.
    movable: Vec<u64>,
    stays: Vec<bool>,
    turns: Vec<usize>,
    /// Index of the first message that the model has not responded to.
    first_unanswered: usize,
    /// Target size of the prompt.
    target_tokens: u64,
}

impl<'a> RangePlanner<'a> {
    fn of(situation: &'a PlanInput<'a>) -> Self {
        let messages = situation.messages;
        let turns = prune::turns(messages);
        let unread = first_unanswered(messages);
        let stays = always_kept(messages, &turns, |message| message.pinned);
        let movable = movable(messages, &stays);
        let room = situation.budget.room() / TARGET_ROOM_DIVISOR;
        let aim = u64::from(situation.target.unwrap_or(room).max(1));
        Self {
            situation,
            whole: estimated(situation),
            movable,
            stays,
            turns,
            first_unanswered: unread,
            target_tokens: aim,
        }
    }

    /// Whether a range may end before this message without separating a call from its result.
    fn is_safe(&self, at: usize) -> bool {
        self.situation.messages.get(at).is_none_or(|message| message.role != Role::Tool)
    }

    /// Whether a prompt may continue here without a summary before it: at a user message, or inside the newest turn,
    /// whose request is kept.
    fn may_begin(&self, at: usize) -> bool {
        let Some(message) = self.situation.messages.get(at) else {
            return true;
        };
        let begun = self.turns[at] == self.newest()
            && self.stays[..at].iter().zip(&self.turns).any(|(stays, turn)| *stays && *turn == self.newest());
        self.is_safe(at) && (message.role == Role::User || begun)
    }

    fn newest(&self) -> usize {
        self.turns.last().copied().unwrap_or_default()
    }

    /// Index of the first message of the turn that is `back` turns before the newest.
    fn turn_start(&self, back: u32) -> usize {
        let turn = self.newest().saturating_sub(back as usize);
        self.turns.iter().position(|number| *number >= turn).unwrap_or_default()
    }

    fn fits(&self, head: usize, tail: usize, summary: u64) -> bool {
        let gone = self.movable[tail].saturating_sub(self.movable[head.min(tail)]);
        self.scaled(self.whole.saturating_sub(gone) + summary) <= self.target_tokens
    }

    fn scaled(&self, estimate: u64) -> u64 {
        u64::from(scaled(estimate, self.situation.size, self.whole))
    }

    /// Maximum size of a new summary.
    fn summary(&self) -> u64 {
        u64::from(self.situation.policy.summary_max_tokens.saturating_add(estimate::MESSAGE_OVERHEAD))
    }

    /// Size of the active summary, which is carried over.
    fn active_summary_tokens(&self) -> u64 {
        let summary = self.situation.messages.iter().find(|message| message.is_summary);
        summary.map_or(0, |message| u64::from(size(message)))
    }

    fn newest_turns(&self, keep: u32) -> usize {
        let starts = (1..=keep).rev().map(|kept| self.turn_start(kept - 1));
        let whole = starts.filter(|at| *at <= self.first_unanswered && self.is_safe(*at));
        let begin = self.turn_start(0).min(self.first_unanswered);
        let inside = (begin..=self.first_unanswered).filter(|at| self.is_safe(*at));
        whole.chain(inside).find(|at| self.fits(0, *at, self.summary())).unwrap_or(self.first_unanswered)
    }

    /// The end of a range that keeps the newest share, or less if a target size is requested that the share exceeds.
    fn newest_share(&self, keep: Ratio, asked: Option<u32>) -> Option<usize> {
        let kept = u64::from(share(u32::try_from(self.whole).unwrap_or(u32::MAX), keep.get()));
        let messages = self.situation.messages;
        let mut sum = 0;
        let fits = |message: &&Message| {
            sum += u64::from(size(message));
            sum <= kept
        };
        let target = (messages.len() - messages.iter().rev().take_while(fits).count()).min(self.first_unanswered);
        let share = (1..=target).rev().find(|at| self.is_safe(*at));
        if asked.is_none() || share.is_some_and(|at| self.fits(0, at, self.summary())) {
            return share;
        }
        let mut less = (share.unwrap_or(1)..=self.first_unanswered).filter(|at| self.is_safe(*at));
        less.clone().find(|at| self.fits(0, *at, self.summary())).or_else(|| less.next_back())
    }

    fn both_ends(&self) -> (usize, usize) {
        let messages = self.situation.messages;
        let before = self.situation.active_compaction.map_or(messages.len(), |in_force| {
            messages
                .iter()
                .position(|message| message.is_summary || message.seq >= in_force.from)
                .unwrap_or(messages.len())
        });
        let most = self.target_tokens / u64::from(HEAD_DIVISOR);
        let mut sum = 0;
        let fits = |message: &&Message| {
            sum += u64::from(size(message));
            self.scaled(sum) <= most
        };
        let head = messages.iter().take(before).take_while(fits).count();
        // The kept beginning ends before a user message, so that it does not end in a request without its response.
        let asked = |at: &usize| messages.get(*at).is_some_and(|message| message.role == Role::User);
        let head = (0..=head.min(self.first_unanswered)).rev().find(asked).unwrap_or_default();
        let mut tails = (head..=self.first_unanswered).filter(|at| self.may_begin(*at));
        let tail = tails.clone().find(|at| self.fits(head, *at, self.active_summary_tokens()));
        (head, tail.or_else(|| tails.next_back()).unwrap_or(self.first_unanswered))
    }

    fn newest_that_fits(&self) -> usize {
        let mut tails = (0..=self.first_unanswered).filter(|at| self.may_begin(*at));
        tails.find(|at| self.fits(0, *at, self.active_summary_tokens())).unwrap_or(self.first_unanswered)
    }

    /// The end of a range that also hides unread messages so that the kept ones fit next to a substitute of this size;
    /// everything but the newest input if that is not possible. Returns `None` if only messages that the strategies
    /// hide too could be hidden. If there is an active summary, the range may also end earlier: the summary itself,
    /// which the strategies carry over whole, may be what is too large.
    fn unanswered(&self, substitute: u64) -> Option<usize> {
        let messages = self.situation.messages;
        let has_summary = messages.iter().any(|message| message.is_summary);
        self.boundary(if has_summary { 0 } else { self.first_unanswered }, substitute)
    }

    /// The first boundary after `begin` at which the kept messages fit next to a substitute of this size, or else the
    /// last boundary. Returns `None` if nothing after `begin` may be hidden and there is no active summary to replace.
    fn boundary(&self, begin: usize, substitute: u64) -> Option<usize> {
        let messages = self.situation.messages;
        let open = messages.last().is_some_and(|last| !calls(last).is_empty());
        let end = messages.len() - usize::from(open);
        let goes = |at: &usize| !self.stays[*at] && !messages[*at].is_summary;
        let summary = || messages.iter().position(|message| message.is_summary);
        let first = (begin..end).find(goes).or_else(summary)?;
        let mut tails = (first + 1..=end).filter(|at| self.is_safe(*at));
        let all = tails.clone().next_back();
        tails.find(|at| self.fits(0, *at, substitute)).or(all)
    }

    /// Unpins messages, largest first: as few as necessary for the rest to fit next to a substitute of this size, or
    /// all.
    fn unpin(&mut self, substitute: u64) {
        let messages = self.situation.messages;
        let mut pinned: Vec<&Message> = messages.iter().filter(|it| it.pinned).collect();
        pinned.sort_by_key(|message| Reverse(size(message)));
        // The more are unpinned, the smaller the rest: binary search for their number.
        let (mut few, mut enough) = (0, pinned.len());
        while few < enough {
            let half = usize::midpoint(few, enough);
            self.mark_unpinned(&pinned[..half]);
            if self.fits(0, messages.len(), substitute) {
                enough = half;
            } else {
                few = half + 1;
            }
        }
        self.mark_unpinned(&pinned[..enough]);
    }

    /// Treats these messages as not pinned.
    fn mark_unpinned(&mut self, gone: &[&Message]) {
        let messages = self.situation.messages;
        let gone: BTreeSet<Seq> = gone.iter().map(|message| message.seq).collect();
        let is_pinned = |it: &Message| it.pinned && !gone.contains(&it.seq);
        self.stays = always_kept(messages, &self.turns, is_pinned);
        self.movable = movable(messages, &self.stays);
    }

    fn plan(&self, way: CompactionMethod, head: usize, tail: usize) -> Option<Plan> {
        let PlanInput { messages, active_compaction: in_force, .. } = *self.situation;
        let hidden: Vec<usize> = (head..tail).filter(|at| !self.stays[*at]).collect();
        let new = hidden.iter().map(|at| &messages[*at]).filter(|message| !message.is_summary);
        let first = new.clone().next().map(|message| message.seq);
        let last = new.clone().next_back().map(|message| message.seq);
        if first.is_none() && !way.substitute().shortens_summary() {
            return None;
        }
        let from = in_force.map(|it| it.from).into_iter().chain(first).min()?;
        let to = in_force.map(|it| it.to).into_iter().chain(last).max()?;
        let hides_pinned = way.replaces_pinned() || in_force.is_some_and(|in_force| in_force.hides_pinned);
        // Messages that an earlier summary left out would be hidden with the range; so would pinned messages if the
        // compaction hides any.
        let inside = |message: &Message| {
            (hides_pinned || !message.pinned) && !message.is_summary && (from..=to).contains(&message.seq)
        };
        let kept =
            messages.iter().enumerate().filter(|(at, message)| hidden.binary_search(at).is_err() && inside(message));
        // The range includes that of the active summary, so the summary is hidden too, wherever it is.
        let summary = messages.iter().position(|message| message.is_summary);
        let mut all = hidden.clone();
        all.extend(summary.filter(|at| !hidden.contains(at)));
        all.sort_unstable();
        let stands_for = in_force.map_or(0, |in_force| in_force.messages);
        Some(Plan {
            method: way,
            from,
            to,
            kept: kept.map(|(_, message)| message.seq).collect(),
            hides_pinned,
            stands_for: stands_for.saturating_add(u32::try_from(new.count()).unwrap_or(u32::MAX)),
            carries_summary: way.substitute() == Substitute::ActiveSummary
                && in_force.is_some_and(|in_force| in_force.summary.is_some()),
            hidden: all,
        })
    }
}

/// Index of the first message that the model has not responded to. A call is counted with its results, and also if it
/// has none yet.
fn first_unanswered(messages: &[Message]) -> usize {
    let Some(answer) = messages.iter().rposition(|message| message.role == Role::Assistant) else {
        return 0;
    };
    let open = answer + 1 == messages.len() && !calls(&messages[answer]).is_empty();
    let results = messages.get(answer + 1).is_some_and(|message| message.role == Role::Tool);
    if open || results { answer } else { answer + 1 }
}

/// Prefix sums of the sizes of the messages that may be hidden.
fn movable(messages: &[Message], stays: &[bool]) -> Vec<u64> {
    let mut movable = vec![0];
    let mut sum = 0;
    for (message, stays) in messages.iter().zip(stays) {
        sum += if *stays { 0 } else { u64::from(size(message)) };
        movable.push(sum);
    }
    movable
}

/// The messages that are kept wherever the range ends: pinned ones with their calls or results, the newest user
/// message, and the request of the newest turn.
fn always_kept(messages: &[Message], turns: &[usize], is_pinned: impl Fn(&Message) -> bool) -> Vec<bool> {
    let spoken = |message: &Message| message.role == Role::User && !message.is_summary;
    let newest = turns.last();
    let words = messages.iter().rposition(spoken);
    let request = messages.iter().zip(turns).position(|(message, turn)| spoken(message) && Some(turn) == newest);
    let of_turn = |at: &usize| Some(*at) == words || Some(*at) == request;
    let pinned = |at: usize| messages.get(at).is_some_and(&is_pinned);
    let is_results = |at: usize| messages.get(at).is_some_and(|message| message.role == Role::Tool);
    let bound = |at: usize| is_results(at) && at > 0 && pinned(at - 1) || is_results(at + 1) && pinned(at + 1);
    (0..messages.len()).map(|at| pinned(at) || of_turn(&at) || bound(at)).collect()
}

fn calls(message: &Message) -> Vec<&str> {
    let parts = message.parts.iter();
    parts.filter_map(|stored| Some(stored.part.content.as_call()?.name.as_str())).collect()
}

/// Names of the tools that the messages call, sorted and without duplicates.
fn tools<'a>(messages: impl Iterator<Item = &'a Message>) -> Vec<String> {
    let names: BTreeSet<&str> = messages.flat_map(calls).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// The active summary.
fn active_summary<'a>(situation: &PlanInput<'a>) -> Option<&'a str> {
    let in_force = situation.active_compaction?;
    in_force.summary.as_deref()
}

/// Size of a message in a prompt.
fn size(message: &Message) -> u32 {
    prune::size(message)
}

/// Estimated size of the prompt.
fn estimated(situation: &PlanInput<'_>) -> u64 {
    let messages = situation.messages.iter().map(|message| u64::from(size(message)));
    (u64::from(situation.non_transcript_tokens) + messages.sum::<u64>()).max(1)
}

/// Scales an estimate by the known size of the prompt, `size`, relative to its estimate, `whole`.
fn scaled(estimate: u64, size: u32, whole: u64) -> u32 {
    u32::try_from(u128::from(estimate) * u128::from(size) / u128::from(whole)).unwrap_or(u32::MAX)
}
