//! Secret settings. They are read as strings, and are hidden when they are written.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;

const HIDDEN: &str = "***";

/// A connection URL with its password and its query hidden. Everything after the scheme is hidden if it is unclear
/// where the password is, and the whole text if it has no scheme.
pub fn redact_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return HIDDEN.to_owned();
    };
    match rest.rsplit_once('@') {
        Some((credentials, host)) => {
            let user = credentials.split_once(':').map(|(user, _)| format!("{user}:{HIDDEN}"));
            let user = user.unwrap_or_else(|| credentials.to_owned());
            format!("{scheme}://{}@{}", without_query(&user), without_query(host))
        }
        None if looks_like_a_host(rest) => format!("{scheme}://{}", without_query(rest)),
        None => format!("{scheme}://{HIDDEN}"),
    }
}

/// A URL that may contain a password. The password is hidden when the URL is written.
#[derive(Clone)]
pub struct SecretUrl(SecretString);

impl SecretUrl {
    /// The URL with its password.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<&str> for SecretUrl {
    fn from(url: &str) -> Self {
        Self(SecretString::from(url))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&redact_url(self.expose()))
    }
}

/// Writes the URL without its password.
pub(super) fn serialize_url<S: Serializer>(url: &SecretUrl, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&redact_url(url.expose()))
}

/// Reads the URL, including its password.
pub(super) fn deserialize_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretUrl, D::Error> {
    deserialize(deserializer).map(SecretUrl)
}

/// Writes only that a secret is set.
pub(super) fn serialize<S: Serializer>(_: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(HIDDEN)
}

/// Reads a secret.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    // The error of serde would quote the value.
    let text = String::deserialize(deserializer).map_err(|_| D::Error::custom("expected a string"))?;
    Ok(SecretString::from(text))
}

fn without_query(rest: &str) -> String {
    match rest.split_once('?') {
        Some((before, _)) => format!("{before}?{HIDDEN}"),
        None => rest.to_owned(),
    }
}

/// Whether the URL continues with a host such as `host`, `host:5432` or `[::1]:5432` and a path, and not with a
/// `user:password` that lacks its `@`.
fn looks_like_a_host(rest: &str) -> bool {
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let after_host = authority.rsplit_once(']').map_or(authority, |(_, port)| port);
    after_host.rsplit_once(':').is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Writes only the names of the secrets.
pub(super) fn serialize_map<S: Serializer>(
    secrets: &BTreeMap<String, SecretString>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(secrets.keys().map(|name| (name, HIDDEN)))
}

/// Reads secrets by name.
pub(super) fn deserialize_map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, SecretString>, D::Error> {
    // The error of serde would quote the value.
    let texts = BTreeMap::<String, String>::deserialize(deserializer);
    let texts = texts.map_err(|_| D::Error::custom("expected a table of strings"))?;
    Ok(texts.into_iter().map(|(name, text)| (name, SecretString::from(text))).collect())
}
