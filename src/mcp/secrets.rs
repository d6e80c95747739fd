//! What no text of a server may hold that is passed on: a server may repeat what it was sent.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::oauth::Tokens;

/// Characters of a server's error that are passed on.
const ERROR_CHARS: usize = 500;

/// Shortest word that is hidden: a shorter one would hide ordinary text.
const LEAST: usize = 8;

/// The secrets of one server.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    words: Vec<SecretString>,
    /// Tokens that change.
    tokens: Option<Arc<Tokens>>,
}

impl Secrets {
    /// Hides the words of a header from now on; `Bearer` is none of them.
    pub(super) fn add(&mut self, value: &SecretString) {
        let words = value.expose_secret().split_whitespace();
        let words = words.filter(|word| word.len() >= LEAST);
        self.words.extend(words.map(SecretString::from));
    }

    /// Hides the tokens that are had from there too.
    pub(super) fn follow(&mut self, tokens: Arc<Tokens>) {
        self.tokens = Some(tokens);
    }

    /// A text without them.
    pub(super) fn scrubbed(&self, text: String) -> String {
        let hide =
            |text: String, secret: &SecretString| text.replace(secret.expose_secret(), "***");
        let text = self.words.iter().fold(text, hide);
        let tokens = self.tokens.as_ref().map(|tokens| tokens.recent());
        tokens.unwrap_or_default().iter().fold(text, hide)
    }

    /// The beginning of a server's error.
    pub(super) fn shown(&self, error: &str) -> String {
        // The other way round, a part of a secret could be left at the cut.
        let scrubbed = self.scrubbed(error.to_owned());
        scrubbed.chars().take(ERROR_CHARS).collect()
    }
}
