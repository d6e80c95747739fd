//! Byte-pair encoding in linear time, based only on the list of a vocabulary's tokens.
//!
//! The list has a twentieth of the size of precomputed automata, and building the tables from it takes a tenth of a
//! second. The algorithm is that of the crate `bpe` (github/rust-gems): two tokens may be adjacent if and only if
//! encoding their concatenation results in the same two tokens. The encoding is therefore found from left to right,
//! taking the longest token that fits, and backtracking if none does.

use std::{collections::HashMap, hash::BuildHasherDefault};

use super::{hash::Mix, trie::Trie};

/// The tables of one vocabulary.
pub(super) struct Bpe {
    trie: Trie,
    /// By rank.
    tokens: Vec<Token>,
    /// The token that a pair of tokens is merged into.
    merges: HashMap<(u32, u32), u32, BuildHasherDefault<Mix>>,
}

/// The properties of a token that encoding needs.
#[derive(Debug, Clone, Copy)]
struct Token {
    length: u32,
    /// The longest other token that is a prefix of it.
    prefix: Option<u32>,
    /// The two tokens that it is merged from. `None` for a single byte.
    parts: Option<(u32, u32)>,
}

impl Bpe {
    /// Builds the tables for these tokens, given in the order of their ranks.
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

    /// The two tokens of lower rank that a token is merged from: those that may be adjacent without it.
    fn parts(&self, bytes: &[u8], rank: u32) -> Option<(u32, u32)> {
        self.prefixes(rank).skip(1).find_map(|left| {
            if left >= rank {
                return None;
            }
            let right = self.trie.exactly(&bytes[self.length(left)..])?;
            (right < rank && self.may_follow(left, right)).then_some((left, right))
        })
    }

    /// The number of tokens of a text.
    pub(super) fn count(&self, text: &[u8]) -> usize {
        let Some(longest) = self.trie.longest(text) else {
            return 0;
        };
        if self.length(longest) == text.len() {
            return 1;
        }
        self.encode(text, longest)
    }

    /// The number of tokens of a text, without the shortcut for a text that is a single token.
    #[cfg(test)]
    pub(super) fn encoded(&self, text: &[u8]) -> usize {
        self.trie.longest(text).map_or(0, |longest| self.encode(text, longest))
    }

    /// The number of tokens of a text; `longest` is the longest token that it begins with. Each iteration advances by a
    /// token or records another position from which the text cannot be encoded, so their number is bounded.
    fn encode(&self, text: &[u8], longest: u32) -> usize {
        let mut dead_ends = Places::new(text.len());
        let mut tokens: Vec<u32> = Vec::with_capacity(text.len() / 3);
        let mut at = 0;
        let mut candidate = Some(longest);
        while let Some(first) = candidate {
            let last = tokens.last().copied();
            let fits = |token: &u32| {
                !dead_ends.contains(at + self.length(*token)) && last.is_none_or(|last| self.may_follow(last, *token))
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

    /// The token and all tokens that are prefixes of it, longest first.
    fn prefixes(&self, token: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(token), |token| self.tokens[*token as usize].prefix)
    }

    fn length(&self, token: u32) -> usize {
        self.tokens[token as usize].length as usize
    }

    /// Whether two tokens may be adjacent. They may not if a merge across the boundary has a lower rank than one of the
    /// merges that created the tokens. The merges are undone from the last one.
    fn may_follow(&self, mut left: u32, mut right: u32) -> bool {
        let mut undone = u32::MAX;
        loop {
            if self.merges.get(&(left, right)).is_some_and(|merged| *merged < undone) {
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

/// A set of positions in a text.
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
