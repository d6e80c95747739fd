//! What a script sees of a prompt: the facts that its steps ask for and its templates insert.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Message, Prompt, Role};

/// Words of which the first that the user mentioned is picked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pick {
    /// The words.
    pub(super) from: Vec<String>,
    /// When the user mentioned none.
    pub(super) default: String,
}

/// A prompt with what a script asks of it.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    /// The prompt.
    pub(super) prompt: &'a Prompt,
    /// What the user said last.
    pub(super) user: String,
    /// Assistant messages since then.
    pub(super) call: usize,
    /// Tools that have a result at the very end of the conversation.
    pub(super) answered: BTreeSet<&'a str>,
    picks: &'a BTreeMap<String, Pick>,
}

impl<'a> Scene<'a> {
    /// Looks at the prompt.
    pub(super) fn new(prompt: &'a Prompt, picks: &'a BTreeMap<String, Pick>) -> Self {
        let messages = prompt.transcript.messages();
        let said = messages
            .iter()
            .rposition(|message| message.role == Role::User);
        let since = said.map_or(messages, |at| &messages[at..]);
        Self {
            prompt,
            user: said
                .map(|at| messages[at].texts().collect::<Vec<_>>().join("\n"))
                .unwrap_or_default(),
            call: since
                .iter()
                .filter(|message| message.role == Role::Assistant)
                .count(),
            answered: messages
                .iter()
                .rev()
                .take_while(|message| message.role == Role::Tool)
                .flat_map(Message::results)
                .map(|result| result.name.as_str())
                .collect(),
            picks,
        }
    }

    /// Whether the model was sent the tool.
    pub(super) fn offers(&self, tool: &str) -> bool {
        self.prompt.tools.iter().any(|offered| offered.name == tool)
    }

    /// Whether the user's last message has a medium of such a type.
    pub(super) fn shows(&self, pattern: &str) -> bool {
        let said = self
            .prompt
            .transcript
            .messages()
            .iter()
            .rfind(|message| message.role == Role::User);
        said.is_some_and(|message| message.media().any(|media| media.is(pattern)))
    }

    /// The newest result of the tool; empty when there is none.
    pub(super) fn result_of(&self, tool: &str) -> String {
        let mut newest = self
            .prompt
            .transcript
            .messages()
            .iter()
            .rev()
            .flat_map(|message| message.results().rev());
        newest
            .find(|result| result.name == tool)
            .map(|result| result.texts().collect::<Vec<_>>().join("\n"))
            .unwrap_or_default()
    }

    /// The word of that pick which the user mentioned first, else its default.
    pub(super) fn picked(&self, pick: &str) -> &'a str {
        let Some(pick) = self.picks.get(pick) else {
            return "";
        };
        let user = self.user.to_lowercase();
        let mentioned = pick
            .from
            .iter()
            .filter_map(|word| Some((mention(&user, &word.to_lowercase())?, word)));
        mentioned
            .min_by_key(|(at, _)| *at)
            .map_or(&pick.default, |(_, word)| word)
    }
}

/// Where the word stands by itself in the text.
fn mention(text: &str, word: &str) -> Option<usize> {
    text.match_indices(word).map(|(at, _)| at).find(|&at| {
        let inside = |char: Option<char>| char.is_some_and(char::is_alphanumeric);
        !inside(text[..at].chars().next_back()) && !inside(text[at + word.len()..].chars().next())
    })
}
