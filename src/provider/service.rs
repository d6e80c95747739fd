//! A model service: what every provider can do.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use futures_util::Stream;
use jiff::Timestamp;

use super::{
    Chunk, Error, ModelInfo,
    rules::{PastReasoning, Rules},
};
use crate::model::{
    Arrangement, Generation, Media, Message, Prompt, PromptNote, PromptShape, Role,
    generation::Unsupported,
};

/// The answer of a model as it arrives. It ends after [`Chunk::Finished`] or an error; ending
/// without either is an answer that broke off.
pub type Answer = Pin<Box<dyn Stream<Item = Result<Chunk, Error>> + Send>>;

/// A count of tokens as it arrives. `None` means the provider does not count.
pub type Count = Pin<Box<dyn Future<Output = Result<Option<u32>, Error>> + Send>>;

/// A question for a list of models as it is answered. It fails by itself: what it taught is part of
/// what [`Provider::model`] says from then on.
pub type Refresh = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A model service.
pub trait Provider: fmt::Debug + Send + Sync {
    /// The protocol it speaks, as the API names it.
    fn kind(&self) -> &'static str;

    /// The service that speaks the protocol, such as `groq`. `None` means that is not known.
    fn service(&self) -> Option<&str> {
        Some(self.kind())
    }

    /// The model of that name within this provider. `None` means it has no such model.
    fn model(&self, name: &str) -> Option<ModelInfo>;

    /// The models that it knows by name, in order; a provider may have others beside.
    fn models(&self) -> Vec<ModelInfo>;

    /// Asks the service for its list of models, unless that was done less than `interval` ago; what
    /// others run is asked less often. At most one question is on its way. One that fails changes
    /// nothing.
    fn refresh(&self, _now: Timestamp, _interval: Duration) -> Refresh {
        Box::pin(std::future::ready(()))
    }

    /// The settings that cannot be sent to the model: they are left out of the prompt and reported
    /// to the host. What is known of the model, unless a provider knows better.
    fn cannot_take(&self, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
        model.cannot_take(wanted)
    }

    /// These settings in the nearest form that the model has. What is known of the model, unless a
    /// provider knows better.
    fn fitted(&self, model: &ModelInfo, wanted: &Generation) -> Generation {
        model.fitted(wanted)
    }

    /// Why the model cannot be given a medium in a message of that role, in a sentence. `None`
    /// means it can. What is known of the model, unless a provider knows better.
    fn cannot_read(&self, model: &ModelInfo, media: &Media, role: Role) -> Option<String> {
        model.cannot_read(media, role)
    }

    /// The settings that cannot be sent to the model beside tools: they are left out, or take the
    /// form that the model takes, and are reported to the host.
    fn cannot_take_beside_tools(&self, _: &ModelInfo, _wanted: &Generation) -> Vec<Unsupported> {
        Vec::new()
    }

    /// The rules by which requests to the model are written. `None` if it sends none.
    fn rules(&self, _: &ModelInfo) -> Option<Rules> {
        None
    }

    /// Whether reasoning goes with a later prompt; where not, it occupies no window.
    fn sends_reasoning(&self, _: &ModelInfo, _: PastReasoning) -> bool {
        true
    }

    /// Whether an item of a provider's own goes with a later prompt. `provider`: the configured name
    /// of the one that made it; `own`: the model that is asked wrote the message.
    fn sends_item(&self, _provider: &str, _own: bool) -> bool {
        true
    }

    /// Whether there is reasoning or an item that does not go with a later prompt; where not,
    /// [`Provider::sends_reasoning`] and [`Provider::sends_item`] are always true.
    fn withholds_parts(&self) -> bool {
        false
    }

    /// How the messages of a request for this conversation differ from its own: what is counted is
    /// what is sent.
    fn arrangement(&self, _system: &str, _messages: &[Message]) -> Arrangement {
        Arrangement::default()
    }

    /// Whether it is a model server of one's own, whose window is small and whose refusals are
    /// costly.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether it counts the tokens of prompts itself.
    fn counts(&self) -> bool {
        false
    }

    /// Counts the tokens of a prompt as the model would read it.
    fn count(&self, _: Arc<Prompt>) -> Count {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The request that [`Provider::call`] sends for a prompt. `None` means it sends none.
    fn request(&self, _: &Prompt) -> Option<Request> {
        None
    }

    /// Calls the model once. Nothing happens before the stream is polled; dropping the stream
    /// aborts the call.
    fn call(&self, prompt: Arc<Prompt>) -> Answer;
}

/// A request as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Whose shape it has.
    pub shape: PromptShape,
    /// Its body, which is JSON.
    pub body: Vec<u8>,
    /// What was left out of the prompt's messages, and why.
    pub left_out: Vec<PromptNote>,
}
