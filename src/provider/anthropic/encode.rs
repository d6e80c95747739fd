//! Encodes a prompt as a request body. Encoding is pure and deterministic.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    KIND, cache,
    family::Family,
    messages::{ConversationOptions, conversation},
    options,
    wire::{Block, CacheControl, Content, Tool},
};
use crate::{
    model::{
        Prompt, PromptNote, Tool as HostTool,
        service_rules::{CallIdRule, SignedReasoning},
    },
    provider::{
        ModelInfo,
        body::{self, Body, options_of},
        call_ids::CallIdMap,
        inserted,
    },
};

/// `max_tokens` for a model whose limit is unknown: the limit of Claude 3.5, which every later
/// model supports.
const MAX_TOKENS: u32 = 8_192;

/// Lower bound of `max_tokens`, however full the context window is.
const MIN_TOKENS: u32 = 1_024;

/// The call ids that the service accepts.
pub(super) const CALL_IDS: CallIdRule = CallIdRule::Short;

/// The header that enables beta features.
const BETA: HeaderName = HeaderName::from_static("anthropic-beta");

/// How requests to a model are encoded.
#[derive(Debug, Clone)]
pub(super) struct EncodeOptions<'a> {
    /// Configured name of the provider.
    pub(super) provider: &'a str,
    pub(super) model: ModelInfo,
    /// The form of prompt cache markers. `None` if none are sent.
    pub(super) cache: Option<CacheControl>,
    /// Which reasoning is sent back, if the operator configured it.
    pub(super) reasoning_back: Option<SignedReasoning>,
    /// Whether reasoning is sent back at all.
    pub(super) with_reasoning: bool,
    /// Whether system messages within the conversation are sent as such, to a model that accepts
    /// them.
    pub(super) with_system: bool,
}

impl EncodeOptions<'_> {
    /// What the model accepts.
    fn family(&self) -> Family {
        let family = Family::of(&self.model).with_reasoning_back(self.reasoning_back);
        Family { system_messages: family.system_messages && self.with_system, ..family }
    }
}

/// An encoded request.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) body: Vec<u8>,
    /// Headers in addition to those of every request.
    pub(super) headers: HeaderMap,
    /// The parts of the conversation that were left out.
    pub(super) left_out: Vec<PromptNote>,
    /// The prompt's fingerprint, for a model that binds its reasoning to the prompt.
    pub(super) fingerprint: Option<String>,
    /// Whether any reasoning is sent back.
    pub(super) has_reasoning: bool,
    /// Whether the conversation contains system messages.
    pub(super) has_system: bool,
}

/// Encodes the request for a response.
pub(super) fn request(prompt: &Prompt, manner: &EncodeOptions<'_>) -> Encoded {
    encode(prompt, manner, |body, unreasoned_call| {
        let max_tokens = max_tokens(prompt, &manner.model);
        body.set("max_tokens", max_tokens);
        body.set("stream", true);
        let family = manner.family();
        options::write(body, prompt, family, max_tokens, !unreasoned_call);
    })
}

/// Encodes the request for a token count.
pub(super) fn count_request(prompt: &Prompt, manner: &EncodeOptions<'_>) -> Encoded {
    encode(prompt, manner, |_, _| {})
}

fn encode(prompt: &Prompt, manner: &EncodeOptions<'_>, finish: impl FnOnce(&mut Body, bool)) -> Encoded {
    let ids = CallIdMap::of(prompt.transcript.messages(), CALL_IDS);
    let form = ConversationOptions {
        provider: manner.provider,
        family: manner.family(),
        with_reasoning: manner.with_reasoning,
    };
    let mut host_tools = tools(prompt);
    let bound = bound_tools(prompt, &host_tools, form.family);
    let mut written = conversation(prompt, form, &ids, &bound);
    let pruned = written.pruned;
    if let Some(marker) = manner.cache {
        cache::mark_tools(&mut host_tools, !written.system.is_empty(), marker);
        cache::mark_messages(&mut written.messages, pruned, marker);
    }
    let mut body = Body::default();
    body.set("model", &prompt.model);
    let system = instructions(written.system, pruned.is_some(), manner.cache);
    body.set_list("system", system);
    body.set("messages", written.messages);
    body.set_list("tools", body::tools(host_tools.iter(), prompt));
    body.set_some("container", written.container);
    finish(&mut body, written.has_call_without_reasoning);
    Encoded {
        body: body.bytes(),
        headers: headers(prompt),
        left_out: written.left_out,
        fingerprint: written.fingerprint,
        has_reasoning: written.has_reasoning,
        has_system: written.has_system,
    }
}

fn instructions<'a>(system: Vec<Cow<'a, str>>, has_pruned: bool, cache: Option<CacheControl>) -> Vec<Block<'a>> {
    let count = system.len();
    let block = |(at, text): (usize, Cow<'a, str>)| Block::Own {
        content: Content::Text { text, citations: Vec::new() },
        cache_control: cache.and_then(|marker| cache::of_instructions(count, at, has_pruned, marker)),
    };
    system.into_iter().enumerate().map(block).collect()
}

fn tools(prompt: &Prompt) -> Vec<Tool<'_>> {
    prompt.tools.iter().map(tool).collect()
}

/// All tools in encoded form, for a model that binds its reasoning to them.
fn bound_tools(prompt: &Prompt, tools: &[Tool<'_>], family: Family) -> Vec<String> {
    if !family.binds_prefix {
        return Vec::new();
    }
    let host = tools.iter().filter_map(|tool| serde_json::to_string(tool).ok());
    host.chain(prompt.provider_tools.iter().cloned()).collect()
}

fn tool(tool: &HostTool) -> Tool<'_> {
    Tool {
        name: &tool.name,
        description: &tool.description,
        input_schema: inserted::schema(tool),
        strict: tool.strict,
        cache_control: None,
    }
}

/// The `max_tokens` of a request: what was requested or the model's limit, capped at the space left
/// in the context window. Older models reject a request whose prompt and `max_tokens` together
/// exceed the window.
fn max_tokens(prompt: &Prompt, model: &ModelInfo) -> u32 {
    let known = model.max_output.map(|limit| limit.tokens);
    let most = prompt.max_output_tokens.or(known).unwrap_or(MAX_TOKENS);
    let size = prompt.size.at_most();
    match model.context_window {
        Some(window) => most.min(window.tokens.saturating_sub(size).max(MIN_TOKENS)),
        None => most,
    }
}

/// The beta features that the host enables with `betas` in the provider options.
fn headers(prompt: &Prompt) -> HeaderMap {
    let options = options_of(KIND, prompt.generation.provider_options.as_deref());
    let betas = options.get("betas");
    let names: Vec<String> = betas.and_then(|names| serde_json::from_str(names.get()).ok()).unwrap_or_default();
    let value = HeaderValue::from_str(&names.join(","));
    let value = value.ok().filter(|value| !value.is_empty());
    value.map(|value| (BETA, value)).into_iter().collect()
}
