//! The provider for Anthropic Messages: calls, token counts and model lists.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{
    KIND,
    decode::Decoder,
    encode::{self, EncodeOptions, Encoded},
    family, media, options, rules,
    wire::CacheControl,
};
use crate::{
    config::PromptCache,
    model::{
        CachePrices, DeclaredModel, Generation, Media, Prompt, PromptFormat, Role, generation::Unsupported,
        service_rules::SignedReasoning,
    },
    provider::{
        CountFuture, Error, ModelInfo, PastReasoning, Provider, RefreshFuture, Request, ResponseStream, Rules,
        connection::Connection,
        discovery::Family,
        http::{Call, Settings, SetupError, retried},
        model_names::ModelNames,
    },
};

/// Path of calls, relative to the base URL.
const PATH: &str = "messages";

/// Path of token counts, relative to the base URL.
const COUNT_PATH: &str = "messages/count_tokens";

/// Price of a token that is cached for an hour, in percent of the price of an uncached input token.
/// Source: Anthropic's pricing documentation.
const HOUR_PERCENT: u32 = 200;

/// A service that implements Anthropic Messages.
#[derive(Debug, Clone)]
pub struct Anthropic {
    connection: Connection,
    prompt_cache: PromptCache,
    reasoning_back: Option<SignedReasoning>,
}

impl Anthropic {
    /// Creates the provider with this configured name and the models that the operator configured.
    ///
    /// # Errors
    ///
    /// Returns [`SetupError`] if the settings or model names are invalid.
    pub fn new(name: &str, settings: Settings, declared: BTreeMap<String, DeclaredModel>) -> Result<Self, SetupError> {
        let names = ModelNames::InBody;
        let connection = Connection::new(name, settings, declared, names)?;
        Ok(Self { connection, prompt_cache: PromptCache::default(), reasoning_back: None })
    }

    /// Sets how long the service keeps prompts in its cache.
    #[must_use]
    pub fn with_prompt_cache(mut self, prompt_cache: PromptCache) -> Self {
        self.prompt_cache = prompt_cache;
        self
    }

    /// Overrides which reasoning is sent back, regardless of model names.
    #[must_use]
    pub fn with_reasoning_back(mut self, reasoning: Option<SignedReasoning>) -> Self {
        self.reasoning_back = reasoning;
        self
    }

    /// What a model accepts.
    fn family(&self, model: &ModelInfo) -> family::Family {
        family::Family::of(model).with_reasoning_back(self.reasoning_back)
    }

    fn manner(&self, model: &str) -> EncodeOptions<'_> {
        EncodeOptions {
            provider: self.connection.client.provider(),
            model: self.connection.info(model),
            cache: self.prompt_cache.marker(),
            reasoning_back: self.reasoning_back,
            with_reasoning: true,
            with_system: true,
        }
    }

    /// Calls the model. If the service rejects its own reasoning for an unknown reason, or rejects
    /// system messages within the conversation, the call is repeated once without them.
    fn answer_to(&self, prompt: Arc<Prompt>) -> ResponseStream {
        let encoded = encode::request(&prompt, &self.manner(&prompt.model));
        let Encoded { has_reasoning, has_system, .. } = encoded;
        if !has_reasoning && !has_system {
            return self.answer(encoded);
        }
        let provider = self.clone();
        retried(self.answer(encoded), move |error| {
            let manner = provider.manner(&prompt.model);
            let without = if has_reasoning && refuses_reasoning(error) {
                tracing::warn!(%error, "service rejected its own reasoning; retrying without it");
                EncodeOptions { with_reasoning: false, ..manner }
            } else if has_system && refuses_system(error) {
                tracing::warn!(%error, "service rejected system messages within the conversation; retrying with user messages");
                EncodeOptions { with_system: false, ..manner }
            } else {
                return None;
            };
            Some(provider.answer(encode::request(&prompt, &without)))
        })
    }

    fn answer(&self, encoded: Encoded) -> ResponseStream {
        let call = Call { path: PATH.to_owned(), headers: encoded.headers, body: encoded.body };
        let decoder = Decoder::new(encoded.fingerprint);
        self.connection.client.clone().stream(call, decoder)
    }
}

