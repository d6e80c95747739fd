//! The [`Provider`] trait, which every client of a model service implements.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use futures_util::Stream;
use jiff::Timestamp;

use super::{
    Chunk, Error, ModelInfo,
    rules::{PastReasoning, Rules},
};
use crate::model::{
    Generation, Media, Message, Prompt, PromptFormat, PromptNote, RequestDiff, Role, generation::Unsupported,
};

/// A streamed model response. It ends after [`Chunk::Finished`] or an error. A stream that ends
/// without either was interrupted.
pub type ResponseStream = Pin<Box<dyn Stream<Item = Result<Chunk, Error>> + Send>>;

/// A pending token count. Resolves to `None` if the provider does not count tokens.
pub type CountFuture = Pin<Box<dyn Future<Output = Result<Option<u32>, Error>> + Send>>;

/// A pending refresh of the model list. It reports no error: its result is visible only in what
/// [`Provider::model`] returns afterwards.
pub type RefreshFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A model service.
pub trait Provider: fmt::Debug + Send + Sync {
    /// The protocol that the provider uses, as named in the API.
    fn kind(&self) -> &'static str;

    /// The service behind the protocol, such as `groq`. Returns `None` if unknown.
    fn service(&self) -> Option<&str> {
        Some(self.kind())
    }

    /// The model with this name. Returns `None` if the provider has no such model.
    fn model(&self, name: &str) -> Option<ModelInfo>;

    /// The models that the provider knows by name, in order. It may have others.
    fn models(&self) -> Vec<ModelInfo>;

    /// Fetches the service's model list, unless it was fetched less than `interval` ago. Services
    /// run by third parties are queried less often. At most one fetch is in progress at a time. A
    /// failed fetch changes nothing.
    fn refresh(&self, _now: Timestamp, _interval: Duration) -> RefreshFuture {
        Box::pin(std::future::ready(()))
    }

    /// The settings that cannot be sent to the model. They are left out of the request and reported
    /// to the host. By default derived from the facts about the model.
    fn unsupported_settings(&self, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
        model.unsupported_settings(wanted)
    }

    /// Returns the settings, each in the nearest form that the model supports. By default derived
    /// from the facts about the model.
    fn nearest_supported(&self, model: &ModelInfo, wanted: &Generation) -> Generation {
        model.nearest_supported(wanted)
    }

    /// Why the model cannot take this media in a message of this role, as a sentence. Returns
    /// `None` if it can. By default derived from the facts about the model.
    fn unsupported_media(&self, model: &ModelInfo, media: &Media, role: Role) -> Option<String> {
        model.unsupported_media(media, role)
    }

    /// The settings that cannot be sent to the model together with tools. They are left out or
    /// replaced by the form that the model accepts, and reported to the host.
    fn unsupported_settings_with_tools(&self, _: &ModelInfo, _wanted: &Generation) -> Vec<Unsupported> {
        Vec::new()
    }

    /// The rules by which requests to the model are encoded. Returns `None` if the provider sends
    /// no requests.
    fn rules(&self, _: &ModelInfo) -> Option<Rules> {
        None
    }

    /// Whether this reasoning is sent with a later prompt. If not, it takes no space in the context
    /// window.
    fn sends_reasoning(&self, _: &ModelInfo, _: PastReasoning) -> bool {
        true
    }

    /// Whether a provider item is sent with a later prompt. `provider` is the configured name of
    /// the provider that created it; `own` is whether the model that is called wrote the message.
    fn sends_item(&self, _provider: &str, _own: bool) -> bool {
        true
    }

    /// Whether any reasoning or provider item is withheld from a later prompt. If not,
    /// [`Provider::sends_reasoning`] and [`Provider::sends_item`] always return true.
    fn withholds_parts(&self) -> bool {
        false
    }

    /// How the messages of a request differ from those of the conversation, so that the size
    /// estimate covers what is actually sent.
    fn arrangement(&self, _system: &str, _messages: &[Message]) -> RequestDiff {
        RequestDiff::default()
    }

    /// Whether this is a self-hosted model server, which has a small context window and for which a
    /// rejected request is costly.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether the provider can count the tokens of a prompt.
    fn can_count_tokens(&self) -> bool {
        false
    }

    /// Counts the tokens of a prompt as the model would read it.
    fn count(&self, _: Arc<Prompt>) -> CountFuture {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The request that [`Provider::call`] sends for a prompt. Returns `None` if it sends none.
    fn request(&self, _: &Prompt) -> Option<Request> {
        None
    }

    /// Calls the model once. The call starts when the stream is first polled; dropping the stream
    /// aborts it.
    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream;
}

/// An encoded request and what was left out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The format of the body.
    pub shape: PromptFormat,
    /// The JSON body.
    pub body: Vec<u8>,
    /// The parts of the conversation that were left out, and why.
    pub left_out: Vec<PromptNote>,
}
