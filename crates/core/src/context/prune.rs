//! Chooses the old tool results to prune, from the newest to the oldest; the newest are protected.

use std::ops::Range;

use super::estimate;
use crate::model::{
    CachePrices, CallId, Message, MessageId, Role,
    config::{PruneMode, PrunePolicy},
    message::{PRUNED_TEXT, StoredPart},
};

/// Maximum number of results pruned at once, because one event lists them all. The rest is pruned the next time.
const MAX_OUTPUTS: usize = 5_000;

/// Number of calls over which the savings of a prune are counted: a turn with tools makes about ten. With the most
/// common prices (a tenth for cached tokens, the full price for uncached ones) a prune then pays if it saves about as
/// many tokens as are billed again.
const PAYBACK_CALLS: u64 = 10;

/// A result that is to be pruned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The message that contains it.
    pub message: MessageId,
    /// Index of the part in that message.
    pub position: usize,
    /// The call that it answers.
    pub call: CallId,
    /// Name of the tool.
    pub tool: String,
    pub tokens: u32,
}

/// The result of choosing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruning {
    /// The results, oldest first.
    pub outputs: Vec<Output>,
    /// Tokens saved: the size of the results less that of their placeholders.
    pub saved: u32,
    /// Tokens of the messages before the first pruned result.
    pub before: u32,
}

impl Pruning {
    /// Names of the tools whose results are pruned, sorted and without duplicates.
    pub fn tools(&self) -> Vec<String> {
        let mut tools: Vec<String> = self.outputs.iter().map(|output| output.tool.clone()).collect();
        tools.sort();
        tools.dedup();
        tools
    }

    /// Cached tokens that the provider bills again: those after the first pruned result that are not pruned themselves.
    /// `non_transcript_tokens` are the tokens before the messages.
    pub fn rebilled(&self, cached: u32, non_transcript_tokens: u32) -> u32 {
        cached.saturating_sub(non_transcript_tokens).saturating_sub(self.before).saturating_sub(self.saved)
    }
}

/// Tokens of the placeholder of a pruned result.
pub fn placeholder_tokens() -> u32 {
    estimate::text(PRUNED_TEXT)
}

/// Chooses the results to prune (feature row D17). Returns `None` if less than the policy's minimum would be saved.
///
/// The newest turns are skipped, then the newest results up to the protected tokens; all older results are pruned. If
/// the newest turns alone contain more tool output than the protected tokens, such as one turn of hundreds of steps,
/// only the tokens protect. Messages before a summary are ignored, and results that are already pruned count as
/// nothing. Results that the model has not responded to yet are never pruned, because it has not read them.
pub fn choose(messages: &[Message], policy: &PrunePolicy) -> Option<Pruning> {
    let begin = messages.iter().rposition(|message| message.is_summary).map_or(0, |summary| summary + 1);
    let answered = messages.iter().rposition(|message| message.role == Role::Assistant).unwrap_or(0);
    choose_within(messages, policy, begin..answered)
}

/// Chooses without protection of tokens or turns, for a session without a running turn: every result, also before a
/// summary, and also if the last turn ended before the model responded to it.
pub fn choose_all(messages: &[Message], policy: &PrunePolicy) -> Option<Pruning> {
    choose_within(messages, policy, 0..messages.len())
}

