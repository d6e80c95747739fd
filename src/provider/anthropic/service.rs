//! The service: calls, counts and lists of models.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;

use super::{
    KIND,
    decode::Decoder,
    encode::{self, Encoded, Manner},
    family::{self, ReasoningBack},
    media, options, rules,
    wire::CacheControl,
};
use crate::{
    model::{
        CachePrices, Declared, Generation, Media, Prompt, PromptShape, Role,
        generation::Unsupported,
    },
    provider::{
        Answer, Count, Error, ModelInfo, PastReasoning, Provider, Refresh, Request, Rules,
        discovery::Family,
        error::Kind,
        http::{Call, Client, Settings, Unusable},
        model_facts::Catalog,
        refused_media::RefusedMedia,
    },
};

/// Where calls go, relative to the base URL.
const PATH: &str = "messages";

/// Where questions for sizes go.
const COUNT_PATH: &str = "messages/count_tokens";

/// The status of a service that has no such path.
const NOT_FOUND: u16 = 404;

/// What the service takes for a token that it keeps for an hour, in percent of its price without a
/// cache; its documentation of prices.
const HOUR_PERCENT: u32 = 200;

/// How long the service keeps what it has read of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptCache {
    /// Nothing is marked.
    Off,
    /// Five minutes from its last use; the service's default.
    #[default]
    FiveMinutes,
    /// An hour, at a higher price.
    Hour,
}

/// A service that speaks Anthropic Messages.
#[derive(Debug, Clone)]
pub struct Anthropic {
    name: String,
    client: Client,
    cache: PromptCache,
    reasoning_back: Option<ReasoningBack>,
    models: Catalog,
    refused: RefusedMedia,
}

impl Anthropic {
    /// The provider of that configured name, with the models that the operator declares.
    pub fn new(
        name: &str,
        settings: Settings,
        declared: BTreeMap<String, Declared>,
    ) -> Result<Self, Unusable> {
        let client = Client::new(name, settings)?;
        let models = Catalog::new(client.host(), declared).checked()?;
        Ok(Self {
            name: name.to_owned(),
            client,
            cache: PromptCache::default(),
            reasoning_back: None,
            models,
            refused: RefusedMedia::default(),
        })
    }

    /// Says how long the service is to keep what it has read of a prompt.
    #[must_use]
    pub fn with_prompt_cache(mut self, cache: PromptCache) -> Self {
        self.cache = cache;
        self
    }

    /// Says which reasoning goes back, whatever the names of models say.
    #[must_use]
    pub fn with_reasoning_back(mut self, reasoning: Option<ReasoningBack>) -> Self {
        self.reasoning_back = reasoning;
        self
    }

    /// What a model takes.
    fn family(&self, model: &ModelInfo) -> family::Family {
        family::Family::of(model).with_reasoning_back(self.reasoning_back)
    }

    fn manner(&self, model: &str) -> Manner<'_> {
        let info = self.models.model(model);
        Manner {
            provider: &self.name,
            model: info.unwrap_or_else(|| ModelInfo::unknown(model)),
            cache: self.cache.marker(),
            reasoning_back: self.reasoning_back,
            with_reasoning: true,
            with_system: true,
        }
    }

    /// Where the service refuses reasoning that it wrote itself, for a reason of which nothing is
    /// known here, or instructions within the conversation, the call is made once more without.
    fn answer_to(&self, prompt: Arc<Prompt>) -> Answer {
        let encoded = encode::request(&prompt, &self.manner(&prompt.model));
        let Encoded {
            has_reasoning,
            has_system,
            ..
        } = encoded;
        if !has_reasoning && !has_system {
            return self.answer(encoded);
        }
        let provider = self.clone();
        let mut first = self.answer(encoded);
        let answer = async move {
            let manner = provider.manner(&prompt.model);
            let without = match first.next().await {
                Some(Err(error)) if has_reasoning && refuses_reasoning(&error) => {
                    tracing::warn!(%error, "the service refuses reasoning of its own: calling it without");
                    Manner {
                        with_reasoning: false,
                        ..manner
                    }
                }
                Some(Err(error)) if has_system && refuses_system(&error) => {
                    tracing::warn!(%error, "the service refuses instructions within the conversation: calling it with those of a user");
                    Manner {
                        with_system: false,
                        ..manner
                    }
                }
                Some(begin) => return Box::pin(stream::iter([begin]).chain(first)) as Answer,
                None => return first,
            };
            provider.answer(encode::request(&prompt, &without))
        };
        Box::pin(stream::once(answer).flatten())
    }

    fn answer(&self, encoded: Encoded) -> Answer {
        let call = Call {
            path: PATH.to_owned(),
            headers: encoded.headers,
            body: encoded.body,
        };
        let decoder = Decoder::new(encoded.fingerprint);
        self.client.clone().stream(call, decoder)
    }
}

