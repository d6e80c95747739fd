//! Which messages a compaction is to stand for: decided from what the model sees, its sizes and the
//! policy, before anything is asked of a model.
//!
//! All messages of a stretch are hidden except the newest message of a user and the request of the
//! newest turn. Messages that no model has answered and pinned messages stay too, unless the prompt
//! cannot be sent otherwise. A stretch ends only
//! where no call is parted from its result, and it always covers that of the compaction in force,
//! whose place it takes.

use std::{cmp::Reverse, collections::BTreeSet};

pub mod digest;
pub mod gain;
pub mod ladder;
pub mod summary_prompt;
pub mod trigger;

use self::{
    ladder::{Substitute, Way},
    trigger::share,
};
use super::{budget::Budget, estimate, prune, size::Lesson};
use crate::model::{
    CompactionId, Content, Message, Role, Seq,
    compaction::{CompactionPolicy, Ratio, Strategy},
};

#[cfg(test)]
mod tests;

/// A compacted context may fill at most one part in so many of the room, so that the next compaction
/// is not due at once.
const ROOM_LEFT: u32 = 2;
/// The removal of the middle keeps, at the beginning, at most one part in so many of the size it aims
/// at.
const HEAD: u32 = 4;
/// What is cut gets one part in this many of the size that is aimed at; what stays has the rest.
const EXCERPT: u64 = 2;
/// An excerpt is filled to this many tenths: its size is an estimate.
const EXCERPT_TENTHS: u32 = 8;
/// What the note about messages that are left out costs at most.
const NOTE_TOKENS: u64 = 40;

/// The compaction in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// Which.
    pub id: CompactionId,
    /// The first message that it stands for.
    pub from: Seq,
    /// The last one.
    pub to: Seq,
    /// How many.
    pub messages: u32,
    /// What stands there instead, as it was written.
    pub summary: Option<String>,
    /// Whether it replaces pinned messages too.
    pub hides_pinned: bool,
}

/// A context that may have to become smaller.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// What the model sees, in order.
    pub messages: &'a [Message],
    /// The compaction in force.
    pub in_force: Option<&'a InForce>,
    /// Estimated size of the rest of the prompt.
    pub non_transcript_tokens: u32,
    /// Size of the prompt, as far up as it may be.
    pub size: u32,
    /// Its window.
    pub budget: Budget,
    /// When and how.
    pub policy: &'a CompactionPolicy,
    /// The size that is asked for. `None` means by the room.
    pub target: Option<u32>,
    /// What sizes are corrected by once the transcript is rewritten. `None` means by how much `size`
    /// differs from its estimate.
    pub lesson: Option<Lesson>,
}

/// What a compaction would stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How it was found.
    pub way: Way,
    /// The first message that it stands for.
    pub from: Seq,
    /// The last one.
    pub to: Seq,
    /// Messages in between that stay; beside those that are pinned, unless it hides such.
    pub kept: Vec<Seq>,
    /// Whether it replaces pinned messages too, as it does if the compaction in force does.
    pub hides_pinned: bool,
    /// Which of what the model sees goes, by position; the summary in force too.
    pub hidden: Vec<usize>,
    /// How many messages it stands for, with those of the compaction in force.
    pub stands_for: u32,
    /// The summary in force goes on, since no model writes another one.
    pub carries: bool,
}

/// What a compaction of this kind would stand for. `None` means there is nothing that may go.
pub fn plan(way: Way, situation: &Situation<'_>) -> Option<Plan> {
    let mut field = Field::of(situation);
    let (head, tail) = match way {
        Way::Answered(Strategy::ReactiveOverflow) => {
            (0, field.newest_turns(situation.policy.keep_turns))
        }
        Way::Answered(Strategy::ProactiveThreshold) => (
            0,
            field.newest_share(situation.policy.keep_ratio, situation.target)?,
        ),
        Way::Answered(Strategy::MiddleRemoval) => field.both_ends(),
        Way::Answered(Strategy::Truncation) => (0, field.newest_that_fits()),
        Way::Cut => (0, field.unanswered(field.aim / EXCERPT)?),
        Way::Summarised(_) => (0, field.unanswered(field.summary())?),
        Way::LeftOut => {
            let carried = field.carried().min(field.aim / EXCERPT);
            (0, field.unanswered(carried + NOTE_TOKENS)?)
        }
        Way::CutPinned => {
            let substitute = field.aim / EXCERPT;
            field.unpin(substitute);
            (0, field.boundary(0, substitute)?)
        }
        Way::LeftOutPinned => {
            let carried = field.carried().min(field.aim / EXCERPT);
            field.unpin(carried + NOTE_TOKENS);
            (0, field.boundary(0, carried + NOTE_TOKENS)?)
        }
    };
    field.plan(way, head, tail)
}

