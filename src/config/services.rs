//! Model services that need no section in the file. Each is configured by the environment variable from which its
//! vendor and most client libraries read the API key.

use toml::{Table, Value};

use super::environment::Environment;
use super::error::Origin;
use super::explicit_values::ExplicitValues;
use super::layers;
use super::provider::SCRIPTED_PROVIDER;

/// The variable from which many OpenAI clients read another base URL, such as that of a gateway.
const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";

/// A model service that is configured by one environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WellKnownService {
    /// The name of the provider, which is the first half of a model reference.
    pub provider: &'static str,
    /// The `kind` of the provider.
    pub kind: &'static str,
    /// The environment variable that holds the API key.
    pub variable: &'static str,
    /// The base URL of that API, from the vendor's documentation.
    pub base_url: &'static str,
    /// The model for sessions that do not name one: general purpose, supports tools, and is in the built-in model
    /// table.
    pub default_model: &'static str,
}

/// The known services. The first one that is detected provides the default model.
pub const WELL_KNOWN_SERVICES: &[WellKnownService] = &[
    service("openai", "OPENAI_API_KEY", "https://api.openai.com/v1", "gpt-5-mini"),
    WellKnownService {
        kind: "anthropic",
        ..service("anthropic", "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1", "claude-sonnet-5-5")
    },
    WellKnownService {
        kind: "gemini",
        ..service("gemini", "GEMINI_API_KEY", "https://generativelanguage.googleapis.com/v1beta", "gemini-flash-latest")
    },
    service("openrouter", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1", "openrouter/auto"),
    service("deepseek", "DEEPSEEK_API_KEY", "https://api.deepseek.com/v1", "deepseek-chat"),
    service("groq", "GROQ_API_KEY", "https://api.groq.com/openai/v1", "openai/gpt-oss-120b"),
    service("xai", "XAI_API_KEY", "https://api.x.ai/v1", "grok-4.5-latest"),
    service("mistral", "MISTRAL_API_KEY", "https://api.mistral.ai/v1", "mistral-medium-latest"),
];

const fn service(
    provider: &'static str,
    variable: &'static str,
    base_url: &'static str,
    default_model: &'static str,
) -> WellKnownService {
    WellKnownService { provider, kind: "openai", variable, base_url, default_model }
}

/// Adds the services whose variables are set to the defaults in `known`, and returns them.
///
/// The file takes precedence. A service is not added if `models.detect_providers` is `false`, if a provider with its
/// name is configured, or if a provider with any name already uses its variable, since the key may belong to another
/// address. The default model of the first service is used only if neither a default model nor a provider other than
/// `scripted` is configured, so that a configured server does not change its behavior.
pub(super) fn detect(
    known: &mut Table,
    given: &mut ExplicitValues,
    environment: &Environment,
) -> Vec<&'static WellKnownService> {
    let file = &given.values;
    if value(file, "models.detect_providers") == Some(&Value::Boolean(false)) {
        return Vec::new();
    }
    let configured = file.get("providers").and_then(Value::as_table).cloned().unwrap_or_default();
    let uses = |variable: &str| {
        let named = |provider: &Value| provider.get("api_key_env").and_then(Value::as_str) == Some(variable);
        configured.values().any(named)
    };
    let is_free = |service: &&WellKnownService| !configured.contains_key(service.provider) && !uses(service.variable);
    let is_set = |service: &&WellKnownService| environment.get(service.variable).is_some();
    let found: Vec<&WellKnownService> = WELL_KNOWN_SERVICES.iter().filter(is_set).filter(is_free).collect();
    let set_up =
        configured.keys().any(|name| name != SCRIPTED_PROVIDER) || value(file, "models.default_model").is_some();
    for service in &found {
        add(known, given, service, environment.get(OPENAI_BASE_URL));
    }
    if let Some(first) = found.first().filter(|_| !set_up) {
        let reference = format!("{}/{}", first.provider, first.default_model);
        set(known, given, "models.default_model", reference, first.variable);
    }
    found
}

/// Adds one service, with the variable as the origin of its settings.
fn add(known: &mut Table, given: &mut ExplicitValues, service: &WellKnownService, openai: Option<&str>) {
    let key = |name: &str| format!("providers.{}.{name}", service.provider);
    let (base_url, told_by) = match openai.filter(|_| service.variable == "OPENAI_API_KEY") {
        Some(base_url) => (base_url, OPENAI_BASE_URL),
        None => (service.base_url, service.variable),
    };
    let WellKnownService { provider: _, kind, variable, base_url: _, default_model: _ } = *service;
    set(known, given, &key("kind"), kind.to_owned(), variable);
    set(known, given, &key("base_url"), base_url.to_owned(), told_by);
    set(known, given, &key("api_key_env"), variable.to_owned(), variable);
}

fn set(known: &mut Table, given: &mut ExplicitValues, key: &str, text: String, variable: &str) {
    layers::set(known, &layers::path_of(key), Value::String(text));
    given.origins.insert(key.to_owned(), Origin::Variable(variable.to_owned()));
}

fn value<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    layers::get(table, &layers::path_of(key))
}
