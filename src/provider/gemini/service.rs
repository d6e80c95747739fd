//! The provider for generateContent: calls, token counts and model lists.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::HeaderMap;
use jiff::Timestamp;

use super::{
    KIND, contents,
    decode::Decoder,
    encode::{self, EncodeOptions},
    media, options, rules,
};
use crate::{
    model::{DeclaredModel, Generation, Media, Prompt, Role, generation::Unsupported},
    provider::{
        CountFuture, ModelInfo, PastReasoning, Provider, RefreshFuture, Request, ResponseStream, Rules,
        connection::Connection,
        discovery::Family,
        http::{Call, Settings, SetupError},
        model_names::ModelNames,
    },
};

/// The host of Vertex AI, and the suffix of its regional hosts.
const VERTEX: &str = "aiplatform.googleapis.com";

/// A service that implements generateContent.
#[derive(Debug, Clone)]
pub struct Gemini {
    connection: Connection,
}

impl Gemini {
    /// Creates the provider with this configured name and the models that the operator configured.
    ///
    /// # Errors
    ///
    /// Returns [`SetupError`] if the settings or model names are invalid.
    pub fn new(name: &str, settings: Settings, declared: BTreeMap<String, DeclaredModel>) -> Result<Self, SetupError> {
        let names = ModelNames::InPath;
        let connection = Connection::new(name, settings, declared, names)?;
        Ok(Self { connection })
    }

    fn manner(&self, model: &str) -> EncodeOptions<'_> {
        EncodeOptions { provider: self.connection.client.provider(), model: self.connection.info(model) }
    }

    fn is_vertex(&self) -> bool {
        let start = self.connection.client.host().strip_suffix(VERTEX);
        start.is_some_and(|start| start.is_empty() || start.ends_with(['.', '-']))
    }
}

impl Provider for Gemini {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn service(&self) -> Option<&str> {
        Some(if self.is_vertex() { "gemini-vertex" } else { KIND })
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        self.connection.models.model(name)
    }

    fn models(&self) -> Vec<ModelInfo> {
        self.connection.models.models()
    }

    fn refresh(&self, now: Timestamp, interval: Duration) -> RefreshFuture {
        // Vertex AI has no model list at this path.
        let family = (!self.is_vertex()).then_some(Family::Gemini);
        self.connection.refresh(family, now, interval)
    }

    fn unsupported_settings(&self, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
        options::unsupported_settings(model, wanted)
    }

    fn unsupported_settings_with_tools(&self, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
        options::unsupported_settings_with_tools(model, wanted)
    }

    fn nearest_supported(&self, model: &ModelInfo, wanted: &Generation) -> Generation {
        options::nearest_supported(model, wanted)
    }

    fn unsupported_media(&self, model: &ModelInfo, media: &Media, role: Role) -> Option<String> {
        media::unsupported_media(media, role).or_else(|| self.connection.unsupported_media(model, media, role))
    }

    fn rules(&self, model: &ModelInfo) -> Option<Rules> {
        Some(rules::of(model))
    }

    fn sends_reasoning(&self, _: &ModelInfo, reasoning: PastReasoning) -> bool {
        contents::REASONING.includes(reasoning)
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
            let manner = provider.manner(&prompt.model);
            let body = encode::count_request(&prompt, &manner, provider.is_vertex());
            let path = format!("{}:countTokens", encode::resource(&prompt.model));
            let request = (HeaderMap::new(), body);
            // Other services with this protocol do not count tokens.
            let connection = &provider.connection;
            connection.count(&path, request, "totalTokens", true).await
        })
    }

    fn request(&self, prompt: &Prompt) -> Option<Request> {
        Some(encode::request(prompt, &self.manner(&prompt.model)))
    }

    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
        let resource = encode::resource(&prompt.model);
        let call = Call {
            path: format!("{resource}:streamGenerateContent?alt=sse"),
            headers: HeaderMap::new(),
            body: encode::request(&prompt, &self.manner(&prompt.model)).body,
        };
        let answer = self.connection.client.clone().stream(call, Decoder::default());
        self.connection.refused.watch(self.clone(), prompt, answer)
    }
}

/// Encodes a prompt as for Gemini itself, for a model of another provider.
pub(crate) fn request(prompt: &Prompt) -> Request {
    let manner = EncodeOptions { provider: "", model: ModelInfo::unknown(&prompt.model) };
    encode::request(prompt, &manner)
}
