//! Creates the configured model providers.

use std::sync::Arc;

use anyhow::Context as _;
use http::{HeaderName, header};
use secrecy::{ExposeSecret as _, SecretString};

use super::rules;
use crate::{
    config::{
        AnthropicConfig, Config, Environment, GeminiConfig, HttpConfig, KeyError, OpenAiConfig, ProviderConfig,
        ResponsesConfig,
    },
    context::template::Template,
    provider::{
        Provider, Registry,
        anthropic::Anthropic,
        gemini::Gemini,
        http::Settings,
        openai::{OpenAi, dialect},
        responses::{self, Responses},
        scripted::Scripted,
    },
};

/// Creates all configured providers. Keys are read once, here. A provider without its key is rejected when it
/// is used, so that one file can serve machines with different keys; if it is the default model's provider,
/// this returns an error.
pub(super) fn registry(config: &Config, environment: &Environment) -> anyhow::Result<Registry> {
    let default = config.models.default_model.split_once('/');
    let mut registry = Registry::default();
    for (name, provider_config) in &config.providers {
        let is_default = default.is_some_and(|(provider, _)| provider == name);
        registry = match provider(name, provider_config, environment) {
            Ok(provider) => registry.with(name, provider),
            Err(error) if !is_default && error.is::<KeyError>() => {
                tracing::warn!(provider = name, %error, "provider cannot be used");
                registry.with_unusable(name, error.to_string())
            }
            Err(error) => {
                return Err(error.context(format!("providers.{name} cannot be used")));
            }
        };
    }
    Ok(registry)
}

fn provider(name: &str, config: &ProviderConfig, environment: &Environment) -> anyhow::Result<Arc<dyn Provider>> {
    Ok(match config {
        ProviderConfig::Scripted(scripted) => Arc::new(Scripted::new(name, scripted.script_dir.as_deref())?),
        ProviderConfig::OpenAi(config) => Arc::new(openai(name, config, environment)?),
        ProviderConfig::Responses(config) => Arc::new(responses(name, config, environment)?),
        ProviderConfig::Anthropic(config) => Arc::new(anthropic(name, config, environment)?),
        ProviderConfig::Gemini(config) => Arc::new(gemini(name, config, environment)?),
    })
}

fn responses(name: &str, config: &ResponsesConfig, environment: &Environment) -> anyhow::Result<Responses> {
    let host = config.base_url.parse::<http::Uri>()?;
    let dialect = match config.dialect {
        Some(known) => responses::dialect::named(known.name()).context("unknown dialect")?,
        None => responses::dialect::of_host(host.host().unwrap_or_default()),
    };
    let dialect = rules::responses(dialect, &config.rules);
    let mut headers = Vec::new();
    if let Some(key) = config.http.key(environment)? {
        headers.push(credential(dialect.key_header, key));
    }
    headers.extend(accounts(&config.organization, &config.project));
    let settings = settings(&config.base_url, &config.http, headers);
    let provider = Responses::new(name, settings, &dialect, config.models.clone())?;
    Ok(provider.with_api_version(config.api_version.clone()))
}

/// The header that carries the API key: the service's own header, or else `authorization`.
fn credential(own: Option<&'static str>, key: SecretString) -> (HeaderName, SecretString) {
    match own {
        Some(name) => (HeaderName::from_static(name), key),
        None => bearer(&key),
    }
}

fn bearer(key: &SecretString) -> (HeaderName, SecretString) {
    let bearer = format!("Bearer {}", key.expose_secret());
    (header::AUTHORIZATION, SecretString::from(bearer))
}

/// The headers that select the OpenAI organization and project.
fn accounts(organization: &Option<String>, project: &Option<String>) -> Vec<(HeaderName, SecretString)> {
    let named = [("openai-organization", organization), ("openai-project", project)];
    let named = named.into_iter().filter_map(|(name, value)| {
        let value = SecretString::from(value.as_deref()?);
        Some((HeaderName::from_static(name), value))
    });
    named.collect()
}

fn anthropic(name: &str, config: &AnthropicConfig, environment: &Environment) -> anyhow::Result<Anthropic> {
    let version = SecretString::from(config.version.as_str());
    let mut headers = vec![(HeaderName::from_static("anthropic-version"), version)];
    if let Some(key) = config.http.key(environment)? {
        headers.push((HeaderName::from_static("x-api-key"), key));
    }
    let settings = settings(&config.base_url, &config.http, headers);
    let provider = Anthropic::new(name, settings, config.models.clone())?;
    Ok(provider.with_prompt_cache(config.prompt_cache).with_reasoning_back(config.rules.reasoning_back))
}

