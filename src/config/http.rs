//! The settings that all model services over HTTP share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::model::Declared;

use super::check::Checks;
use super::environment::Environment;
use super::{duration, secret};

/// Headers that contextd writes itself.
const OWN_HEADERS: &[&str] = &["accept", "content-length", "content-type", "host"];

/// How a service is reached. These keys stand beside those of its kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpConfig {
    /// The key itself. Better is `api_key_env` or `api_key_file`.
    #[serde(with = "secret")]
    pub api_key: Option<SecretString>,
    /// The environment variable that holds the key.
    pub api_key_env: Option<String>,
    /// The file that holds the key.
    pub api_key_file: Option<PathBuf>,
    /// Further headers of every request. Their values are taken for secrets.
    #[serde(with = "secret::map")]
    pub headers: BTreeMap<String, SecretString>,
    /// How long making a connection may take.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// How long the first byte of an answer may take: the whole prompt is read before it.
    #[serde(with = "duration")]
    pub first_byte_timeout: Duration,
    /// How long an answer may be silent between two bytes.
    #[serde(with = "duration")]
    pub stall_timeout: Duration,
    /// Bytes of a request that the service takes: a larger one is not sent. Absent: the service
    /// says so itself.
    pub max_request_bytes: Option<u64>,
}

/// A key is not where the settings say.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The variable is not set.
    #[error("the environment variable {0} is not set")]
    Variable(String),
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is nothing in it.
    #[error("{} is empty", .0.display())]
    Empty(PathBuf),
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            api_key: None,
            api_key_env: None,
            api_key_file: None,
            headers: BTreeMap::new(),
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_mins(5),
            stall_timeout: Duration::from_mins(2),
            max_request_bytes: None,
        }
    }
}

impl HttpConfig {
    /// The key, from wherever the settings say. `None` means the service wants none.
    pub fn key(&self, environment: &Environment) -> Result<Option<SecretString>, KeyError> {
        if let Some(name) = &self.api_key_env {
            let key = environment
                .get(name)
                .ok_or_else(|| KeyError::Variable(name.clone()))?;
            return Ok(Some(SecretString::from(key.trim())));
        }
        let Some(path) = &self.api_key_file else {
            return Ok(self.api_key.clone());
        };
        let text = std::fs::read_to_string(path).map_err(|source| KeyError::File {
            path: path.clone(),
            source,
        })?;
        match text.trim() {
            "" => Err(KeyError::Empty(path.clone())),
            key => Ok(Some(SecretString::from(key))),
        }
    }

    /// Whether a key is configured, be it in the header of that name.
    fn has_key(&self, header: &str) -> bool {
        let in_header = |name: &String| name.eq_ignore_ascii_case(header);
        self.keys() > 0 || self.headers.keys().any(in_header)
    }

    fn keys(&self) -> usize {
        let keys = [
            self.api_key.is_some(),
            self.api_key_env.is_some(),
            self.api_key_file.is_some(),
        ];
        keys.iter().filter(|given| **given).count()
    }

    fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self {
            api_key,
            api_key_env: _,
            api_key_file: _,
            headers,
            connect_timeout,
            first_byte_timeout,
            stall_timeout,
            max_request_bytes,
        } = self;
        let key = |name: &str| format!("{prefix}.{name}");
        checks.require(self.keys() <= 1, &key("api_key"), || {
            "give the key once: api_key, api_key_env or api_key_file".to_owned()
        });
        let api_key = api_key.as_ref().map(ExposeSecret::expose_secret);
        checks.require(api_key.is_none_or(sendable), &key("api_key"), not_sendable);
        for (name, value) in headers {
            let key = key(&format!("headers.{name}"));
            let known = name.parse::<HeaderName>();
            let own = known
                .as_ref()
                .is_ok_and(|known| OWN_HEADERS.contains(&known.as_str()));
            checks.require(known.is_ok(), &key, || {
                "is not the name of a header".to_owned()
            });
            checks.require(!own, &key, || {
                "is a header that contextd writes itself".to_owned()
            });
            checks.require(sendable(value.expose_secret()), &key, not_sendable);
        }
        let waits = [
            ("connect_timeout", connect_timeout),
            ("first_byte_timeout", first_byte_timeout),
            ("stall_timeout", stall_timeout),
        ];
        for (name, wait) in waits {
            let bounds = Duration::from_millis(100)..=Duration::from_hours(1);
            checks.duration(&key(name), *wait, bounds);
        }
        if let Some(bytes) = max_request_bytes {
            checks.number(&key("max_request_bytes"), *bytes, 1_024..=1 << 40, "bytes");
        }
    }
}

