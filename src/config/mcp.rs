//! The settings of MCP servers: `[mcp.NAME]`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::auth::is_secure_url;
use super::environment::Environment;
use super::http::{HttpConfig, KeyError};
use crate::model::access::is_tenant;
use crate::settings::{Checks, settings};
use http::{HeaderName, HeaderValue, Uri};
use secrecy::{ExposeSecret, SecretString};

/// The entry in `tenants` that means all tenants.
pub const EVERY_TENANT: &str = "*";

/// MCP servers by the names that tool sets use.
pub type ServersConfig = BTreeMap<String, McpConfig>;

settings! {
    /// `[mcp.NAME]`: an MCP server over streamable HTTP, whose tools contextd calls.
    pub struct McpConfig {
        /// URL of the server. Required.
        url: String = String::new();
        /// The bearer token. Prefer `token_env` or `token_file`.
        token: Option<SecretString> = None;
        /// The environment variable that holds the token.
        token_env: Option<String> = None;
        /// The file that holds the token.
        token_file: Option<PathBuf> = None;
        /// Additional headers of every request. Their values are treated as secrets.
        headers: BTreeMap<String, SecretString> = BTreeMap::new();
        /// How long connecting may take.
        connect_timeout: Duration = Duration::from_secs(10);
        /// How long a call may take, if the tool set sets no timeout.
        call_timeout: Duration = Duration::from_mins(1);
        /// Maximum concurrent calls of this replica. Further ones wait, which counts towards their timeout.
        max_calls: usize = 16;
        /// Maximum size of a result, in bytes.
        max_result_bytes: usize = 4 << 20;
        /// The tenants that may use the server if `auth.required` is true; `*` means all. For other tenants it does not
        /// exist.
        tenants: Vec<String> = Vec::new();
        /// The source of access tokens, instead of `token`.
        oauth: Option<OauthConfig> = None;
    }
}

settings! {
    /// `[mcp.NAME.oauth]`: access tokens by OAuth 2.1 client credentials.
    pub struct OauthConfig {
        /// The token endpoint. Required.
        token_url: String = String::new();
        /// The client id. Required.
        client_id: String = String::new();
        /// The client secret. Prefer `client_secret_env` or `client_secret_file`.
        client_secret: Option<SecretString> = None;
        /// The environment variable that holds the client secret.
        client_secret_env: Option<String> = None;
        /// The file that holds the client secret.
        client_secret_file: Option<PathBuf> = None;
        /// Scopes, separated by spaces. Empty: not sent.
        scope: String = String::new();
        /// Additional parameters, such as `audience`. The default of `resource` is the server's URL; if empty, it is
        /// not sent.
        parameters: BTreeMap<String, String> = BTreeMap::new();
    }
}

impl McpConfig {
    /// The token, read from the configured source. Returns `None` if none is configured.
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
            checks.require(tenant == EVERY_TENANT || is_tenant(tenant), &key("tenants"), || {
                format!("{tenant:?} is not a valid tenant; \"{EVERY_TENANT}\" means all tenants")
            });
        }
        let tokens = [token.is_some(), token_env.is_some(), token_file.is_some(), oauth.is_some()];
        let tokens = tokens.iter().filter(|given| **given).count();
        checks.require(tokens <= 1, &key("token"), || {
            "set only one of token, token_env, token_file and oauth".to_owned()
        });
        if let Some(oauth) = oauth {
            oauth.check(checks, &key("oauth"));
        }
        let sendable = |value: &SecretString| HeaderValue::from_str(value.expose_secret()).is_ok();
        let unsendable = || "contains invalid characters".to_owned();
        checks.require(token.as_ref().is_none_or(sendable), &key("token"), unsendable);
        for (header, value) in headers {
            let key = key(&format!("headers.{header}"));
            checks.require(header.parse::<HeaderName>().is_ok(), &key, || "is not a valid header name".to_owned());
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
    /// The client secret, read from the configured source. Returns `None` if none is configured.
    pub fn client_secret(&self, environment: &Environment) -> Result<Option<SecretString>, KeyError> {
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
        checks.require(is_secure_url(token_url), &key("token_url"), || {
            "must use https, or be on a loopback address: the client secret is sent to it".to_owned()
        });
        checks.require(!client_id.is_empty(), &key("client_id"), || "must not be empty".to_owned());
        let secrets = [client_secret.is_some(), client_secret_env.is_some(), client_secret_file.is_some()];
        let secrets = secrets.iter().filter(|given| **given).count();
        checks.require(secrets == 1, &key("client_secret_env"), || {
            "set exactly one of client_secret, client_secret_env and client_secret_file".to_owned()
        });
    }
}

fn is_web(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some())
}

fn not_web() -> String {
    "must be an http or https URL".to_owned()
}