impl Plan {
    /// The strategy that is reported.
    pub fn strategy(&self) -> Strategy {
        self.way.strategy()
    }

    /// What is shown of the messages that go, each cut to the same length, with the summary in force
    /// before it. `None` means that little would be left of each.
    pub fn excerpt(&self, situation: &Situation<'_>) -> Option<String> {
        digest::excerpt(
            in_force(situation),
            self.gone(situation.messages),
            self.room_to_fill(situation),
        )
    }

    /// The note about the messages that go, after the summary in force, which is cut if it is too
    /// large.
    pub fn note(&self, situation: &Situation<'_>) -> String {
        let left_out = self.gone(situation.messages).count();
        digest::left_out(
            in_force(situation),
            left_out,
            self.room_to_fill(situation) / 2,
        )
    }

    /// Tokens that an excerpt may have.
    fn room_to_fill(&self, situation: &Situation<'_>) -> u32 {
        let room = situation.budget.room() / ROOM_LEFT;
        let target = situation.target.unwrap_or(room).max(1);
        self.room_within(situation, target) / 10 * EXCERPT_TENTHS
    }

    /// The size of the prompt with a summary of so many tokens in place of what goes.
    pub fn after(&self, situation: &Situation<'_>, summary: u32) -> u32 {
        let gone = self
            .hidden
            .iter()
            .map(|at| u64::from(size(&situation.messages[*at])))
            .sum::<u64>();
        let whole = estimated(situation);
        let after = whole.saturating_sub(gone) + u64::from(summary);
        match situation.lesson {
            Some(lesson) => u32::try_from(lesson.apply(after)).unwrap_or(u32::MAX),
            None => scaled(after, situation.size, whole),
        }
    }

    /// Tokens that may stand in place of what goes for the prompt to have the size that is asked
    /// for.
    pub fn room(&self, situation: &Situation<'_>) -> u32 {
        situation
            .target
            .map_or(u32::MAX, |target| self.room_within(situation, target))
    }

    /// The same for a prompt of that size.
    fn room_within(&self, situation: &Situation<'_>, target: u32) -> u32 {
        let gone = self
            .hidden
            .iter()
            .map(|at| u64::from(size(&situation.messages[*at])))
            .sum::<u64>();
        let whole = estimated(situation);
        // What `after` does, the other way round.
        let most = match situation.lesson {
            Some(lesson) => u128::from(lesson.estimate_of(target.into())),
            None => u128::from(target) * u128::from(whole) / u128::from(situation.size.max(1)),
        };
        u32::try_from(most.saturating_sub(u128::from(whole.saturating_sub(gone))))
            .unwrap_or(u32::MAX)
    }

    /// The messages that go, the summary in force left out.
    pub fn gone<'a>(&'a self, messages: &'a [Message]) -> impl Iterator<Item = &'a Message> + 'a {
        self.hidden
            .iter()
            .map(|at| &messages[*at])
            .filter(|message| !message.is_summary)
    }

    /// The tools that what stays mentions, and those that only what goes does.
    pub fn tools(&self, messages: &[Message]) -> (Vec<String>, Vec<String>) {
        let stays = messages
            .iter()
            .enumerate()
            .filter(|(at, _)| self.hidden.binary_search(at).is_err());
        let stay = tools(stays.map(|(_, message)| message));
        let mut gone = tools(self.gone(messages));
        gone.retain(|tool| !stay.contains(tool));
        (stay, gone)
    }
}

/// What the model sees, with what a boundary has to reckon with.
struct Field<'a> {
    situation: &'a Situation<'a>,
    /// The size of the prompt as it is estimated.
    whole: u64,
    /// The size of what may go, up to each position.
    movable: Vec<u64>,
    stays: Vec<bool>,
    turns: Vec<usize>,
    /// From here on the model has not read what there is.
    unread: usize,
    /// The size that the prompt is to have.
    aim: u64,
}

