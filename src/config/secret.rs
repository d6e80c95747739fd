//! A secret is read as text and never written.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

const HIDDEN: &str = "***";

/// A connection URL without its password and its query; all of it is hidden when in doubt about
/// where the password is.
pub fn redact_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return HIDDEN.to_owned();
    };
    match rest.rsplit_once('@') {
        Some((credentials, host)) => {
            let user = credentials
                .split_once(':')
                .map(|(user, _)| format!("{user}:{HIDDEN}"));
            let user = user.unwrap_or_else(|| credentials.to_owned());
            format!(
                "{scheme}://{}@{}",
                without_query(&user),
                without_query(host)
            )
        }
        None if looks_like_a_host(rest) => format!("{scheme}://{}", without_query(rest)),
        None => format!("{scheme}://{HIDDEN}"),
    }
}

pub(super) fn serialize_url<S: Serializer>(
    url: &Option<SecretString>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match url {
        Some(url) => serializer.serialize_some(&redact_url(url.expose_secret())),
        None => serializer.serialize_none(),
    }
}

/// That there is a secret, and nothing of it.
pub(super) fn serialize<S: Serializer>(
    secret: &Option<SecretString>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(|_| HIDDEN).serialize(serializer)
}

/// The text of a secret.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SecretString>, D::Error> {
    // The usual message would quote the value.
    let text =
        String::deserialize(deserializer).map_err(|_| D::Error::custom("expected a string"))?;
    Ok(Some(SecretString::from(text)))
}

fn without_query(rest: &str) -> String {
    match rest.split_once('?') {
        Some((before, _)) => format!("{before}?{HIDDEN}"),
        None => rest.to_owned(),
    }
}

/// `host`, `host:5432` or `[::1]:5432`, then a path: no `user:password` whose `@` was forgotten.
fn looks_like_a_host(rest: &str) -> bool {
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let after_host = authority
        .rsplit_once(']')
        .map_or(authority, |(_, port)| port);
    after_host
        .rsplit_once(':')
        .is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Secrets by name.
pub(super) mod map {
    use super::{
        BTreeMap, Deserialize, Deserializer, Error as _, HIDDEN, SecretString, Serializer,
    };

    /// The names of secrets.
    pub(in crate::config) fn serialize<S: Serializer>(
        secrets: &BTreeMap<String, SecretString>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(secrets.keys().map(|name| (name, HIDDEN)))
    }

    /// Secrets by name.
    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, SecretString>, D::Error> {
        // The usual message would quote the value.
        let texts = BTreeMap::<String, String>::deserialize(deserializer);
        let texts = texts.map_err(|_| D::Error::custom("expected strings by name"))?;
        Ok(texts
            .into_iter()
            .map(|(name, text)| (name, SecretString::from(text)))
            .collect())
    }
}
