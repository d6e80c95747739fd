//! The settings of contextd, with their types and defaults. Nothing else reads the environment.
//!
//! Each section of the configuration file is one struct: its fields are the keys, their doc comments are the reference,
//! and its `Default` has the defaults. [`load()`] merges the sources. Flags take precedence over `CONTEXTD_*`
//! variables, these over the file, and the file over the defaults.

use crate::model::TenantLimits;
use crate::settings::{Checks, Section as _, settings};

mod anthropic;
mod auth;
mod blobs;
mod compaction;
mod database;
mod database_url;
mod embedded;
mod environment;
mod error;
mod explicit_values;
mod flag_help;
mod gemini;
mod http;
mod layers;
mod load;
mod mcp;
mod models;
mod openai;
mod policy;
mod print;
mod provider;
pub mod reference;
mod resolved_policy;
mod responses;
mod retention;
pub mod rules;
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
pub use database::DatabaseConfig;
pub use database_url::{DatabaseUrl, SslMode};
pub use embedded::EmbeddedConfig;
pub use environment::Environment;
pub use error::{ConfigError, Origin, Problem};
pub use explicit_values::Origins;
pub use gemini::GeminiConfig;
pub use http::{HttpConfig, KeyError};
pub use load::{LoadedConfig, Sources, defaults, load};
pub use mcp::{EVERY_TENANT, McpConfig, OauthConfig, ServersConfig};
pub use models::ModelsConfig;
pub use openai::{Dialect, OpenAiConfig};
pub use policy::{
    OutputLimitsConfig, PoliciesConfig, PolicyConfig, QueuePolicyConfig, SHIPPED_POLICY, ToolPolicyConfig,
};
pub use print::print;
pub use provider::{ProviderConfig, ProvidersConfig, SCRIPTED_PROVIDER, ScriptedConfig};
pub use responses::{ResponsesConfig, ResponsesDialect};
pub use retention::RetentionConfig;
pub use server::ServerConfig;
pub use services::{WELL_KNOWN_SERVICES, WellKnownService};
pub use setting::{COMMAND_FLAGS, ENV_PREFIX, SETTINGS, Setting, variable_of};
pub use stream::StreamConfig;
pub use telemetry::{LogFormat, OtlpConfig, TelemetryConfig, TracesConfig};
pub use tls::TlsConfig;
pub use turn::TurnConfig;

settings! {
    /// All settings. One field is one section of the file.
    pub struct Config {
        /// The gRPC server.
        server: ServerConfig = ServerConfig::default();
        /// TLS to clients.
        tls: TlsConfig = TlsConfig::default();
        /// Authentication.
        auth: AuthConfig = AuthConfig::default();
        /// Limits per tenant.
        limits: TenantLimits = TenantLimits::default();
        /// The external database.
        database: DatabaseConfig = DatabaseConfig::default();
        /// The embedded database.
        embedded: EmbeddedConfig = EmbeddedConfig::default();
        /// Turns.
        turn: TurnConfig = TurnConfig::default();
        /// Event streams.
        stream: StreamConfig = StreamConfig::default();
        /// Blobs.
        blobs: BlobsConfig = BlobsConfig::default();
        /// How long data is kept.
        retention: RetentionConfig = RetentionConfig::default();
        /// Selection and discovery of models.
        models: ModelsConfig = ModelsConfig::default();
        /// Model services by name. A model is `NAME/model`.
        providers: ProvidersConfig = provider::shipped_providers();
        /// MCP servers by name.
        mcp: ServersConfig = ServersConfig::new();
        /// Context policies by name. Settings that a policy leaves out are those of the built-in policy.
        policies: PoliciesConfig = policy::shipped_policies();
        /// Logs, metrics and traces.
        telemetry: TelemetryConfig = TelemetryConfig::default();
    }
}

impl Config {
    /// All problems with the values, as key and message. Empty if the server can run with them.
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut checks = Checks::default();
        self.check_ranges("", &mut checks);
        self.server.check(&mut checks, &self.tls, &self.auth);
        let has_certificates = !self.auth.certificates.is_empty();
        self.tls.check(&mut checks, has_certificates);
        self.auth.check(&mut checks);
        self.database.check(&mut checks);
        self.embedded.check(&mut checks, &self.database);
        self.retention.check(&mut checks);
        self.models.check(&mut checks, &self.providers);
        for (name, provider) in &self.providers {
            provider.check(&mut checks, name);
        }
        for (name, server) in &self.mcp {
            server.check(&mut checks, name);
        }
        for (name, policy) in &self.policies {
            policy.check(&mut checks, name, &self.providers);
        }
        self.telemetry.check(&mut checks);
        checks.into_problems()
    }
}
