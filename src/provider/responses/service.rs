//! The service: calls, counts and lists of models.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use http::HeaderMap;
use jiff::Timestamp;

use super::{
    KIND,
    decode::Decoder,
    dialect::{self, Dialect},
    encode,
    form::Form,
    media, omitted, options, rules,
};
use crate::{
    model::{Declared, Generation, Media, Prompt, PromptShape, Role, generation::Unsupported},
    provider::{
        Answer, Count, Error, ModelInfo, PastReasoning, Provider, Refresh, Request, Rules,
        error::Kind,
        http::{Call, Client, Settings, Unusable},
        model_facts::Catalog,
        refused_media::RefusedMedia,
    },
};

/// Where calls go, relative to the base URL.
const PATH: &str = "responses";

/// Where questions go how many tokens a prompt has.
const COUNT_PATH: &str = "responses/input_tokens";

const NOT_FOUND: u16 = 404;

/// A service that speaks the Responses API.
#[derive(Debug, Clone)]
pub struct Responses {
    name: String,
    client: Client,
    dialect: Dialect,
    /// What every path ends with.
    query: String,
    /// Summaries of reasoning are asked for, until the service refuses them.
    summaries: Arc<AtomicBool>,
    models: Catalog,
    refused: RefusedMedia,
}

impl Responses {
    /// The provider of that configured name, with the models that the operator declares.
    pub fn new(
        name: &str,
        settings: Settings,
        dialect: &Dialect,
        declared: BTreeMap<String, Declared>,
    ) -> Result<Self, Unusable> {
        let client = Client::new(name, settings)?;
        let models = Catalog::new(client.host(), declared).checked()?;
        Ok(Self {
            name: name.to_owned(),
            client,
            dialect: *dialect,
            query: String::new(),
            summaries: Arc::new(AtomicBool::new(dialect.openai_models)),
            models,
            refused: RefusedMedia::default(),
        })
    }

    /// Asks for that version of the API, as Azure wants it.
    #[must_use]
    pub fn with_api_version(mut self, version: Option<String>) -> Self {
        self.query = version.map_or_else(String::new, |version| format!("?api-version={version}"));
        self
    }

    fn form(&self, model: &str) -> Form<'_> {
        let model = self.models.model(model);
        Form {
            dialect: &self.dialect,
            provider: &self.name,
            reasons: model.is_some_and(|model| options::reasons(&model)),
            summaries: self.summaries.load(Ordering::Relaxed),
            with_own: true,
        }
    }

    fn answer(&self, prompt: &Prompt, form: Form<'_>) -> Answer {
        let call = Call {
            path: format!("{PATH}{}", self.query),
            headers: HeaderMap::new(),
            body: encode::body(prompt, form),
        };
        self.client
            .clone()
            .stream(call, Decoder::new(&self.dialect))
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
        self.models.model(name)
    }

    fn models(&self) -> Vec<ModelInfo> {
        self.models.models()
    }

    fn refresh(&self, now: Timestamp, interval: Duration) -> Refresh {
        let listing = self.models.listing();
        match self.dialect.list {
            Some(family) => listing.refresh(&self.client, family, now, interval),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn cannot_take(&self, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
        options::cannot_take(&self.dialect, model, wanted)
    }

    fn fitted(&self, model: &ModelInfo, wanted: &Generation) -> Generation {
        options::fitted(&self.dialect, model, wanted)
    }

    fn cannot_read(&self, model: &ModelInfo, media: &Media, role: Role) -> Option<String> {
        media::cannot_read(self.dialect.takes, media, role)
            .or_else(|| model.cannot_read(media, role))
            .or_else(|| self.refused.reason(&model.name, media))
    }

    fn rules(&self, model: &ModelInfo) -> Option<Rules> {
        Some(rules::of(&self.dialect, model))
    }

    fn sends_reasoning(&self, _: &ModelInfo, reasoning: PastReasoning) -> bool {
        self.dialect.reasoning().takes(reasoning)
    }

    fn sends_item(&self, _provider: &str, own: bool) -> bool {
        own && self.dialect.takes_own()
    }

    fn withholds_parts(&self) -> bool {
        true
    }

    fn is_local(&self) -> bool {
        self.dialect.local
    }

    fn counts(&self) -> bool {
        self.dialect.counts
    }

    fn count(&self, prompt: Arc<Prompt>) -> Count {
        let provider = self.clone();
        Box::pin(async move {
            if !provider.dialect.counts {
                return Ok(None);
            }
            let body = encode::question(&prompt, provider.form(&prompt.model));
            let path = format!("{COUNT_PATH}{}", provider.query);
            let client = &provider.client;
            match client.question(&path, &HeaderMap::new(), body).await {
                Ok(answer) => client.counted(&answer["input_tokens"]).map(Some),
                // Older servers do not count.
                Err(error) if provider.dialect.local && error.status == NOT_FOUND => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn request(&self, prompt: &Prompt) -> Option<Request> {
        let form = self.form(&prompt.model);
        Some(Request {
            shape: PromptShape::OpenAiResponses,
            body: encode::body(prompt, form),
            left_out: omitted::omitted(prompt, form),
        })
    }

    /// Where the service refuses something that can be left out, the call is made once more without
    /// it: summaries of reasoning, which OpenAI makes for organizations only that it has verified,
    /// and so all that follow; and what it made itself but cannot read any more.
    fn call(&self, prompt: Arc<Prompt>) -> Answer {
        let provider = self.clone();
        let asked = Arc::clone(&prompt);
        let answer = async move {
            let mut with_own = true;
            loop {
                let form = Form {
                    with_own,
                    ..provider.form(&asked.model)
                };
                let mut answer = provider.answer(&asked, form);
                let begin = answer.next().await;
                match &begin {
                    Some(Err(error)) if form.summaries && refuses_summaries(error) => {
                        tracing::warn!(%error, "the service refuses summaries of reasoning: calling it without");
                        provider.summaries.store(false, Ordering::Relaxed);
                    }
                    Some(Err(error)) if with_own && refuses_own(error) => {
                        tracing::warn!(%error, "the service refuses items of its own: calling it without");
                        with_own = false;
                    }
                    Some(Ok(_) | Err(_)) | None => return stream::iter(begin).chain(answer),
                }
            }
        };
        let answer = Box::pin(stream::once(answer).flatten());
        self.refused.watch(self.clone(), prompt, answer)
    }
}

/// A prompt as OpenAI itself would be sent it, for a model of another one.
pub(in crate::provider) fn request(prompt: &Prompt) -> Request {
    let model = ModelInfo::unknown(&prompt.model);
    let form = Form {
        dialect: &dialect::ORIGINAL,
        provider: "",
        reasons: options::reasons(&model),
        summaries: true,
        with_own: true,
    };
    Request {
        shape: PromptShape::OpenAiResponses,
        body: encode::body(prompt, form),
        left_out: omitted::omitted(prompt, form),
    }
}

/// Whether the service refused the request because of the summaries that it asks for.
fn refuses_summaries(error: &Error) -> bool {
    says(error, &["reasoning summar", "reasoning.summary"])
}

/// Whether the service refused the request because of what it made itself: encrypted for another
/// account, or not with all that belonged to it.
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
    error.code == "invalid_encrypted_content" || says(error, &words)
}

fn says(error: &Error, words: &[&str]) -> bool {
    let message = error.message.to_ascii_lowercase();
    error.kind == Kind::BadRequest && words.iter().any(|words| message.contains(words))
}
