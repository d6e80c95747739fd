//! The provider for the Responses API: calls, token counts and model lists.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::HeaderMap;
use jiff::Timestamp;

use super::{
    KIND,
    decode::Decoder,
    dialect::{self, Dialect},
    encode,
    encode_options::EncodeOptions,
    media, options, rules,
};
use crate::{
    model::{DeclaredModel, Generation, Media, Prompt, Role, generation::Unsupported},
    provider::{
        CountFuture, Error, ModelInfo, PastReasoning, Provider, RefreshFuture, Request, ResponseStream, Rules,
        connection::Connection,
        http::{Call, Settings, SetupError, retried},
        model_names::ModelNames,
    },
};

/// Path of calls, relative to the base URL.
const PATH: &str = "responses";

/// Path of token counts, relative to the base URL.
const COUNT_PATH: &str = "responses/input_tokens";

/// A service that implements the Responses API.
#[derive(Debug, Clone)]
pub struct Responses {
    connection: Connection,
    dialect: Dialect,
    /// Query string that is appended to every path.
    query: String,
    /// Whether summaries of reasoning are requested. Cleared once the service rejects them.
    summaries: Arc<AtomicBool>,
}

impl Responses {
    /// Creates the provider with this configured name and the models that the operator configured.
    ///
    /// # Errors
    ///
    /// Returns [`SetupError`] if the settings or model names are invalid.
    pub fn new(
        name: &str,
        settings: Settings,
        dialect: &Dialect,
        declared: BTreeMap<String, DeclaredModel>,
    ) -> Result<Self, SetupError> {
        let names = ModelNames::InBody;
        let connection = Connection::new(name, settings, declared, names)?;
        Ok(Self {
            connection,
            dialect: *dialect,
            query: String::new(),
            summaries: Arc::new(AtomicBool::new(dialect.openai_models)),
        })
    }

    /// Sets the API version to request, which Azure requires.
    #[must_use]
    pub fn with_api_version(mut self, version: Option<String>) -> Self {
        self.query = version.map_or_else(String::new, |version| format!("?api-version={version}"));
        self
    }

    fn form(&self, model: &str) -> EncodeOptions<'_> {
        let model = self.connection.models.model(model);
        EncodeOptions {
            dialect: &self.dialect,
            provider: self.connection.client.provider(),
            reasons: model.is_some_and(|model| options::is_reasoning_model(&model)),
            summaries: self.summaries.load(Ordering::Relaxed),
            with_own_items: true,
        }
    }

    /// Calls the model. If the service rejects an optional part of the request, the call is repeated
    /// without it. This applies to reasoning summaries, which OpenAI supports only for verified
    /// organizations and which are then left out of all later calls, and to items that the service
    /// generated but can no longer read.
    fn answer(&self, prompt: Arc<Prompt>, with_own_items: bool) -> ResponseStream {
        let form = EncodeOptions { with_own_items, ..self.form(&prompt.model) };
        let asks_for_summaries = form.summaries;
        let call = Call {
            path: format!("{PATH}{}", self.query),
            headers: HeaderMap::new(),
            body: encode::request(&prompt, form).body,
        };
        let client = self.connection.client.clone();
        let provider = self.clone();
        retried(client.stream(call, Decoder::new(&self.dialect)), move |error| {
            if asks_for_summaries && refuses_summaries(error) {
                tracing::warn!(%error, "service rejected reasoning summaries; retrying without them");
                provider.summaries.store(false, Ordering::Relaxed);
                Some(provider.answer(prompt, with_own_items))
            } else if with_own_items && refuses_own(error) {
                tracing::warn!(%error, "service rejected its own items; retrying without them");
                Some(provider.answer(prompt, false))
            } else {
                None
            }
        })
    }
}

impl Provider for Responses {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn service(&self) -> Option<&str> {
        (self.dialect.name != dialect::COMPATIBLE.name).then_some(self.dialect.counted_as)
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        self.connection.models.model(name)
    }

    fn models(&self) -> Vec<ModelInfo> {
        self.connection.models.models()
    }

    fn refresh(&self, now: Timestamp, interval: Duration) -> RefreshFuture {
        self.connection.refresh(self.dialect.list, now, interval)
    }

    fn unsupported_settings(&self, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
        options::unsupported_settings(&self.dialect, model, wanted)
    }

    fn nearest_supported(&self, model: &ModelInfo, wanted: &Generation) -> Generation {
        options::nearest_supported(&self.dialect, model, wanted)
    }

    fn unsupported_media(&self, model: &ModelInfo, media: &Media, role: Role) -> Option<String> {
        media::unsupported_media(self.dialect.media, media, role)
            .or_else(|| self.connection.unsupported_media(model, media, role))
    }

    fn rules(&self, model: &ModelInfo) -> Option<Rules> {
        Some(rules::of(&self.dialect, model))
    }

    fn sends_reasoning(&self, _: &ModelInfo, reasoning: PastReasoning) -> bool {
        self.dialect.reasoning().includes(reasoning)
    }

    fn sends_item(&self, _provider: &str, own: bool) -> bool {
        own && self.dialect.sends_own_items()
    }

    fn withholds_parts(&self) -> bool {
        true
    }

    fn is_local(&self) -> bool {
        self.dialect.local
    }

    fn can_count_tokens(&self) -> bool {
        self.dialect.counts
    }

    fn count(&self, prompt: Arc<Prompt>) -> CountFuture {
        let provider = self.clone();
        Box::pin(async move {
            if !provider.dialect.counts {
                return Ok(None);
            }
            let body = encode::count_request(&prompt, provider.form(&prompt.model));
            let path = format!("{COUNT_PATH}{}", provider.query);
            let request = (HeaderMap::new(), body);
            // Older versions of self-hosted servers do not count tokens.
            let is_optional = provider.dialect.local;
            let connection = &provider.connection;
            connection.count(&path, request, "input_tokens", is_optional).await
        })
    }

    fn request(&self, prompt: &Prompt) -> Option<Request> {
        Some(encode::request(prompt, self.form(&prompt.model)))
    }

    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
        let answer = self.answer(Arc::clone(&prompt), true);
        self.connection.refused.watch(self.clone(), prompt, answer)
    }
}

/// Encodes a prompt as for OpenAI itself, for a model of another provider.
pub(crate) fn request(prompt: &Prompt) -> Request {
    let model = ModelInfo::unknown(&prompt.model);
    let form = EncodeOptions {
        dialect: &dialect::OPENAI,
        provider: "",
        reasons: options::is_reasoning_model(&model),
        summaries: true,
        with_own_items: true,
    };
    encode::request(prompt, form)
}

/// Whether the service rejected the request because it asks for summaries.
fn refuses_summaries(error: &Error) -> bool {
    error.rejects(&[], &["reasoning summar", "reasoning.summary"])
}

/// Whether the service rejected its own items: encrypted for another account, or without the items
/// that belong to them.
fn refuses_own(error: &Error) -> bool {
    let words = [
        "encrypted content",
        "encrypted_content",
        "without its required",
        "item_id mismatch",
        "items are not persisted",
        "referenced reasoning item",
        "was not found or has expired",
        "item with id 'rs_",
    ];
    error.code == "invalid_encrypted_content" || error.rejects(&[], &words)
}
