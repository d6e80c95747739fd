//! The facts about a prompt that the conditions of steps use and templates insert.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::model::{Message, Prompt, Role};

/// A list of words, of which the one that the user mentioned first is picked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pick {
    pub(super) from: Vec<String>,
    /// Used if the user mentioned none of them.
    pub(super) default: String,
}

/// A prompt and the facts derived from it.
#[derive(Debug)]
pub(super) struct ScriptContext<'a> {
    pub(super) prompt: &'a Prompt,
    /// The text of the last user message.
    pub(super) user_text: String,
    /// Number of assistant messages since then.
    pub(super) call: usize,
    /// Tools with a result at the end of the conversation.
    pub(super) tools_with_results: BTreeSet<&'a str>,
    picks: &'a BTreeMap<String, Pick>,
}

impl<'a> ScriptContext<'a> {
    /// Derives the facts from a prompt.
    pub(super) fn new(prompt: &'a Prompt, picks: &'a BTreeMap<String, Pick>) -> Self {
        let messages = prompt.transcript.messages();
        let said = messages.iter().rposition(|it| it.role == Role::User);
        let user_text = said.map(|at| joined(messages[at].texts()));
        let since = said.map_or(messages, |at| &messages[at..]);
        let answers = since.iter().filter(|it| it.role == Role::Assistant);
        let newest = messages.iter().rev().take_while(|it| it.role == Role::Tool);
        let results = newest.flat_map(Message::results);
        Self {
            prompt,
            user_text: user_text.unwrap_or_default(),
            call: answers.count(),
            tools_with_results: results.map(|result| result.name.as_str()).collect(),
            picks,
        }
    }

    /// Whether the prompt has this tool.
    pub(super) fn offers(&self, tool: &str) -> bool {
        self.prompt.tools.iter().any(|offered| offered.name == tool)
    }

    /// Whether the last user message has media of this type.
    pub(super) fn shows(&self, pattern: &str) -> bool {
        let messages = self.prompt.transcript.messages().iter();
        let said = messages.rev().find(|message| message.role == Role::User);
        said.is_some_and(|message| message.media().any(|media| media.is(pattern)))
    }

    /// The newest result of the tool. Empty if there is none.
    pub(super) fn result_of(&self, tool: &str) -> String {
        let messages = self.prompt.transcript.messages().iter().rev();
        let mut results = messages.flat_map(|message| message.results().rev());
        let newest = results.find(|result| result.name == tool);
        newest.map(|it| joined(it.texts())).unwrap_or_default()
    }

    /// The word of this pick that the user mentioned first, or its default.
    pub(super) fn picked(&self, pick: &str) -> &'a str {
        let Some(pick) = self.picks.get(pick) else {
            return "";
        };
        let user = self.user_text.to_lowercase();
        let mentioned = pick.from.iter().filter_map(|word| Some((mention(&user, &word.to_lowercase())?, word)));
        mentioned.min_by_key(|(at, _)| *at).map_or(&pick.default, |(_, word)| word)
    }
}

/// The texts as lines.
fn joined<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    texts.collect::<Vec<_>>().join("\n")
}

/// The position at which the text contains the word as a whole word.
fn mention(text: &str, word: &str) -> Option<usize> {
    text.match_indices(word).map(|(at, _)| at).find(|&at| {
        let inside = |char: Option<char>| char.is_some_and(char::is_alphanumeric);
        !inside(text[..at].chars().next_back()) && !inside(text[at + word.len()..].chars().next())
    })
}
