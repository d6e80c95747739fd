//! Model services behind one trait. The only outbound calls to models are made here.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use futures_util::Stream;
use jiff::Timestamp;

use crate::model::{
    Arrangement, Citation, FinishReason, Generation, Media, Message, Prompt, PromptNote,
    PromptShape, ProviderItem, Role, Usage, generation::Unsupported,
};

pub mod ai_sdk;
pub mod anthropic;
pub mod assemble;
mod body;
mod call_ids;
pub mod catalog;
pub mod discovery;
pub mod error;
pub mod foreign;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod gemini;
pub mod http;
pub mod info;
mod inserted;
pub mod openai;
mod own;
mod prefix;
#[cfg(test)]
mod recordings;
pub mod registry;
pub mod responses;
pub mod scripted;

pub use assemble::Assembly;
pub use error::Error;
pub use info::ModelInfo;
pub use registry::Registry;

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

    /// Whether a part of an answer that is reasoning goes with a later prompt; where not, it
    /// occupies no window. `attached`: the provider attached something to it; `own`: the model
    /// that is asked wrote it; `in_loop`: the user has not spoken since.
    fn sends_reasoning(&self, _attached: bool, _own: bool, _in_loop: bool) -> bool {
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

/// The request that a host sends by itself which speaks that shape, whoever serves the model.
/// `provider` is the configured name of who does. `None` means there is no such shape.
pub fn request_in(shape: PromptShape, prompt: &Prompt, provider: &str) -> Option<Request> {
    match shape {
        PromptShape::OpenAiChat => Some(openai::request(prompt)),
        PromptShape::OpenAiResponses => Some(responses::request(prompt)),
        PromptShape::Anthropic => Some(anthropic::request(prompt)),
        PromptShape::Gemini => Some(gemini::request(prompt)),
        PromptShape::AiSdk => Some(ai_sdk::request(prompt, provider)),
        PromptShape::Neutral | PromptShape::Native => None,
    }
}

/// A piece of a model's answer. Parts come one after the other; a change of kind begins a new part,
/// and so does [`Chunk::PartEnded`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// More words of refusal.
    Refusal(String),
    /// A call begins. Its arguments follow under the same index.
    ToolCall {
        /// Which call of this answer, from 0.
        index: u32,
        /// The provider's id; empty when it gave none.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// More of a call's arguments.
    ToolInput {
        /// Which call of this answer.
        index: u32,
        /// A piece of JSON, cut anywhere.
        json: String,
    },
    /// The part that was written last is complete: more of the same kind begins a part of its own.
    PartEnded,
    /// What the provider attached to the part that was written last: a JSON object keyed by kind of
    /// provider. After an empty text or empty reasoning it is that of a part without words.
    PartMetadata(String),
    /// What the provider attached to a call of this answer, wherever it stands.
    CallMetadata {
        /// Which call of this answer.
        index: u32,
        /// A JSON object keyed by kind of provider.
        json: String,
    },
    /// A source of the text that was written last.
    Citation(Citation),
    /// A whole part that only the provider can read. Its client fills in the provider's name.
    Item(ProviderItem),
    /// Characters of the part that was written last cannot be stored, and are U+FFFD in it.
    Sanitized,
    /// The answer is complete.
    Finished(Finish),
}

/// The end of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// Why the model stopped.
    pub reason: FinishReason,
    /// The provider's own word for it.
    pub provider_reason: String,
    /// What the provider reported. `None` if it reported nothing.
    pub usage: Option<Usage>,
    /// The model that the provider says answered; empty when it did not say.
    pub provider_model: String,
    /// The provider's id of the response; empty when it gave none.
    pub response_id: String,
    /// What the provider attached to the whole answer, a JSON object keyed by kind of provider.
    pub metadata: Option<String>,
    /// A hash of the prompt that the answer continues, where its reasoning is bound to that.
    pub prompt_fingerprint: Option<String>,
}
