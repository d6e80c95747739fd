//! Removes secrets from the texts that an MCP server returns, because a server may repeat what contextd sent to it.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::oauth::Tokens;

/// Maximum characters of a server's error that are passed on.
const ERROR_CHARS: usize = 500;

/// Minimum length of a secret that is removed: removing shorter ones would change ordinary text.
const MIN_SECRET_BYTES: usize = 8;

/// The secrets of one server.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    values: Vec<SecretString>,
    /// Tokens that change over time.
    tokens: Option<Arc<Tokens>>,
}

impl Secrets {
    /// Adds the values in a header to the secrets. Short ones, such as `Bearer`, are skipped.
    pub(super) fn add(&mut self, value: &SecretString) {
        let words = value.expose_secret().split_whitespace();
        let words = words.filter(|word| word.len() >= MIN_SECRET_BYTES);
        self.values.extend(words.map(SecretString::from));
    }

    /// Also removes tokens from this source.
    pub(super) fn add_token_source(&mut self, tokens: Arc<Tokens>) {
        self.tokens = Some(tokens);
    }

    /// Replaces all secrets in a text.
    pub(super) fn redacted(&self, text: String) -> String {
        let hide = |text: String, secret: &SecretString| text.replace(secret.expose_secret(), "***");
        let text = self.values.iter().fold(text, hide);
        let tokens = self.tokens.as_ref().map(|tokens| tokens.recent());
        tokens.unwrap_or_default().iter().fold(text, hide)
    }

    /// The beginning of a server's error, without secrets.
    pub(super) fn redacted_error(&self, error: &str) -> String {
        // Remove secrets first: truncation could leave a part of one.
        let scrubbed = self.redacted(error.to_owned());
        scrubbed.chars().take(ERROR_CHARS).collect()
    }
}
