//! The settings that all model services over HTTP have in common.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::environment::Environment;
use crate::model::DeclaredModel;
use crate::settings::{Checks, settings};
use http::{HeaderName, HeaderValue, Uri};
use secrecy::{ExposeSecret, SecretString};

/// Headers that contextd sets. They cannot be configured.
const OWN_HEADERS: &[&str] = &["accept", "content-length", "content-type", "host"];

/// The shortest and the longest timeout of a model service.
const TIMEOUTS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_hours(1);

settings! {
    /// How a model service is reached. These keys are keys of the provider's section.
    pub struct HttpConfig {
        /// The API key. Prefer `api_key_env` or `api_key_file`.
        api_key: Option<SecretString> = None;
        /// The environment variable that holds the API key.
        api_key_env: Option<String> = None;
        /// The file that holds the API key.
        api_key_file: Option<PathBuf> = None;
        /// Additional headers of every request. Their values are treated as secrets.
        headers: BTreeMap<String, SecretString> = BTreeMap::new();
        /// How long connecting may take.
        connect_timeout: Duration = Duration::from_secs(10), in TIMEOUTS;
        /// How long the first byte of a response may take. This includes the time in which the service reads the
        /// prompt.
        first_byte_timeout: Duration = Duration::from_mins(5), in TIMEOUTS;
        /// How long a response may be silent between two bytes.
        stall_timeout: Duration = Duration::from_mins(2), in TIMEOUTS;
        /// Maximum size of a request that the service accepts. A larger request is not sent. Not set: every request is
        /// sent, and the service rejects those that are too large.
        max_request_bytes: Option<u64> = None, in 1_024..=1 << 40, "bytes";
    }
}

/// An API key, token or client secret cannot be read from its configured source.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the environment variable {0} is not set")]
    Variable(String),
    #[error("cannot read {}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// The file contains only whitespace.
    #[error("{} is empty", .0.display())]
    Empty(PathBuf),
}

impl HttpConfig {
    /// The API key, read from the configured source. Returns `None` if none is configured.
    pub fn key(&self, environment: &Environment) -> Result<Option<SecretString>, KeyError> {
        if let Some(name) = &self.api_key_env {
            let key = environment.get(name).ok_or_else(|| KeyError::Variable(name.clone()))?;
            return Ok(Some(SecretString::from(key.trim())));
        }
        let Some(path) = &self.api_key_file else {
            return Ok(self.api_key.clone());
        };
        let text = std::fs::read_to_string(path).map_err(|source| KeyError::File { path: path.clone(), source })?;
        match text.trim() {
            "" => Err(KeyError::Empty(path.clone())),
            key => Ok(Some(SecretString::from(key))),
        }
    }

    /// Whether an API key is configured, including in the header with this name.
    fn has_key(&self, header: &str) -> bool {
        let in_header = |name: &String| name.eq_ignore_ascii_case(header);
        self.keys() > 0 || self.headers.keys().any(in_header)
    }

    fn keys(&self) -> usize {
        let keys = [self.api_key.is_some(), self.api_key_env.is_some(), self.api_key_file.is_some()];
        keys.iter().filter(|given| **given).count()
    }

    fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self { api_key, headers, .. } = self;
        let key = |name: &str| format!("{prefix}.{name}");
        checks.require(self.keys() <= 1, &key("api_key"), || {
            "set only one of api_key, api_key_env and api_key_file".to_owned()
        });
        let api_key = api_key.as_ref().map(ExposeSecret::expose_secret);
        checks.require(api_key.is_none_or(is_header_value), &key("api_key"), invalid_header_value);
        for (name, value) in headers {
            let key = key(&format!("headers.{name}"));
            let known = name.parse::<HeaderName>();
            let own = known.as_ref().is_ok_and(|known| OWN_HEADERS.contains(&known.as_str()));
            checks.require(known.is_ok(), &key, || "is not a valid header name".to_owned());
            checks.require(!own, &key, || "is set by contextd and cannot be configured".to_owned());
            checks.require(is_header_value(value.expose_secret()), &key, invalid_header_value);
        }
    }
}

/// The service that defines the API of a kind. It requires an API key.
pub(super) struct DefaultService {
    pub(super) base_url: &'static str,
    /// The header that carries the API key.
    pub(super) header: &'static str,
    /// The environment variable that usually holds the API key.
    pub(super) variable: &'static str,
}

/// Checks the settings that all kinds of services have: base URL, HTTP settings and API key.
pub(super) fn check_service(
    checks: &mut Checks,
    prefix: &str,
    base_url: &str,
    http: &HttpConfig,
    of_kind: &DefaultService,
) {
    let DefaultService { base_url: own, header, variable } = of_kind;
    check_url(checks, &format!("{prefix}.base_url"), base_url);
    http.check(checks, prefix);
    checks.require(base_url != *own || http.has_key(header), &format!("{prefix}.api_key_env"), || {
        format!("{own} requires an API key; name the environment variable that holds it, such as \"{variable}\"")
    });
}

/// Checks values that are sent in headers.
pub(super) fn check_sendable(checks: &mut Checks, prefix: &str, values: [(&str, &Option<String>); 2]) {
    for (name, value) in values {
        checks.require(value.as_deref().is_none_or(is_header_value), &format!("{prefix}.{name}"), invalid_header_value);
    }
}

/// Checks the configured properties of models.
pub(super) fn check_models(checks: &mut Checks, prefix: &str, models: &BTreeMap<String, DeclaredModel>) {
    for (name, model) in models {
        check_model(checks, &format!("{prefix}.models.{name}"), model);
    }
}

/// Checks the configured properties of one model.
fn check_model(checks: &mut Checks, prefix: &str, model: &DeclaredModel) {
    let most = i32::MAX.unsigned_abs();
    let key = |name: &str| format!("{prefix}.{name}");
    checks.require(!prefix.ends_with("models."), prefix, || "the name of a model must not be empty".to_owned());
    checks.range(&key("context_window"), &model.context_window, &(1..=most), "tokens");
    let most = model.context_window.unwrap_or(most);
    checks.range(&key("max_output"), &model.max_output, &(1..=most), "tokens");
}

fn check_url(checks: &mut Checks, key: &str, url: &str) {
    if let Err(message) = check_base_url(url) {
        checks.fail(key.to_owned(), message);
    }
}

/// Checks the base URL of a service. The message does not quote a URL that may contain a secret.
fn check_base_url(url: &str) -> Result<(), String> {
    if url.contains(['@', '?', '#']) {
        return Err(
            "must not contain credentials, a query or a fragment; set API keys with api_key_env or headers".to_owned()
        );
    }
    let uri: Option<Uri> = url.parse().ok();
    let good = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    if good { Ok(()) } else { Err(format!("`{url}` must look like https://host/v1 or http://127.0.0.1:8080/v1")) }
}

/// Whether a value can be sent in a header: it is not empty, and contains only valid characters.
pub(super) fn is_header_value(value: &str) -> bool {
    !value.is_empty() && HeaderValue::from_str(value).is_ok()
}

/// The message for a value that is not [`is_header_value`].
pub(super) fn invalid_header_value() -> String {
    "is empty, or contains characters that are invalid in a header".to_owned()
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
            let checked = check_base_url(url);
            assert_eq!(checked.is_ok(), good, "{url}");
            assert!(!checked.is_err_and(|message| message.contains("secret")), "{url}");
        }
    }
}