/// Chooses among the results of a range of messages; later results protect older ones.
fn choose_within(
    messages: &[Message],
    policy: &PrunePolicy,
    Range { start: begin, end: answered }: Range<usize>,
) -> Option<Pruning> {
    let turns = turns(messages);
    let newest = turns.last().copied().unwrap_or_default();
    let protected = |turn: usize| turn + policy.protect_turns as usize > newest;
    let clearable: Vec<(usize, Output)> =
        (begin..messages.len()).flat_map(|at| outputs(&messages[at], policy).map(move |output| (at, output))).collect();
    let sum = |outputs: &mut dyn Iterator<Item = &(usize, Output)>| {
        outputs.map(|(_, output)| u64::from(output.tokens)).sum::<u64>()
    };
    let in_newest = sum(&mut clearable.iter().filter(|(at, _)| protected(turns[*at])));
    let turns_yield = in_newest > u64::from(policy.protect_tokens);
    let mut kept = 0_u64;
    let mut chosen: Vec<(usize, Output)> = Vec::new();
    for (at, output) in clearable.into_iter().rev() {
        if protected(turns[at]) && !turns_yield {
            continue;
        }
        kept += u64::from(output.tokens);
        if kept > u64::from(policy.protect_tokens) && at < answered && output.tokens > placeholder_tokens() {
            chosen.push((at, output));
        }
    }
    chosen.reverse();
    chosen.truncate(MAX_OUTPUTS);
    let saved = sum(&mut chosen.iter()) - u64::from(placeholder_tokens()) * chosen.len() as u64;
    let first = chosen.first().map(|(at, _)| *at)?;
    let before = messages[..first].iter().map(size).fold(0, u32::saturating_add);
    let outputs = chosen.into_iter().map(|(_, output)| output).collect();
    let saved = u32::try_from(saved).unwrap_or(u32::MAX);
    (saved >= policy.minimum_tokens).then_some(Pruning { outputs, saved, before })
}

/// Whether to prune now. `rebilled`: tokens that the provider would bill again; `prices`: its prices, if known;
/// `overflows`: the context is too large without a prune.
pub fn is_due(mode: PruneMode, pruning: &Pruning, rebilled: u32, prices: Option<CachePrices>, overflows: bool) -> bool {
    match mode {
        PruneMode::Always => true,
        PruneMode::WhenItPays => overflows || pays(pruning.saved, rebilled, prices),
        PruneMode::OnOverflow => overflows,
    }
}

/// Whether the cost of reading the pruned tokens from the cache, over the coming calls, exceeds the cost of writing the
/// rebilled ones to it again. If prices are not known, the numbers of tokens are compared.
fn pays(saved: u32, rebilled: u32, prices: Option<CachePrices>) -> bool {
    let Some(CachePrices { read, write }) = prices.filter(|_| rebilled > 0) else {
        return saved > rebilled;
    };
    let again = u64::from(write.saturating_sub(read));
    PAYBACK_CALLS * u64::from(saved) * u64::from(read) > u64::from(rebilled) * again
}

/// The turn number of each message, from 0. Appended messages have no turn: there, each user message starts one.
pub(super) fn turns(messages: &[Message]) -> Vec<usize> {
    let mut turn = 0;
    let mut before: Option<&Message> = None;
    let number = |message| {
        if before.is_some_and(|before| begins_turn(before, message)) {
            turn += 1;
        }
        before = Some(message);
        turn
    };
    messages.iter().map(number).collect()
}

fn begins_turn(before: &Message, message: &Message) -> bool {
    before.turn != message.turn || (message.turn.is_none() && message.role == Role::User)
}

/// The results of a message that may be pruned.
fn outputs<'a>(message: &'a Message, policy: &'a PrunePolicy) -> impl Iterator<Item = Output> + 'a {
    let parts = message.parts.iter().enumerate().filter(|_| !message.pinned);
    parts.filter_map(|(position, StoredPart { part, size, estimator: _, pruned })| {
        let result = part.content.as_result().filter(|result| !policy.protected_tools.contains(&result.name))?;
        pruned.is_none().then(|| Output {
            message: message.id.clone(),
            position,
            call: result.call.clone(),
            tool: result.name.clone(),
            tokens: size.tokens,
        })
    })
}

/// Size of a message in a prompt, in tokens.
pub fn size(message: &Message) -> u32 {
    message.parts.iter().map(|part| part.size.tokens).fold(message.overhead, u32::saturating_add)
}

#[cfg(test)]
mod tests;