impl<'a> Field<'a> {
    fn of(situation: &'a Situation<'a>) -> Self {
        let messages = situation.messages;
        let turns = prune::turns(messages);
        let unread = unread(messages);
        let stays = staying(messages, &turns, |message| message.pinned);
        let movable = movable(messages, &stays);
        let room = situation.budget.room() / ROOM_LEFT;
        let aim = u64::from(situation.target.unwrap_or(room).max(1));
        Self {
            situation,
            whole: estimated(situation),
            movable,
            stays,
            turns,
            unread,
            aim,
        }
    }

    /// Whether nothing is parted here that belongs together.
    fn is_safe(&self, at: usize) -> bool {
        self.situation
            .messages
            .get(at)
            .is_none_or(|message| message.role != Role::Tool)
    }

    /// Whether a prompt may go on here without a summary before it: with a user, or inside the
    /// newest turn, whose request stays.
    fn may_begin(&self, at: usize) -> bool {
        let Some(message) = self.situation.messages.get(at) else {
            return true;
        };
        let begun = self.turns[at] == self.newest()
            && self.stays[..at]
                .iter()
                .zip(&self.turns)
                .any(|(stays, turn)| *stays && *turn == self.newest());
        self.is_safe(at) && (message.role == Role::User || begun)
    }

    fn newest(&self) -> usize {
        self.turns.last().copied().unwrap_or_default()
    }

    /// The first message of the newest turn but so many.
    fn turn_start(&self, back: u32) -> usize {
        let turn = self.newest().saturating_sub(back as usize);
        self.turns
            .iter()
            .position(|number| *number >= turn)
            .unwrap_or_default()
    }

    fn fits(&self, head: usize, tail: usize, summary: u64) -> bool {
        let gone = self.movable[tail].saturating_sub(self.movable[head.min(tail)]);
        self.scaled(self.whole.saturating_sub(gone) + summary) <= self.aim
    }

    fn scaled(&self, estimate: u64) -> u64 {
        u64::from(scaled(estimate, self.situation.size, self.whole))
    }

    /// What a summary will cost at most.
    fn summary(&self) -> u64 {
        u64::from(
            self.situation
                .policy
                .summary_max_tokens
                .saturating_add(estimate::MESSAGE_OVERHEAD),
        )
    }

    /// What the summary in force goes on to cost.
    fn carried(&self) -> u64 {
        let summary = self
            .situation
            .messages
            .iter()
            .find(|message| message.is_summary);
        summary.map_or(0, |message| u64::from(size(message)))
    }

    fn newest_turns(&self, keep: u32) -> usize {
        let starts = (1..=keep).rev().map(|kept| self.turn_start(kept - 1));
        let whole = starts.filter(|at| *at <= self.unread && self.is_safe(*at));
        let begin = self.turn_start(0).min(self.unread);
        let inside = (begin..=self.unread).filter(|at| self.is_safe(*at));
        whole
            .chain(inside)
            .find(|at| self.fits(0, *at, self.summary()))
            .unwrap_or(self.unread)
    }

    /// The newest share, and less of it where a size is asked for that it is too much for.
    fn newest_share(&self, keep: Ratio, asked: Option<u32>) -> Option<usize> {
        let kept = u64::from(share(
            u32::try_from(self.whole).unwrap_or(u32::MAX),
            keep.get(),
        ));
        let messages = self.situation.messages;
        let mut sum = 0;
        let fits = |message: &&Message| {
            sum += u64::from(size(message));
            sum <= kept
        };
        let target =
            (messages.len() - messages.iter().rev().take_while(fits).count()).min(self.unread);
        let share = (1..=target).rev().find(|at| self.is_safe(*at));
        if asked.is_none() || share.is_some_and(|at| self.fits(0, at, self.summary())) {
            return share;
        }
        let mut less = (share.unwrap_or(1)..=self.unread).filter(|at| self.is_safe(*at));
        less.clone()
            .find(|at| self.fits(0, *at, self.summary()))
            .or_else(|| less.next_back())
    }

