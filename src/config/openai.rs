//! The settings of services that speak Chat Completions: `kind = "openai"`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::environment::Environment;
use super::{duration, secret};

/// Where OpenAI itself is.
const OPENAI: &str = "https://api.openai.com/v1";

/// Headers that contextd writes itself.
const OWN_HEADERS: &[&str] = &["accept", "content-length", "content-type", "host"];

/// `kind = "openai"`: one service that speaks Chat Completions.
#[derive(Clone, Debug, Serialize)]
pub struct OpenAiConfig {
    /// Where the service is, up to and with `/v1`.
    pub base_url: String,
    /// The key itself. Better is `api_key_env` or `api_key_file`.
    #[serde(serialize_with = "secret::serialize")]
    pub api_key: Option<SecretString>,
    /// The environment variable that holds the key.
    pub api_key_env: Option<String>,
    /// The file that holds the key.
    pub api_key_file: Option<PathBuf>,
    /// What the service speaks. Absent: the host of `base_url` tells, else `compatible`.
    pub dialect: Option<Dialect>,
    /// The service whose prompts these are counted as, such as `venice` for a proxy in front of
    /// it. Absent: the dialect, the host of `base_url` or the provider's name tells.
    pub counted_as: Option<String>,
    /// `OpenAI-Organization`.
    pub organization: Option<String>,
    /// `OpenAI-Project`.
    pub project: Option<String>,
    /// Further headers of every request. Their values are taken for secrets.
    #[serde(serialize_with = "secret::serialize_map")]
    pub headers: BTreeMap<String, SecretString>,
    /// Give instructions under the role `developer` instead of `system`, for the dialect `openai`.
    pub developer_role: bool,
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
    /// What is known of models, by name. Others can be used too.
    pub models: BTreeMap<String, ModelConfig>,
}

/// `[providers.NAME.models."MODEL"]`: what is known of a model. What is absent is taken from the
/// shipped table, where that has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelConfig {
    /// Name for people.
    pub display_name: Option<String>,
    /// Other names that mean this model.
    pub aliases: Vec<String>,
    /// Tokens of the whole window.
    pub context_window: Option<u32>,
    /// Most tokens of one answer.
    pub max_output: Option<u32>,
    /// MIME types it takes beside text, such as `image/*`.
    pub input_media_types: Option<Vec<String>>,
    /// Whether it can call tools.
    pub supports_tools: Option<bool>,
    /// Whether it can make several calls at once.
    pub supports_parallel_tool_calls: Option<bool>,
    /// Whether it can hold to a JSON schema.
    pub supports_json_schema: Option<bool>,
    /// Levels of thinking that it has.
    pub reasoning_efforts: Option<Vec<Effort>>,
}

/// A level of thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "a scale")]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

/// What a service speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "names of services and servers")]
pub enum Dialect {
    OpenAi,
    OpenRouter,
    DeepSeek,
    Groq,
    Xai,
    Mistral,
    Together,
    Fireworks,
    Cerebras,
    Moonshot,
    Zai,
    Perplexity,
    LlamaCpp,
    LmStudio,
    Ollama,
    Vllm,
    Compatible,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::OpenAi,
        Self::OpenRouter,
        Self::DeepSeek,
        Self::Groq,
        Self::Xai,
        Self::Mistral,
        Self::Together,
        Self::Fireworks,
        Self::Cerebras,
        Self::Moonshot,
        Self::Zai,
        Self::Perplexity,
        Self::LlamaCpp,
        Self::LmStudio,
        Self::Ollama,
        Self::Vllm,
        Self::Compatible,
    ];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenRouter => "openrouter",
            Self::DeepSeek => "deepseek",
            Self::Groq => "groq",
            Self::Xai => "xai",
            Self::Mistral => "mistral",
            Self::Together => "together",
            Self::Fireworks => "fireworks",
            Self::Cerebras => "cerebras",
            Self::Moonshot => "moonshot",
            Self::Zai => "zai",
            Self::Perplexity => "perplexity",
            Self::LlamaCpp => "llamacpp",
            Self::LmStudio => "lmstudio",
            Self::Ollama => "ollama",
            Self::Vllm => "vllm",
            Self::Compatible => "compatible",
        }
    }
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

