//! Creates the configured MCP servers.

use anyhow::Context as _;
use http::{HeaderName, header};
use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    config::{Config, EVERY_TENANT, Environment, McpConfig, OauthConfig},
    mcp::{OauthSettings, Servers, Settings, Tenants},
    model::TenantId,
};

/// Creates all configured servers. Keys are read once, here.
pub(super) fn servers(config: &Config, environment: &Environment) -> anyhow::Result<Servers> {
    let mut servers = Vec::new();
    let is_open = !config.auth.required;
    for (name, config) in &config.mcp {
        let mut settings =
            settings(config, environment).with_context(|| format!("mcp.{name} cannot be used"))?;
        if is_open {
            settings.tenants = Tenants::All;
        } else if config.tenants.is_empty() {
            tracing::warn!(
                server = name,
                "no tenant may use the MCP server: its tenants are not set"
            );
        }
        servers.push((name.clone(), settings));
    }
    Servers::new(servers)
        .map_err(|(name, error)| anyhow::Error::new(error).context(format!("mcp.{name}")))
}

fn settings(config: &McpConfig, environment: &Environment) -> anyhow::Result<Settings> {
    let mut headers: Vec<(HeaderName, SecretString)> = Vec::new();
    if let Some(token) = config.token(environment)? {
        let bearer = format!("Bearer {}", token.expose_secret());
        headers.push((header::AUTHORIZATION, SecretString::from(bearer)));
    }
    for (name, value) in &config.headers {
        headers.push((name.parse()?, value.clone()));
    }
    let oauth = config.oauth.as_ref();
    let oauth = oauth.map(|oauth| oauth_settings(oauth, &config.url, environment));
    let tenants = config.tenants.iter();
    Ok(Settings {
        oauth: oauth.transpose()?,
        tenants: if config.tenants.iter().any(|tenant| tenant == EVERY_TENANT) {
            Tenants::All
        } else {
            Tenants::Named(tenants.map(TenantId::new).collect())
        },
        url: config.url.clone(),
        headers,
        connect_timeout: config.connect_timeout,
        call_timeout: config.call_timeout,
        max_calls: config.max_calls,
        max_result_bytes: config.max_result_bytes,
    })
}

fn oauth_settings(
    config: &OauthConfig,
    url: &str,
    environment: &Environment,
) -> anyhow::Result<OauthSettings> {
    let secret = config.client_secret(environment)?;
    let mut parameters = config.parameters.clone();
    parameters
        .entry("resource".to_owned())
        .or_insert_with(|| url.to_owned());
    parameters.insert("scope".to_owned(), config.scope.clone());
    parameters.retain(|_, value| !value.is_empty());
    Ok(OauthSettings {
        token_url: config.token_url.clone(),
        client_id: config.client_id.clone(),
        client_secret: secret.context("the OAuth client has no secret")?,
        parameters,
    })
}
