//! Model services that need no section in the file: each is configured by the environment variable
//! that its vendor and most client libraries read the key from.

use toml::{Table, Value};

use super::environment::Environment;
use super::error::Origin;
use super::given::Given;
use super::layers;
use super::provider::SCRIPTED_PROVIDER;

/// The variable that many clients of OpenAI read another address from, such as that of a gateway.
const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";

/// A model service that is configured by one environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Name of the provider, the first half of its models' references.
    pub provider: &'static str,
    /// What it speaks: the `kind` of the provider.
    pub kind: &'static str,
    /// The variable that holds the key.
    pub variable: &'static str,
    /// Where the service speaks that, by its vendor's documentation.
    pub base_url: &'static str,
    /// The model for sessions that name none: general purpose, with tools, in the shipped table of
    /// models.
    pub default_model: &'static str,
}

/// The services, in the order in which they are asked for the default model.
pub const SERVICES: &[Service] = &[
    service(
        "openai",
        "OPENAI_API_KEY",
        "https://api.openai.com/v1",
        "gpt-5-mini",
    ),
    Service {
        kind: "anthropic",
        ..service(
            "anthropic",
            "ANTHROPIC_API_KEY",
            "https://api.anthropic.com/v1",
            "claude-sonnet-5-5",
        )
    },
    Service {
        kind: "gemini",
        ..service(
            "gemini",
            "GEMINI_API_KEY",
            "https://generativelanguage.googleapis.com/v1beta",
            "gemini-flash-latest",
        )
    },
    service(
        "openrouter",
        "OPENROUTER_API_KEY",
        "https://openrouter.ai/api/v1",
        "openrouter/auto",
    ),
    service(
        "deepseek",
        "DEEPSEEK_API_KEY",
        "https://api.deepseek.com/v1",
        "deepseek-chat",
    ),
    service(
        "groq",
        "GROQ_API_KEY",
        "https://api.groq.com/openai/v1",
        "openai/gpt-oss-120b",
    ),
    service(
        "xai",
        "XAI_API_KEY",
        "https://api.x.ai/v1",
        "grok-4.5-latest",
    ),
    service(
        "mistral",
        "MISTRAL_API_KEY",
        "https://api.mistral.ai/v1",
        "mistral-medium-latest",
    ),
];

const fn service(
    provider: &'static str,
    variable: &'static str,
    base_url: &'static str,
    default_model: &'static str,
) -> Service {
    Service {
        provider,
        kind: "openai",
        variable,
        base_url,
        default_model,
    }
}

/// Adds the services whose variables are set to the defaults in `known`, and returns them.
///
/// What the file says wins as a whole: a provider of the same name, `models.detect_providers =
/// false`, and a provider of any name that already uses the variable, whose key may belong to
/// another address. The default model becomes the first service's only where neither
/// a default model nor any provider is configured: a server that was set up keeps what it does.
pub(super) fn detect(
    known: &mut Table,
    given: &mut Given,
    environment: &Environment,
) -> Vec<&'static Service> {
    let file = &given.values;
    if value(file, "models.detect_providers") == Some(&Value::Boolean(false)) {
        return Vec::new();
    }
    let configured = file
        .get("providers")
        .and_then(Value::as_table)
        .cloned()
        .unwrap_or_default();
    let uses = |variable: &str| {
        let named = |provider: &Value| {
            provider.get("api_key_env").and_then(Value::as_str) == Some(variable)
        };
        configured.values().any(named)
    };
    let is_free =
        |service: &&Service| !configured.contains_key(service.provider) && !uses(service.variable);
    let is_set = |service: &&Service| environment.get(service.variable).is_some();
    let found: Vec<&Service> = SERVICES.iter().filter(is_set).filter(is_free).collect();
    let set_up = configured.keys().any(|name| name != SCRIPTED_PROVIDER)
        || value(file, "models.default_model").is_some();
    for service in &found {
        add(known, given, service, environment.get(OPENAI_BASE_URL));
    }
    if let Some(first) = found.first().filter(|_| !set_up) {
        let reference = format!("{}/{}", first.provider, first.default_model);
        set(
            known,
            given,
            "models.default_model",
            reference,
            first.variable,
        );
    }
    found
}

/// Adds one service, with the variable as the origin of what it sets.
fn add(known: &mut Table, given: &mut Given, service: &Service, openai: Option<&str>) {
    let key = |name: &str| format!("providers.{}.{name}", service.provider);
    let (base_url, told_by) = match openai.filter(|_| service.variable == "OPENAI_API_KEY") {
        Some(base_url) => (base_url, OPENAI_BASE_URL),
        None => (service.base_url, service.variable),
    };
    let Service {
        provider: _,
        kind,
        variable,
        base_url: _,
        default_model: _,
    } = *service;
    set(known, given, &key("kind"), kind.to_owned(), variable);
    set(known, given, &key("base_url"), base_url.to_owned(), told_by);
    set(
        known,
        given,
        &key("api_key_env"),
        variable.to_owned(),
        variable,
    );
}

fn set(known: &mut Table, given: &mut Given, key: &str, text: String, variable: &str) {
    layers::set(known, &layers::path_of(key), Value::String(text));
    given
        .origins
        .insert(key.to_owned(), Origin::Variable(variable.to_owned()));
}

fn value<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    layers::get(table, &layers::path_of(key))
}