    fn both_ends(&self) -> (usize, usize) {
        let messages = self.situation.messages;
        let before = self.situation.in_force.map_or(messages.len(), |in_force| {
            messages
                .iter()
                .position(|message| message.is_summary || message.seq >= in_force.from)
                .unwrap_or(messages.len())
        });
        let most = self.aim / u64::from(HEAD);
        let mut sum = 0;
        let fits = |message: &&Message| {
            sum += u64::from(size(message));
            self.scaled(sum) <= most
        };
        let head = messages.iter().take(before).take_while(fits).count();
        // A question without its answer is no beginning.
        let asked = |at: &usize| {
            messages
                .get(*at)
                .is_some_and(|message| message.role == Role::User)
        };
        let head = (0..=head.min(self.unread))
            .rev()
            .find(asked)
            .unwrap_or_default();
        let mut tails = (head..=self.unread).filter(|at| self.may_begin(*at));
        let tail = tails
            .clone()
            .find(|at| self.fits(head, *at, self.carried()));
        (
            head,
            tail.or_else(|| tails.next_back()).unwrap_or(self.unread),
        )
    }

    fn newest_that_fits(&self) -> usize {
        let mut tails = (0..=self.unread).filter(|at| self.may_begin(*at));
        tails
            .find(|at| self.fits(0, *at, self.carried()))
            .unwrap_or(self.unread)
    }

    /// Where a stretch may end that takes what no model has answered too, for what stays to fit
    /// beside a substitute of this size; everything but the newest input where that is too much.
    /// `None` means that nothing may go beyond what the strategies take: where a summary is in
    /// force, which they carry over whole, it may be all of it that is too large.
    fn unanswered(&self, substitute: u64) -> Option<usize> {
        let messages = self.situation.messages;
        let has_summary = messages.iter().any(|message| message.is_summary);
        self.boundary(if has_summary { 0 } else { self.unread }, substitute)
    }

    /// The first boundary after `begin` at which what stays fits beside a substitute of this size;
    /// the last one where none does. `None`: nothing after `begin` may go.
    fn boundary(&self, begin: usize, substitute: u64) -> Option<usize> {
        let messages = self.situation.messages;
        let open = messages.last().is_some_and(|last| !calls(last).is_empty());
        let end = messages.len() - usize::from(open);
        let goes = |at: &usize| !self.stays[*at] && !messages[*at].is_summary;
        let first = (begin..end).find(goes)?;
        let mut tails = (first + 1..=end).filter(|at| self.is_safe(*at));
        let all = tails.clone().next_back();
        tails.find(|at| self.fits(0, *at, substitute)).or(all)
    }

    /// Lets pinned messages go, the largest first: as few as let the rest fit beside a substitute of
    /// this size, or all of them.
    fn unpin(&mut self, substitute: u64) {
        let messages = self.situation.messages;
        let mut pinned: Vec<&Message> = messages.iter().filter(|it| it.pinned).collect();
        pinned.sort_by_key(|message| Reverse(size(message)));
        // The more go, the less stays: the number is found by halving.
        let (mut few, mut enough) = (0, pinned.len());
        while few < enough {
            let half = usize::midpoint(few, enough);
            self.let_go(&pinned[..half]);
            if self.fits(0, messages.len(), substitute) {
                enough = half;
            } else {
                few = half + 1;
            }
        }
        self.let_go(&pinned[..enough]);
    }

    /// Takes these messages for not pinned.
    fn let_go(&mut self, gone: &[&Message]) {
        let messages = self.situation.messages;
        let gone: BTreeSet<Seq> = gone.iter().map(|message| message.seq).collect();
        let is_pinned = |it: &Message| it.pinned && !gone.contains(&it.seq);
        self.stays = staying(messages, &self.turns, is_pinned);
        self.movable = movable(messages, &self.stays);
    }

    fn plan(&self, way: Way, head: usize, tail: usize) -> Option<Plan> {
        let Situation {
            messages, in_force, ..
        } = *self.situation;
        let hidden: Vec<usize> = (head..tail).filter(|at| !self.stays[*at]).collect();
        let new = hidden
            .iter()
            .map(|at| &messages[*at])
            .filter(|message| !message.is_summary);
        let first = new.clone().next()?.seq;
        let last = new.clone().next_back()?.seq;
        let from = in_force.map_or(first, |in_force| in_force.from.min(first));
        let to = in_force.map_or(last, |in_force| in_force.to.max(last));
        let hides_pinned =
            way.takes_pinned() || in_force.is_some_and(|in_force| in_force.hides_pinned);
        // Messages that an earlier summary left out would be hidden with the stretch, and pinned ones
        // if the compaction hides any.
        let inside = |message: &Message| {
            (hides_pinned || !message.pinned)
                && !message.is_summary
                && (from..=to).contains(&message.seq)
        };
        let kept = messages
            .iter()
            .enumerate()
            .filter(|(at, message)| hidden.binary_search(at).is_err() && inside(message));
        // What the summary in force stands for is covered: it goes too, wherever it stands.
        let summary = messages.iter().position(|message| message.is_summary);
        let mut all = hidden.clone();
        all.extend(summary.filter(|at| !hidden.contains(at)));
        all.sort_unstable();
        let stands_for = in_force.map_or(0, |in_force| in_force.messages);
        Some(Plan {
            way,
            from,
            to,
            kept: kept.map(|(_, message)| message.seq).collect(),
            hides_pinned,
            stands_for: stands_for.saturating_add(u32::try_from(new.count()).unwrap_or(u32::MAX)),
            carries: way.substitute() == Substitute::InForce
                && in_force.is_some_and(|in_force| in_force.summary.is_some()),
            hidden: all,
        })
    }
}

