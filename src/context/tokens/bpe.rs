//! Byte-pair encoding in linear time, from nothing but the list of a vocabulary's tokens.
//!
//! The list is a twentieth of the size of ready-made automata, and making the tables from it takes a tenth of
//! a second. Encoding follows the observation of the crate `bpe` (github/rust-gems): two tokens may
//! stand side by side exactly if encoding them together gives them back, so that the encoding is
//! found from left to right, by the longest token that fits and a step back where none does.

use std::{collections::HashMap, hash::BuildHasherDefault};

use super::{hash::Mix, trie::Trie};

/// One vocabulary.
pub(super) struct Bpe {
    trie: Trie,
    /// By rank.
    tokens: Vec<Token>,
    /// What a pair of tokens is merged to.
    merges: HashMap<(u32, u32), u32, BuildHasherDefault<Mix>>,
}

/// What encoding needs to know of a token.
#[derive(Debug, Clone, Copy)]
struct Token {
    length: u32,
    /// The longest other token that it begins with.
    prefix: Option<u32>,
    /// The two that it is merged from. A single byte has none.
    parts: Option<(u32, u32)>,
}

impl Bpe {
    /// The vocabulary of these tokens, in the order of their ranks.
    pub(super) fn new(tokens: &[&[u8]]) -> Self {
        let (trie, prefixes) = Trie::new(tokens);
        let token = |(bytes, prefix): (&&[u8], Option<u32>)| Token {
            length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            prefix,
            parts: None,
        };
        let mut bpe = Self {
            trie,
            tokens: tokens.iter().zip(prefixes).map(token).collect(),
            merges: HashMap::with_capacity_and_hasher(tokens.len(), BuildHasherDefault::default()),
        };
        for (bytes, rank) in tokens.iter().zip(0..) {
            let parts = bpe.parts(bytes, rank);
            bpe.tokens[rank as usize].parts = parts;
            bpe.merges.extend(parts.map(|parts| (parts, rank)));
        }
        bpe
    }

    /// The two tokens of lower rank that a token is merged from: those that may stand side by side
    /// without it.
    fn parts(&self, bytes: &[u8], rank: u32) -> Option<(u32, u32)> {
        self.prefixes(rank).skip(1).find_map(|left| {
            if left >= rank {
                return None;
            }
            let right = self.trie.exactly(&bytes[self.length(left)..])?;
            (right < rank && self.may_follow(left, right)).then_some((left, right))
        })
    }

    /// How many tokens a text has.
    pub(super) fn count(&self, text: &[u8]) -> usize {
        let Some(longest) = self.trie.longest(text) else {
            return 0;
        };
        if self.length(longest) == text.len() {
            return 1;
        }
        self.encode(text, longest)
    }

    /// How many tokens a text has, without the short cut for a text that is one.
    #[cfg(test)]
    pub(super) fn encoded(&self, text: &[u8]) -> usize {
        self.trie
            .longest(text)
            .map_or(0, |longest| self.encode(text, longest))
    }

    /// How many tokens a text has that begins with the longest token `longest`. Each round goes on by a token, or
    /// finds one more place from which there is no way on.
    fn encode(&self, text: &[u8], longest: u32) -> usize {
        let mut dead_ends = Places::new(text.len());
        let mut tokens: Vec<u32> = Vec::with_capacity(text.len() / 3);
        let mut at = 0;
        let mut candidate = Some(longest);
        while let Some(first) = candidate {
            let last = tokens.last().copied();
            let fits = |token: &u32| {
                !dead_ends.contains(at + self.length(*token))
                    && last.is_none_or(|last| self.may_follow(last, *token))
            };
            if let Some(token) = self.prefixes(first).find(fits) {
                tokens.push(token);
                at += self.length(token);
                candidate = self.trie.longest(&text[at..]);
            } else {
                dead_ends.insert(at);
                tokens.pop();
                at -= last.map_or(0, |last| self.length(last));
                candidate = last;
            }
        }
        tokens.len()
    }

    /// A token, and the shorter ones that it begins with, the longest first.
    fn prefixes(&self, token: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(token), |token| self.tokens[*token as usize].prefix)
    }

    fn length(&self, token: u32) -> usize {
        self.tokens[token as usize].length as usize
    }

    /// Whether two tokens stay apart where they meet. They do not if some merge over the border has
    /// a lower rank than the merges that made what stands there, which are undone from the last.
    fn may_follow(&self, mut left: u32, mut right: u32) -> bool {
        let mut undone = u32::MAX;
        loop {
            if self
                .merges
                .get(&(left, right))
                .is_some_and(|merged| *merged < undone)
            {
                return false;
            }
            let end_of_left = || self.parts_of(left).map(|(_, end)| (end, right, left));
            // Of two merges of the same rank, the left one was made first.
            let begin_of_right = || {
                let (begin, _) = self.parts_of(right)?;
                Some((left, begin, right.saturating_add(1)))
            };
            let before = if left > right {
                end_of_left().or_else(begin_of_right)
            } else {
                begin_of_right().or_else(end_of_left)
            };
            let Some(before) = before else {
                return true;
            };
            (left, right, undone) = before;
        }
    }

    fn parts_of(&self, token: u32) -> Option<(u32, u32)> {
        self.tokens[token as usize].parts
    }
}

/// A set of places in a text.
struct Places(Vec<u64>);

impl Places {
    fn new(most: usize) -> Self {
        Self(vec![0; most / 64 + 1])
    }

    fn contains(&self, place: usize) -> bool {
        self.0[place / 64] & (1 << (place % 64)) != 0
    }

    fn insert(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }
}
