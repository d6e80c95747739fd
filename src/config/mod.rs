//! Every setting of contextd, typed, with its default. Nothing else reads the environment.
//!
//! One section of the file is one struct here: the field is the key, its documentation the manual,
//! its `Default` the default. [`load()`] lays flags over `CONTEXTD_*` variables over the file over
//! the defaults.

use serde::{Deserialize, Serialize};

mod anthropic;
mod auth;
mod blobs;
mod check;
mod compaction;
mod database;
mod database_url;
mod duration;
mod embedded;
mod environment;
mod error;
mod gemini;
mod given;
mod http;
mod layers;
mod limits;
mod load;
mod mcp;
mod models;
mod openai;
mod policy;
mod print;
mod provider;
mod responses;
mod retention;
pub mod rules;
mod secret;
mod server;
mod services;
mod setting;
mod stream;
mod suggest;
mod telemetry;
mod tls;
mod turn;

pub use anthropic::{AnthropicConfig, PromptCache};
pub use auth::{AuthConfig, GrantConfig, JwtConfig};
pub use blobs::BlobsConfig;
pub use check::Checks;
pub use database::DatabaseConfig;
pub use database_url::{DatabaseUrl, SslMode};
pub use duration::{format_duration, parse_duration};
pub use embedded::EmbeddedConfig;
pub use environment::Environment;
pub use error::{ConfigError, Origin, Problem};
pub use gemini::GeminiConfig;
pub use given::Origins;
pub use http::{HttpConfig, KeyError};
pub use limits::LimitsConfig;
pub use load::{Loaded, Sources, defaults, load};
pub use mcp::{EVERY_TENANT, McpConfig, OauthConfig, ServersConfig};
pub use models::ModelsConfig;
pub use openai::{Dialect, OpenAiConfig};
pub use policy::{
    OutputLimits, PoliciesConfig, PolicyConfig, QueuePolicyConfig, SHIPPED_POLICY, ToolPolicyConfig,
};
pub use print::print;
pub use provider::{ProviderConfig, ProvidersConfig, SCRIPTED_PROVIDER, ScriptedConfig};
pub use responses::{ResponsesConfig, ResponsesDialect};
pub use retention::RetentionConfig;
pub use secret::redact_url;
pub use server::ServerConfig;
pub use services::{SERVICES, Service};
pub use setting::{COMMAND_FLAGS, ENV_PREFIX, SETTINGS, Setting, variable_of};
pub use stream::StreamConfig;
pub use telemetry::{LogFormat, OtlpConfig, TelemetryConfig, TracesConfig};
pub use tls::TlsConfig;
pub use turn::TurnConfig;

/// All settings, one field per section of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The gRPC server.
    pub server: ServerConfig,
    /// TLS to clients.
    pub tls: TlsConfig,
    /// Who may call.
    pub auth: AuthConfig,
    /// What each tenant may use.
    pub limits: LimitsConfig,
    /// The external database.
    pub database: DatabaseConfig,
    /// The database that contextd runs itself when none is named.
    pub embedded: EmbeddedConfig,
    /// How turns run.
    pub turn: TurnConfig,
    /// How events are handed to readers.
    pub stream: StreamConfig,
    /// What clients may store.
    pub blobs: BlobsConfig,
    /// For how long what is kept.
    pub retention: RetentionConfig,
    /// Which model is used when none is named.
    pub models: ModelsConfig,
    /// The model services, by name.
    pub providers: ProvidersConfig,
    /// The MCP servers, by name.
    pub mcp: ServersConfig,
    /// The context policies, by name.
    pub policies: PoliciesConfig,
    /// Logs, metrics and traces.
    pub telemetry: TelemetryConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server: ServerConfig::default(),
            tls: TlsConfig::default(),
            auth: AuthConfig::default(),
            limits: LimitsConfig::default(),
            database: DatabaseConfig::default(),
            embedded: EmbeddedConfig::default(),
            turn: TurnConfig::default(),
            stream: StreamConfig::default(),
            blobs: BlobsConfig::default(),
            retention: RetentionConfig::default(),
            models: ModelsConfig::default(),
            providers: provider::shipped_providers(),
            mcp: ServersConfig::new(),
            policies: policy::shipped_policies(),
            telemetry: TelemetryConfig::default(),
        }
    }
}

impl Config {
    /// Everything that is wrong with the values, empty when they can be served with.
    pub fn problems(&self) -> Vec<(String, String)> {
        let Self {
            server,
            tls,
            auth,
            limits,
            database,
            embedded,
            turn,
            stream,
            blobs,
            retention,
            models,
            providers,
            mcp,
            policies,
            telemetry,
        } = self;
        let mut checks = Checks::default();
        server.check(&mut checks, tls, auth);
        tls.check(&mut checks, !auth.certificates.is_empty());
        auth.check(&mut checks);
        limits.check(&mut checks);
        database.check(&mut checks);
        embedded.check(&mut checks, database);
        turn.check(&mut checks);
        stream.check(&mut checks);
        blobs.check(&mut checks);
        retention.check(&mut checks);
        models.check(&mut checks, providers);
        for (name, provider) in providers {
            provider.check(&mut checks, name);
        }
        for (name, server) in mcp {
            server.check(&mut checks, name);
        }
        for (name, policy) in policies {
            policy.check(&mut checks, name, providers);
        }
        telemetry.check(&mut checks);
        checks.into_problems()
    }
}