/// The service of a kind itself, which wants a key.
pub(super) struct OfKind {
    /// Its address.
    pub(super) base_url: &'static str,
    /// The header that carries the key.
    pub(super) header: &'static str,
    /// The variable that usually holds it.
    pub(super) variable: &'static str,
}

/// Checks what every kind of service has: its address, how it is reached, and its key.
pub(super) fn check_service(
    checks: &mut Checks,
    prefix: &str,
    base_url: &str,
    http: &HttpConfig,
    of_kind: &OfKind,
) {
    let OfKind {
        base_url: own,
        header,
        variable,
    } = of_kind;
    check_url(checks, &format!("{prefix}.base_url"), base_url);
    http.check(checks, prefix);
    checks.require(
        base_url != *own || http.has_key(header),
        &format!("{prefix}.api_key_env"),
        || format!("{own} wants a key; name the variable that holds it, such as \"{variable}\""),
    );
}

/// Checks values that are sent in headers, by their keys.
pub(super) fn check_sendable(
    checks: &mut Checks,
    prefix: &str,
    values: [(&str, &Option<String>); 2],
) {
    for (name, value) in values {
        checks.require(
            value.as_deref().is_none_or(sendable),
            &format!("{prefix}.{name}"),
            not_sendable,
        );
    }
}

/// Checks what an operator says of models, by their names.
pub(super) fn check_models(checks: &mut Checks, prefix: &str, models: &BTreeMap<String, Declared>) {
    for (name, model) in models {
        check_model(checks, &format!("{prefix}.models.{name}"), model);
    }
}

/// Checks what an operator says of a model.
fn check_model(checks: &mut Checks, prefix: &str, model: &Declared) {
    let most = i32::MAX.unsigned_abs();
    let key = |name: &str| format!("{prefix}.{name}");
    checks.require(!prefix.ends_with("models."), prefix, || {
        "the name of a model must not be empty".to_owned()
    });
    if let Some(tokens) = model.context_window {
        checks.number(&key("context_window"), tokens, 1..=most, "tokens");
    }
    if let Some(tokens) = model.max_output {
        let most = model.context_window.unwrap_or(most);
        checks.number(&key("max_output"), tokens, 1..=most, "tokens");
    }
}

/// Checks the address of a service.
fn check_url(checks: &mut Checks, key: &str, url: &str) {
    if let Err(message) = usable(url) {
        checks.fail(key.to_owned(), message);
    }
}

/// The address is not quoted when it may hold a secret.
fn usable(url: &str) -> Result<(), String> {
    if url.contains(['@', '?', '#']) {
        return Err(
            "must hold no credentials, query or fragment; keys go into api_key_env or headers"
                .to_owned(),
        );
    }
    let uri: Option<Uri> = url.parse().ok();
    let good = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
    });
    if good {
        Ok(())
    } else {
        Err(format!(
            "`{url}` must look like https://host/v1 or http://127.0.0.1:8080/v1"
        ))
    }
}

/// Whether a value can be sent in a header.
pub(super) fn sendable(value: &str) -> bool {
    !value.is_empty() && HeaderValue::from_str(value).is_ok()
}

/// Why a value is refused that cannot be sent.
pub(super) fn not_sendable() -> String {
    "is empty, or holds characters that cannot be sent in a header".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_http_and_hold_no_secrets() {
        let table = [
            ("https://api.openai.com/v1", true),
            ("http://127.0.0.1:1234/v1", true),
            ("http://[::1]:8080", true),
            ("ftp://host/v1", false),
            ("api.openai.com/v1", false),
            ("/v1", false),
            ("https://", false),
            ("", false),
            ("https://user:secret@host/v1", false),
            ("https://host/v1?key=secret", false),
        ];
        for (url, good) in table {
            let checked = usable(url);
            assert_eq!(checked.is_ok(), good, "{url}");
            assert!(
                !checked.is_err_and(|message| message.contains("secret")),
                "{url}"
            );
        }
    }
}