impl Default for OpenAiConfig {
    fn default() -> Self {
        Self {
            base_url: OPENAI.to_owned(),
            api_key: None,
            api_key_env: None,
            api_key_file: None,
            dialect: None,
            counted_as: None,
            organization: None,
            project: None,
            headers: BTreeMap::new(),
            developer_role: false,
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_mins(5),
            stall_timeout: Duration::from_mins(2),
            max_request_bytes: None,
            models: BTreeMap::new(),
        }
    }
}

impl OpenAiConfig {
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

    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self {
            base_url,
            api_key,
            api_key_env,
            api_key_file,
            dialect: _,
            counted_as: _,
            organization,
            project,
            headers,
            developer_role: _,
            connect_timeout,
            first_byte_timeout,
            stall_timeout,
            max_request_bytes,
            models,
        } = self;
        let key = |name: &str| format!("{prefix}.{name}");
        if let Err(message) = check_url(base_url) {
            checks.fail(key("base_url"), message);
        }
        let keys = [
            api_key.is_some(),
            api_key_env.is_some(),
            api_key_file.is_some(),
        ];
        let given = keys.iter().filter(|given| **given).count();
        checks.require(given <= 1, &key("api_key"), || {
            "give the key once: api_key, api_key_env or api_key_file".to_owned()
        });
        checks.require(
            given > 0 || base_url != OPENAI || headers.contains_key("authorization"),
            &key("api_key_env"),
            || format!("{OPENAI} wants a key; name the variable that holds it, such as \"OPENAI_API_KEY\""),
        );
        checks.require(
            api_key
                .as_ref()
                .is_none_or(|it| sendable(it.expose_secret())),
            &key("api_key"),
            not_sendable,
        );
        for (name, value) in [("organization", organization), ("project", project)] {
            checks.require(
                value.as_deref().is_none_or(sendable),
                &key(name),
                not_sendable,
            );
        }
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
        let wait = Duration::from_millis(100)..=Duration::from_hours(1);
        checks.duration(&key("connect_timeout"), *connect_timeout, wait.clone());
        checks.duration(
            &key("first_byte_timeout"),
            *first_byte_timeout,
            wait.clone(),
        );
        checks.duration(&key("stall_timeout"), *stall_timeout, wait);
        if let Some(bytes) = max_request_bytes {
            checks.number(&key("max_request_bytes"), *bytes, 1_024..=1 << 40, "bytes");
        }
        for (name, model) in models {
            model.check(checks, &key(&format!("models.{name}")));
        }
    }
}

impl ModelConfig {
    fn check(&self, checks: &mut Checks, prefix: &str) {
        let most = i32::MAX.unsigned_abs();
        checks.require(!prefix.ends_with("models."), prefix, || {
            "the name of a model must not be empty".to_owned()
        });
        if let Some(tokens) = self.context_window {
            checks.number(
                &format!("{prefix}.context_window"),
                tokens,
                1..=most,
                "tokens",
            );
        }
        if let Some(tokens) = self.max_output {
            let most = self.context_window.unwrap_or(most);
            checks.number(&format!("{prefix}.max_output"), tokens, 1..=most, "tokens");
        }
    }
}

/// The address is not quoted when it may hold a secret.
fn check_url(url: &str) -> Result<(), String> {
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

fn sendable(value: &str) -> bool {
    !value.is_empty() && HeaderValue::from_str(value).is_ok()
}

fn not_sendable() -> String {
    "is empty, or holds characters that cannot be sent in a header".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_is_written_as_it_is_called() {
        for dialect in Dialect::ALL {
            assert_eq!(
                serde_json::to_value(dialect).expect("a name"),
                dialect.name()
            );
        }
    }

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
            let checked = check_url(url);
            assert_eq!(checked.is_ok(), good, "{url}");
            assert!(
                !checked.is_err_and(|message| message.contains("secret")),
                "{url}"
            );
        }
    }
}
