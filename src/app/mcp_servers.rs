//! The MCP servers that the settings name.

use anyhow::Context as _;
use http::{HeaderName, header};
use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    config::{Config, Environment, McpConfig},
    mcp::{Servers, Settings},
};

/// All of them. Keys are read now and never again.
pub(super) fn servers(config: &Config, environment: &Environment) -> anyhow::Result<Servers> {
    let mut servers = Vec::new();
    for (name, config) in &config.mcp {
        let settings =
            settings(config, environment).with_context(|| format!("mcp.{name} cannot be used"))?;
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
    Ok(Settings {
        url: config.url.clone(),
        headers,
        connect_timeout: config.connect_timeout,
        call_timeout: config.call_timeout,
        max_calls: config.max_calls,
        max_result_bytes: config.max_result_bytes,
    })
}