impl PromptCache {
    /// The prices with this cache duration, derived from those of the default duration.
    fn prices(self, prices: CachePrices) -> CachePrices {
        match self {
            Self::Off | Self::FiveMinutes => prices,
            Self::Hour => CachePrices { write: prices.write.max(HOUR_PERCENT), ..prices },
        }
    }

    pub(super) fn marker(self) -> Option<CacheControl> {
        let ttl = match self {
            Self::Off => return None,
            Self::FiveMinutes => None,
            Self::Hour => Some("1h"),
        };
        Some(CacheControl { kind: "ephemeral", ttl })
    }
}

impl Provider for Anthropic {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        let model = self.connection.models.model(name)?;
        let cache_prices = model.cache_prices.map(|prices| self.prompt_cache.prices(prices));
        Some(ModelInfo { cache_prices, ..model })
    }

    fn models(&self) -> Vec<ModelInfo> {
        self.connection.models.models()
    }

    fn refresh(&self, now: Timestamp, interval: Duration) -> RefreshFuture {
        // A self-hosted server that implements the protocol lists its models like other self-hosted
        // servers.
        let family = if self.connection.client.is_plain() { Family::Server } else { Family::Anthropic };
        self.connection.refresh(Some(family), now, interval)
    }

    fn unsupported_settings(&self, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
        options::unsupported_settings(model, wanted)
    }

    fn nearest_supported(&self, model: &ModelInfo, wanted: &Generation) -> Generation {
        options::nearest_supported(model, wanted)
    }

    fn unsupported_media(&self, model: &ModelInfo, media: &Media, role: Role) -> Option<String> {
        media::unsupported_media(media, role).or_else(|| self.connection.unsupported_media(model, media, role))
    }

    fn rules(&self, model: &ModelInfo) -> Option<Rules> {
        Some(rules::of(self.family(model), model))
    }

    fn sends_reasoning(&self, model: &ModelInfo, reasoning: PastReasoning) -> bool {
        self.family(model).reasoning().includes(reasoning)
    }

    fn sends_item(&self, provider: &str, _own: bool) -> bool {
        provider == self.connection.client.provider()
    }

    fn withholds_parts(&self) -> bool {
        true
    }

    fn can_count_tokens(&self) -> bool {
        true
    }

    fn count(&self, prompt: Arc<Prompt>) -> CountFuture {
        let provider = self.clone();
        Box::pin(async move {
            let Encoded { body, headers, .. } = encode::count_request(&prompt, &provider.manner(&prompt.model));
            let connection = &provider.connection;
            // Other services with this protocol do not count tokens.
            let counted = connection.count(COUNT_PATH, (headers, body), "input_tokens", true);
            counted.await
        })
    }

    fn request(&self, prompt: &Prompt) -> Option<Request> {
        let Encoded { body, left_out, .. } = encode::request(prompt, &self.manner(&prompt.model));
        Some(Request { shape: PromptFormat::Anthropic, body, left_out })
    }

    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
        let answer = self.answer_to(Arc::clone(&prompt));
        self.connection.refused.watch(self.clone(), prompt, answer)
    }
}

/// Whether the service rejected the request because of its reasoning.
fn refuses_reasoning(error: &Error) -> bool {
    let words = ["signature", "cannot be modified", "bound to", "cannot be `thinking`", "expected `thinking`"];
    error.rejects(&["thinking"], &words)
}

/// Whether the service rejected the request because of system messages within the conversation.
fn refuses_system(error: &Error) -> bool {
    error.rejects(&["role", "system"], &["not supported", "must be", "should be", "unexpected role"])
}

/// Encodes a prompt as for Anthropic itself, for a model of another provider.
pub(crate) fn request(prompt: &Prompt) -> Request {
    let manner = EncodeOptions {
        provider: "",
        model: ModelInfo::unknown(&prompt.model),
        cache: None,
        reasoning_back: None,
        with_reasoning: true,
        with_system: true,
    };
    let Encoded { body, left_out, .. } = encode::request(prompt, &manner);
    Request { shape: PromptFormat::Anthropic, body, left_out }
}