impl PromptCache {
    /// The prices with this cache, by those with the service's default.
    fn prices(self, prices: CachePrices) -> CachePrices {
        match self {
            Self::Off | Self::FiveMinutes => prices,
            Self::Hour => CachePrices {
                write: prices.write.max(HOUR_PERCENT),
                ..prices
            },
        }
    }

    pub(super) fn marker(self) -> Option<CacheControl> {
        let ttl = match self {
            Self::Off => return None,
            Self::FiveMinutes => None,
            Self::Hour => Some("1h"),
        };
        Some(CacheControl {
            kind: "ephemeral",
            ttl,
        })
    }
}

impl Provider for Anthropic {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        let model = self.models.model(name)?;
        let cache_prices = model.cache_prices.map(|prices| self.cache.prices(prices));
        Some(ModelInfo {
            cache_prices,
            ..model
        })
    }

    fn models(&self) -> Vec<ModelInfo> {
        self.models.models()
    }

    fn refresh(&self, now: Timestamp, interval: Duration) -> Refresh {
        let listing = self.models.listing();
        // A server in one's own network that speaks the protocol lists its models as others do.
        let family = if self.client.is_plain() {
            Family::Server
        } else {
            Family::Anthropic
        };
        listing.refresh(&self.client, family, now, interval)
    }

    fn cannot_take(&self, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
        options::cannot_take(model, wanted)
    }

    fn fitted(&self, model: &ModelInfo, wanted: &Generation) -> Generation {
        options::fitted(model, wanted)
    }

    fn cannot_read(&self, model: &ModelInfo, media: &Media, role: Role) -> Option<String> {
        media::cannot_read(media, role)
            .or_else(|| model.cannot_read(media, role))
            .or_else(|| self.refused.reason(&model.name, media))
    }

    fn rules(&self, model: &ModelInfo) -> Option<Rules> {
        Some(rules::of(self.family(model), model))
    }

    fn sends_reasoning(&self, model: &ModelInfo, reasoning: PastReasoning) -> bool {
        self.family(model).reasoning().takes(reasoning)
    }

    fn sends_item(&self, provider: &str, _own: bool) -> bool {
        provider == self.name
    }

    fn withholds_parts(&self) -> bool {
        true
    }

    fn counts(&self) -> bool {
        true
    }

    fn count(&self, prompt: Arc<Prompt>) -> Count {
        let provider = self.clone();
        Box::pin(async move {
            let Encoded { body, headers, .. } =
                encode::question(&prompt, &provider.manner(&prompt.model));
            match provider.client.question(COUNT_PATH, &headers, body).await {
                Ok(answer) => provider.client.counted(&answer["input_tokens"]).map(Some),
                // Others who speak the protocol do not count.
                Err(error) if error.status == NOT_FOUND => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn request(&self, prompt: &Prompt) -> Option<Request> {
        let Encoded { body, left_out, .. } = encode::request(prompt, &self.manner(&prompt.model));
        Some(Request {
            shape: PromptShape::Anthropic,
            body,
            left_out,
        })
    }

    fn call(&self, prompt: Arc<Prompt>) -> Answer {
        let answer = self.answer_to(Arc::clone(&prompt));
        self.refused.watch(self.clone(), prompt, answer)
    }
}

/// Whether the service refused the request because of reasoning in it.
fn refuses_reasoning(error: &Error) -> bool {
    let words = error.message.to_ascii_lowercase();
    error.kind == Kind::BadRequest
        && words.contains("thinking")
        && [
            "signature",
            "cannot be modified",
            "bound to",
            "cannot be `thinking`",
            "expected `thinking`",
        ]
        .iter()
        .any(|said| words.contains(said))
}

/// Whether the service refused the request because of instructions within the conversation.
fn refuses_system(error: &Error) -> bool {
    let words = error.message.to_ascii_lowercase();
    error.kind == Kind::BadRequest
        && words.contains("role")
        && words.contains("system")
        && ["not supported", "must be", "should be", "unexpected role"]
            .iter()
            .any(|said| words.contains(said))
}

/// A prompt as Anthropic itself would be sent it, for a model of another one.
pub(in crate::provider) fn request(prompt: &Prompt) -> Request {
    let manner = Manner {
        provider: "",
        model: ModelInfo::unknown(&prompt.model),
        cache: None,
        reasoning_back: None,
        with_reasoning: true,
        with_system: true,
    };
    let Encoded { body, left_out, .. } = encode::request(prompt, &manner);
    Request {
        shape: PromptShape::Anthropic,
        body,
        left_out,
    }
}