fn gemini(name: &str, config: &GeminiConfig, environment: &Environment) -> anyhow::Result<Gemini> {
    let key = config.http.key(environment)?;
    let key = key.map(|key| (HeaderName::from_static("x-goog-api-key"), key));
    let headers = key.into_iter().collect();
    let settings = settings(&config.base_url, &config.http, headers);
    Ok(Gemini::new(name, settings, config.models.clone())?)
}

fn openai(name: &str, config: &OpenAiConfig, environment: &Environment) -> anyhow::Result<OpenAi> {
    let host = config.base_url.parse::<http::Uri>()?;
    let dialect = match config.dialect {
        Some(known) => dialect::named(known.name()).context("unknown dialect")?,
        None => dialect::of_host(host.host().unwrap_or_default()),
    };
    let dialect = rules::chat(dialect, &config.rules);
    let mut headers = Vec::new();
    if let Some(key) = config.http.key(environment)? {
        headers.push(bearer(&key));
    }
    headers.extend(accounts(&config.organization, &config.project));
    let settings = settings(&config.base_url, &config.http, headers);
    if let Some(service) = config.counted_as.as_deref() {
        let known = Template::services();
        anyhow::ensure!(
            known.contains(service),
            "counted_as: unknown service `{service}`; expected one of: {}",
            known.into_iter().collect::<Vec<_>>().join(", ")
        );
    }
    let provider = OpenAi::new(name, settings, &dialect, config.models.clone())?;
    Ok(provider.with_developer_role(config.developer_role).with_counted_as(config.counted_as.clone()))
}

