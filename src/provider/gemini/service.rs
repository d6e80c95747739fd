//! The provider for generateContent: calls, token counts and model lists.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::HeaderMap;
use jiff::Timestamp;

use super::{
    KIND, contents,
    decode::Decoder,
    encode::{self, EncodeOptions, Encoded},
    media, options, rules,
};
use crate::{
    model::{
        DeclaredModel, Generation, Media, Prompt, PromptFormat, Role, generation::Unsupported,
    },
    provider::{
        CountFuture, ModelInfo, PastReasoning, Provider, RefreshFuture, Request, ResponseStream,
        Rules,
        discovery::Family,
        http::{Call, Client, Settings, SetupError},
        model_facts::Catalog,
        model_names::ModelNames,
        refused_media::RefusedMedia,
    },
};

/// The host of Vertex AI, and the suffix of its regional hosts.
const VERTEX: &str = "aiplatform.googleapis.com";

/// Status of a service that does not have the path.
const NOT_FOUND: u16 = 404;

/// A service that implements generateContent.
#[derive(Debug, Clone)]
pub struct Gemini {
    name: String,
    client: Client,
    models: Catalog,
    refused: RefusedMedia,
}

impl Gemini {
    /// Creates the provider with this configured name and the models that the operator configured.
    ///
    /// # Errors
    ///
    /// Returns [`SetupError`] if the settings or model names are invalid.
    pub fn new(
        name: &str,
        settings: Settings,
        declared: BTreeMap<String, DeclaredModel>,
    ) -> Result<Self, SetupError> {
        let client = Client::new(name, settings)?;
        let models = Catalog::new(client.host(), declared)
            .with_names(ModelNames::InPath)
            .checked()?;
        Ok(Self {
            name: name.to_owned(),
            client,
            models,
            refused: RefusedMedia::default(),
        })
    }

    fn manner(&self, model: &str) -> EncodeOptions<'_> {
        let info = self.models.model(model);
        EncodeOptions {
            provider: &self.name,
            model: info.unwrap_or_else(|| ModelInfo::unknown(model)),
        }
    }

    fn is_vertex(&self) -> bool {
        let start = self.client.host().strip_suffix(VERTEX);
        start.is_some_and(|start| start.is_empty() || start.ends_with(['.', '-']))
    }
}

impl Provider for Gemini {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn service(&self) -> Option<&str> {
        Some(if self.is_vertex() {
            "gemini-vertex"
        } else {
            KIND
        })
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        self.models.model(name)
    }

    fn models(&self) -> Vec<ModelInfo> {
        self.models.models()
    }

    fn refresh(&self, now: Timestamp, interval: Duration) -> RefreshFuture {
        let listing = self.models.listing();
        // Vertex AI has no model list at this path.
        if self.is_vertex() {
            return Box::pin(std::future::ready(()));
        }
        listing.refresh(&self.client, Family::Gemini, now, interval)
    }

    fn unsupported_settings(&self, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
        options::unsupported_settings(model, wanted)
    }

    fn unsupported_settings_with_tools(
        &self,
        model: &ModelInfo,
        wanted: &Generation,
    ) -> Vec<Unsupported> {
        options::unsupported_settings_with_tools(model, wanted)
    }

    fn nearest_supported(&self, model: &ModelInfo, wanted: &Generation) -> Generation {
        options::nearest_supported(model, wanted)
    }

    fn unsupported_media(&self, model: &ModelInfo, media: &Media, role: Role) -> Option<String> {
        media::unsupported_media(media, role)
            .or_else(|| model.unsupported_media(media, role))
            .or_else(|| self.refused.reason(&model.name, media))
    }

    fn rules(&self, model: &ModelInfo) -> Option<Rules> {
        Some(rules::of(model))
    }

    fn sends_reasoning(&self, _: &ModelInfo, reasoning: PastReasoning) -> bool {
        contents::REASONING.includes(reasoning)
    }

    fn sends_item(&self, provider: &str, _own: bool) -> bool {
        provider == self.name
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
            let client = &provider.client;
            match client.request_json(&path, &HeaderMap::new(), body).await {
                Ok(answer) => client.parse_token_count(&answer["totalTokens"]).map(Some),
                // Other services with this protocol do not count tokens.
                Err(error) if error.status == NOT_FOUND => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn request(&self, prompt: &Prompt) -> Option<Request> {
        let Encoded { body, left_out } = encode::request(prompt, &self.manner(&prompt.model));
        Some(Request {
            shape: PromptFormat::Gemini,
            body,
            left_out,
        })
    }

    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
        let Encoded { body, .. } = encode::request(&prompt, &self.manner(&prompt.model));
        let call = Call {
            path: format!(
                "{}:streamGenerateContent?alt=sse",
                encode::resource(&prompt.model)
            ),
            headers: HeaderMap::new(),
            body,
        };
        let answer = self.client.clone().stream(call, Decoder::new());
        self.refused.watch(self.clone(), prompt, answer)
    }
}

/// Encodes a prompt as for Gemini itself, for a model of another provider.
pub(in crate::provider) fn request(prompt: &Prompt) -> Request {
    let manner = EncodeOptions {
        provider: "",
        model: ModelInfo::unknown(&prompt.model),
    };
    let Encoded { body, left_out } = encode::request(prompt, &manner);
    Request {
        shape: PromptFormat::Gemini,
        body,
        left_out,
    }
}
