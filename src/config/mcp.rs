//! The settings of MCP servers: `[mcp.NAME]`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::auth::is_safe;
use super::check::Checks;
use super::environment::Environment;
use super::http::{HttpConfig, KeyError};
use super::{duration, secret};
use crate::model::access::is_tenant;

/// In place of a tenant: every one.
pub const EVERY_TENANT: &str = "*";

/// MCP servers by the names that tool sets give.
pub type ServersConfig = BTreeMap<String, McpConfig>;

/// One MCP server over streamable HTTP, whose tools contextd calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct McpConfig {
    /// Where it is. Required.
    pub url: String,
    /// The bearer token itself. Better is `token_env` or `token_file`.
    #[serde(with = "secret")]
    pub token: Option<SecretString>,
    /// The environment variable that holds the token.
    pub token_env: Option<String>,
    /// The file that holds the token.
    pub token_file: Option<PathBuf>,
    /// Further headers of every request. Their values are taken for secrets.
    #[serde(with = "secret::map")]
    pub headers: BTreeMap<String, SecretString>,
    /// How long making a connection may take.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// How long a call may take, where the tool set does not say.
    #[serde(with = "duration")]
    pub call_timeout: Duration,
    /// Calls that a replica runs at once. Further ones wait, which counts as their time.
    pub max_calls: usize,
    /// Bytes of one answer.
    pub max_result_bytes: usize,
    /// The tenants that may use it where `auth.required` is on; `*` is every one. For others it is
    /// not configured.
    pub tenants: Vec<String>,
    /// Where its tokens come from, in place of `token`.
    pub oauth: Option<OauthConfig>,
}

/// `[mcp.NAME.oauth]`: tokens by OAuth 2.1 client credentials.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OauthConfig {
    /// The token endpoint. Required.
    pub token_url: String,
    /// Who asks for tokens. Required.
    pub client_id: String,
    /// The client's secret itself. Better is `client_secret_env` or `client_secret_file`.
    #[serde(with = "secret")]
    pub client_secret: Option<SecretString>,
    /// The environment variable that holds the secret.
    pub client_secret_env: Option<String>,
    /// The file that holds the secret.
    pub client_secret_file: Option<PathBuf>,
    /// The scopes, separated by spaces. Empty: not sent.
    pub scope: String,
    /// Further parameters, such as `audience`. `resource` is the server's URL where it is not given here;
    /// empty, it is not sent.
    pub parameters: BTreeMap<String, String>,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            token: None,
            token_env: None,
            token_file: None,
            headers: BTreeMap::new(),
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_mins(1),
            max_calls: 16,
            max_result_bytes: 4 << 20,
            tenants: Vec::new(),
            oauth: None,
        }
    }
}

impl McpConfig {
    /// The token, from wherever the settings say. `None` means the server wants none.
    pub fn token(&self, environment: &Environment) -> Result<Option<SecretString>, KeyError> {
        let key = HttpConfig {
            api_key: self.token.clone(),
            api_key_env: self.token_env.clone(),
            api_key_file: self.token_file.clone(),
            ..HttpConfig::default()
        };
        key.key(environment)
    }

    pub(super) fn check(&self, checks: &mut Checks, name: &str) {
        let Self {
            url,
            token,
            token_env,
            token_file,
            headers,
            connect_timeout,
            call_timeout,
            max_calls,
            max_result_bytes,
            tenants,
            oauth,
        } = self;
        let key = |field: &str| format!("mcp.{name}.{field}");
        checks.require(is_web(url), &key("url"), not_web);
        for tenant in tenants {
            checks.require(
                tenant == EVERY_TENANT || is_tenant(tenant),
                &key("tenants"),
                || format!("{tenant:?} is no tenant; \"{EVERY_TENANT}\" is every one"),
            );
        }
        let tokens = [
            token.is_some(),
            token_env.is_some(),
            token_file.is_some(),
            oauth.is_some(),
        ];
        let tokens = tokens.iter().filter(|given| **given).count();
        checks.require(tokens <= 1, &key("token"), || {
            "give the token once: token, token_env, token_file or oauth".to_owned()
        });
        if let Some(oauth) = oauth {
            oauth.check(checks, &key("oauth"));
        }
        let sendable = |value: &SecretString| HeaderValue::from_str(value.expose_secret()).is_ok();
        let unsendable = || "holds characters that cannot be sent".to_owned();
        checks.require(
            token.as_ref().is_none_or(sendable),
            &key("token"),
            unsendable,
        );
        for (header, value) in headers {
            let key = key(&format!("headers.{header}"));
            checks.require(header.parse::<HeaderName>().is_ok(), &key, || {
                "is no name of a header".to_owned()
            });
            checks.require(sendable(value), &key, unsendable);
        }
        let positive = |duration: &Duration| !duration.is_zero();
        let zero = || "must be more than 0".to_owned();
        checks.require(positive(connect_timeout), &key("connect_timeout"), zero);
        checks.require(positive(call_timeout), &key("call_timeout"), zero);
        checks.require(*max_calls > 0, &key("max_calls"), zero);
        checks.require(*max_result_bytes > 0, &key("max_result_bytes"), zero);
    }
}

impl OauthConfig {
    /// The client's secret, from wherever the settings say. `None` means that it has none.
    pub fn client_secret(
        &self,
        environment: &Environment,
    ) -> Result<Option<SecretString>, KeyError> {
        let key = HttpConfig {
            api_key: self.client_secret.clone(),
            api_key_env: self.client_secret_env.clone(),
            api_key_file: self.client_secret_file.clone(),
            ..HttpConfig::default()
        };
        key.key(environment)
    }

    fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self {
            token_url,
            client_id,
            client_secret,
            client_secret_env,
            client_secret_file,
            scope: _,
            parameters: _,
        } = self;
        let key = |field: &str| format!("{prefix}.{field}");
        checks.require(is_safe(token_url), &key("token_url"), || {
            "must be https, or on a loopback address: it is sent the client's secret".to_owned()
        });
        checks.require(!client_id.is_empty(), &key("client_id"), || {
            "must be the id of a client".to_owned()
        });
        let secrets = [
            client_secret.is_some(),
            client_secret_env.is_some(),
            client_secret_file.is_some(),
        ];
        let secrets = secrets.iter().filter(|given| **given).count();
        checks.require(secrets == 1, &key("client_secret_env"), || {
            "give the secret once: client_secret, client_secret_env or client_secret_file"
                .to_owned()
        });
    }
}

fn is_web(url: &str) -> bool {
    url.parse::<Uri>()
        .is_ok_and(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some())
}

fn not_web() -> String {
    "must be a URL with http or https".to_owned()
}