/// From which message on the model has not read what there is: a call goes with its results, and
/// also one that has none yet.
fn unread(messages: &[Message]) -> usize {
    let Some(answer) = messages
        .iter()
        .rposition(|message| message.role == Role::Assistant)
    else {
        return 0;
    };
    let open = answer + 1 == messages.len() && !calls(&messages[answer]).is_empty();
    let results = messages
        .get(answer + 1)
        .is_some_and(|message| message.role == Role::Tool);
    if open || results { answer } else { answer + 1 }
}

/// The size of what may go, up to each position.
fn movable(messages: &[Message], stays: &[bool]) -> Vec<u64> {
    let mut movable = vec![0];
    let mut sum = 0;
    for (message, stays) in messages.iter().zip(stays) {
        sum += if *stays { 0 } else { u64::from(size(message)) };
        movable.push(sum);
    }
    movable
}

/// What stays wherever a boundary lies: what is pinned with what belongs to it, the newest words of
/// a user, and the request of the newest turn.
fn staying(
    messages: &[Message],
    turns: &[usize],
    is_pinned: impl Fn(&Message) -> bool,
) -> Vec<bool> {
    let spoken = |message: &Message| message.role == Role::User && !message.is_summary;
    let newest = turns.last();
    let words = messages.iter().rposition(spoken);
    let request = messages
        .iter()
        .zip(turns)
        .position(|(message, turn)| spoken(message) && Some(turn) == newest);
    let of_turn = |at: &usize| Some(*at) == words || Some(*at) == request;
    let pinned = |at: usize| messages.get(at).is_some_and(&is_pinned);
    let is_results = |at: usize| {
        messages
            .get(at)
            .is_some_and(|message| message.role == Role::Tool)
    };
    let bound = |at: usize| {
        is_results(at) && at > 0 && pinned(at - 1) || is_results(at + 1) && pinned(at + 1)
    };
    (0..messages.len())
        .map(|at| pinned(at) || of_turn(&at) || bound(at))
        .collect()
}

fn calls(message: &Message) -> Vec<&str> {
    let parts = message.parts.iter();
    parts
        .filter_map(|stored| match &stored.part.content {
            Content::ToolCall(call) => Some(call.name.as_str()),
            Content::ToolResult(_)
            | Content::Text(_)
            | Content::Reasoning { .. }
            | Content::Refusal(_)
            | Content::Media(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => None,
        })
        .collect()
}

/// The tools that messages call, each once, in order of their names.
fn tools<'a>(messages: impl Iterator<Item = &'a Message>) -> Vec<String> {
    let names: BTreeSet<&str> = messages.flat_map(calls).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// The summary in force.
fn in_force<'a>(situation: &Situation<'a>) -> Option<&'a str> {
    let in_force = situation.in_force?;
    in_force.summary.as_deref()
}

/// What a message costs in a prompt.
fn size(message: &Message) -> u32 {
    prune::size(message)
}

/// The size of the prompt as it is estimated.
fn estimated(situation: &Situation<'_>) -> u64 {
    let messages = situation
        .messages
        .iter()
        .map(|message| u64::from(size(message)));
    (u64::from(situation.non_transcript_tokens) + messages.sum::<u64>()).max(1)
}

/// An estimate, corrected by what is known of the whole prompt: `size`, estimated at `whole`.
fn scaled(estimate: u64, size: u32, whole: u64) -> u32 {
    u32::try_from(u128::from(estimate) * u128::from(size) / u128::from(whole)).unwrap_or(u32::MAX)
}
