//! The provider for Chat Completions: calls, token counts and model lists.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::HeaderMap;
use jiff::Timestamp;

use super::{
    KIND,
    decode::Decoder,
    dialect::{self, Dialect},
    encode,
    encode_options::EncodeOptions,
    media, messages, options, rules, token_count,
};
use crate::{
    model::{DeclaredModel, Generation, Media, Message, Prompt, RequestDiff, Role, generation::Unsupported},
    provider::{
        CountFuture, ModelInfo, PastReasoning, Provider, RefreshFuture, Request, ResponseStream, Rules,
        connection::Connection,
        http::{Call, Settings, SetupError},
        model_names::ModelNames,
    },
};

/// Path of calls, relative to the base URL.
const PATH: &str = "chat/completions";

/// A service that implements Chat Completions.
#[derive(Debug, Clone)]
pub struct OpenAi {
    connection: Connection,
    dialect: Dialect,
    developer: bool,
    counted_as: Option<String>,
}

impl OpenAi {
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
        Ok(Self { connection, dialect: *dialect, developer: false, counted_as: None })
    }

    /// Sends instructions with the role `developer`, if the service supports it.
    #[must_use]
    pub fn with_developer_role(mut self, developer: bool) -> Self {
        self.developer = developer && self.dialect.developer_role;
        self
    }

    /// Sets the service whose rules for counting prompts apply, regardless of the dialect and the
    /// host.
    #[must_use]
    pub fn with_counted_as(mut self, service: Option<String>) -> Self {
        self.counted_as = service;
        self
    }

    fn form(&self) -> EncodeOptions<'_> {
        EncodeOptions { dialect: &self.dialect, provider: self.connection.client.provider(), developer: self.developer }
    }
}

impl Provider for OpenAi {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn service(&self) -> Option<&str> {
        let dialect = (self.dialect.name != dialect::COMPATIBLE.name).then_some(self.dialect.name);
        self.counted_as.as_deref().or(dialect).or_else(|| dialect::service_of_host(self.connection.client.host()))
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        self.connection.models.model(name)
    }

    fn models(&self) -> Vec<ModelInfo> {
        self.connection.models.models()
    }

    fn refresh(&self, now: Timestamp, interval: Duration) -> RefreshFuture {
        let family = Some(self.dialect.list);
        self.connection.refresh(family, now, interval)
    }

    fn unsupported_settings(&self, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
        options::unsupported_settings(&self.dialect, model, wanted)
    }

    fn unsupported_settings_with_tools(&self, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
        options::unsupported_settings_with_tools(&self.dialect, model, wanted)
    }

    fn nearest_supported(&self, model: &ModelInfo, wanted: &Generation) -> Generation {
        options::nearest_supported(&self.dialect, model, wanted)
    }

    fn is_local(&self) -> bool {
        self.dialect.local
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

    fn sends_item(&self, _provider: &str, _own: bool) -> bool {
        false
    }

    fn withholds_parts(&self) -> bool {
        true
    }

    fn arrangement(&self, system: &str, messages: &[Message]) -> RequestDiff {
        messages::arrangement(system, messages, self.form())
    }

    fn can_count_tokens(&self) -> bool {
        self.dialect.counter.is_some()
    }

    fn count(&self, prompt: Arc<Prompt>) -> CountFuture {
        let provider = self.clone();
        Box::pin(async move {
            let Some(counter) = provider.dialect.counter else {
                return Ok(None);
            };
            let client = &provider.connection.client;
            let counted = token_count::count(client, counter, &prompt, provider.form());
            counted.await.map(Some)
        })
    }

    fn request(&self, prompt: &Prompt) -> Option<Request> {
        Some(encode::request(prompt, self.form()).0)
    }

    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
        let (Request { body, .. }, fingerprint) = encode::request(&prompt, self.form());
        let call = Call { path: PATH.to_owned(), headers: HeaderMap::new(), body };
        let decoder = Decoder::new(&self.dialect, fingerprint);
        let answer = self.connection.client.clone().stream(call, decoder);
        self.connection.refused.watch(self.clone(), prompt, answer)
    }
}

/// Encodes a prompt as for OpenAI itself, for a model of any provider.
pub(crate) fn request(prompt: &Prompt) -> Request {
    let form = EncodeOptions { dialect: dialect::openai(), provider: "", developer: false };
    encode::request(prompt, form).0
}