/// How a service is reached.
fn settings(base_url: &str, http: &HttpConfig, headers: Vec<(HeaderName, SecretString)>) -> Settings {
    Settings { base_url: base_url.to_owned(), headers, http: http.clone() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        config::{Dialect, ResponsesDialect, Sources, WELL_KNOWN_SERVICES},
        provider::info::Source,
    };

    #[test]
    fn the_shipped_table_knows_the_default_model_of_every_well_known_service() {
        for service in WELL_KNOWN_SERVICES {
            let environment = Environment::new([(service.variable, "key")]);
            let sources = Sources { environment: environment.clone(), ..Sources::default() };
            let config = crate::config::load(&sources).expect("valid settings").config;
            let registry = registry(&config, &environment).expect("a registry");
            let model = registry.resolve(&config.models.default_model).expect("a model");
            assert_eq!((model.provider_name.as_str(), model.info.source), (service.provider, Source::Shipped));
            assert!(model.info.supports_tools && model.info.context_window.is_some(), "{}", model.reference);
        }
    }

    #[test]
    fn a_provider_without_its_key_is_refused_when_it_is_used_unless_it_is_the_default() {
        let models = "providers.anthropic = {kind = 'anthropic', api_key_env = 'ANTHROPIC_API_KEY'}\n\
             providers.ollama = {kind = 'openai', base_url = 'http://127.0.0.1:1/v1', dialect = 'ollama'}\n";
        let load = |default: &str| {
            let text = format!("models.default_model = '{default}'\n{models}");
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), text).expect("written");
            let sources = Sources { file: Some(file.path().to_owned()), ..Sources::default() };
            let config = crate::config::load(&sources).expect("valid settings").config;
            registry(&config, &Environment::default())
        };
        let served = load("ollama/qwen3:8b").expect("a registry");
        assert!(served.resolve("ollama/qwen3:8b").is_some());
        assert!(served.resolve("anthropic/claude-sonnet-5-5").is_none());
        assert_eq!(
            served.missing("anthropic/claude-sonnet-5-5").to_string(),
            "the provider of the model anthropic/claude-sonnet-5-5 cannot be called: \
             the environment variable ANTHROPIC_API_KEY is not set"
        );
        let refused = load("anthropic/claude-sonnet-5-5").expect_err("refused");
        assert_eq!(refused.to_string(), "providers.anthropic cannot be used");
    }

    /// Each template is reachable by the configuration: by the dialect, the host or the operator's setting.
    #[test]
    fn every_chat_template_is_used_by_some_provider() {
        let service = |base_url: &str, dialect: Option<Dialect>, counted_as: Option<&str>| {
            let base_url = base_url.to_owned();
            let counted_as = counted_as.map(str::to_owned);
            let config = OpenAiConfig { base_url, dialect, counted_as, ..OpenAiConfig::default() };
            openai("main", &config, &Environment::default()).map(|it| it.service().map(str::to_owned))
        };
        let table = [
            ("https://api.venice.ai/api/v1", Some("venice")),
            (
                "https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/l/endpoints/openapi",
                Some("gemini-vertex"),
            ),
            ("https://aiplatform.googleapis.com.example.org/v1", None),
            ("https://api.groq.com/openai/v1", Some("groq")),
            ("https://proxy.example.org/v1", None),
        ];
        for (url, expected) in table {
            assert_eq!(service(url, None, None).unwrap().as_deref(), expected, "{url}");
        }
        for known in Template::services() {
            let said = service("https://api.groq.com/openai/v1", Some(Dialect::Vllm), Some(known)).unwrap();
            assert_eq!(said.as_deref(), Some(known), "what the operator says counts");
        }
        let unknown = service("https://proxy.example.org/v1", None, Some("venise")).unwrap_err().to_string();
        assert!(unknown.contains("`venise`") && unknown.contains("venice"), "{unknown}");
        let models = "gpt-4o gpt-5 gpt-oss gpt-3.5 claude-3 claude-sonnet-4-5 claude-5 gemini-2.0 gemini-2.5 gemini-3 gemma-3 \
                      mistral-medium mistral-small-latest mixtral deepseek-r1 deepseek-v4-flash qwen3 qwen3.5 smollm2 llama-2 \
                      llama-3.3 llama-4 grok-3 grok-4 glm-4.6 glm-5.2 minimax-m2 \
                      claude-opus-4-7 claude-opus-4-8 claude-3-5-haiku qwen3-coder";
        let services = || Template::services().into_iter().chain(["elsewhere"]);
        let reached: BTreeSet<&str> =
            services().flat_map(|it| models.split(' ').map(move |model| Template::of(it, model).name)).collect();
        let left: Vec<&str> = Template::all().map(|it| it.name).filter(|name| !reached.contains(name)).collect();
        assert_eq!(left, ["unknown"]);
    }

    #[test]
    fn every_dialect_of_the_settings_is_known_to_the_provider() {
        for dialect in Dialect::ALL {
            assert!(dialect::named(dialect.name()).is_some(), "{}", dialect.name());
        }
        assert_eq!(Dialect::ALL.len(), dialect::DIALECTS.len());
        for dialect in ResponsesDialect::ALL {
            let name = dialect.name();
            assert!(responses::dialect::named(name).is_some(), "{name}");
        }
        assert_eq!(ResponsesDialect::ALL.len(), responses::dialect::DIALECTS.len());
    }

    #[test]
    fn a_key_goes_out_in_the_header_of_its_service() {
        let header = |host: &str| {
            let dialect = responses::dialect::of_host(host);
            let (name, value) = credential(dialect.key_header, SecretString::from("sk"));
            (name.to_string(), value.expose_secret().to_owned())
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(header("api.openai.com"), pair("authorization", "Bearer sk"));
        assert_eq!(header("mine.openai.azure.com"), pair("api-key", "sk"));
    }

    #[test]
    fn a_host_tells_what_a_responses_service_speaks_unless_the_settings_do() {
        let service = |base_url: &str, dialect: Option<ResponsesDialect>| {
            let config = ResponsesConfig {
                base_url: base_url.to_owned(),
                dialect,
                api_version: Some("preview".to_owned()),
                ..ResponsesConfig::default()
            };
            let provider = responses("main", &config, &Environment::default()).expect("a provider");
            provider.service().map(str::to_owned)
        };
        let table = [
            ("https://api.openai.com/v1", None, Some("openai-responses")),
            ("https://mine.openai.azure.com/openai/v1", None, Some("openai-responses")),
            ("https://proxy.example.org/v1", None, None),
            ("https://proxy.example.org/v1", Some(ResponsesDialect::Xai), Some("xai")),
        ];
        for (base_url, dialect, expected) in table {
            assert_eq!(service(base_url, dialect).as_deref(), expected, "{base_url}");
        }
    }
}
