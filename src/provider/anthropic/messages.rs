//! The conversation in the form of Anthropic Messages.
//!
//! User and assistant take turns: what one says in several messages becomes one message. The
//! results of an answer's calls come first in what the user says next.

use std::{borrow::Cow, collections::BTreeSet};

use serde_json::Value;

use super::{
    KIND,
    family::Family,
    media,
    wire::{Block, Content as Written, Json, Message as WireMessage, Speaker},
};
use crate::{
    model::{
        Content, Contents, Given, Message, Part, Prompt, PromptNote, PromptNoteKind, ProviderItem,
        Role, ToolCall, ToolOutcome, ToolResult, json::sound, message::StoredPart, transcript,
    },
    provider::{
        call_ids::Ids,
        http::lenient,
        inserted::{INSTRUCTIONS, OPENING},
        own,
        prefix::Prefix,
    },
};

/// The type of an item that is a call of the service's own tools.
const SERVER_CALL: &str = "server_tool_use";

/// How requests of one provider are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form<'a> {
    /// Configured name of the provider.
    pub(super) provider: &'a str,
    /// What the model takes.
    pub(super) family: Family,
    /// Whether reasoning goes back at all.
    pub(super) with_reasoning: bool,
}

/// A conversation as it is sent.
#[derive(Debug)]
pub(super) struct Conversation<'a> {
    /// The instructions before it, block by block.
    pub(super) system: Vec<Cow<'a, str>>,
    /// The messages.
    pub(super) messages: Vec<WireMessage<'a>>,
    /// What was left out, in order.
    pub(super) left_out: Vec<PromptNote>,
    /// The hash of all of it, for a model that binds its reasoning to what stands before.
    pub(super) fingerprint: Option<String>,
    /// The container of the service's code execution that the tool loop works in.
    pub(super) container: Option<String>,
    /// Whether some reasoning goes back.
    pub(super) has_reasoning: bool,
    /// Whether a call in the current tool loop is without the reasoning that preceded it. A model that
    /// must begin each answer with reasoning refuses that.
    pub(super) unreasoned_call: bool,
}

/// The conversation of a prompt. `tools` are its tools as they are sent.
pub(super) fn conversation<'a>(
    prompt: &'a Prompt,
    form: Form<'a>,
    ids: &'a Ids,
    tools: &[String],
) -> Conversation<'a> {
    let stored = prompt.transcript.messages();
    let leading = stored
        .iter()
        .take_while(|message| message.role == Role::System);
    let instructions = prompt.system.iter().map(String::as_str);
    let system: Vec<Cow<'a, str>> = instructions
        .chain(leading.clone().flat_map(texts))
        .filter(|text| !is_blank(text))
        .map(Cow::Borrowed)
        .collect();
    let mut writer = Writer {
        prompt,
        form,
        ids,
        loop_begins: transcript::loop_begins(stored),
        prefix: form.family.binds_prefix.then(Prefix::default),
        conversation: Conversation {
            system,
            messages: Vec::new(),
            left_out: Vec::new(),
            fingerprint: None,
            container: None,
            has_reasoning: false,
            unreasoned_call: false,
        },
    };
    writer.begin(tools);
    for at in leading.count()..stored.len() {
        writer.write(at);
    }
    writer.finish()
}

/// A conversation that is being written.
struct Writer<'a> {
    prompt: &'a Prompt,
    form: Form<'a>,
    ids: &'a Ids,
    /// The message with which the tool loop begins that is going on.
    loop_begins: usize,
    /// What was written so far, for a model that binds its reasoning to it.
    prefix: Option<Prefix>,
    conversation: Conversation<'a>,
}

impl<'a> Writer<'a> {
    fn begin(&mut self, tools: &[String]) {
        if let Some(prefix) = &mut self.prefix {
            prefix.add("tools", tools.iter().map(String::as_str));
            let system = self.conversation.system.iter();
            prefix.add("system", system.map(AsRef::as_ref));
        }
    }

    fn write(&mut self, at: usize) {
        let message = &self.prompt.transcript.messages()[at];
        let contents = &self.prompt.contents;
        match message.role {
            Role::System => self.instruct(message),
            Role::User => {
                let blocks: Vec<Block<'a>> = message
                    .parts
                    .iter()
                    .filter_map(|stored| said(&stored.part, contents))
                    .collect();
                self.push_or_note(message, Speaker::User, blocks);
            }
            Role::Tool => {
                let results = message
                    .parts
                    .iter()
                    .filter_map(|stored| result(&stored.part, self.ids, contents));
                let results = results.collect();
                self.push(Speaker::User, results);
            }
            Role::Assistant => {
                if self.conversation.messages.is_empty() {
                    self.push(Speaker::User, vec![Block::text(OPENING)]);
                }
                let blocks = self.answer(at, message);
                if at > self.loop_begins {
                    self.conversation.unreasoned_call |= !reasons_before_it_calls(&blocks);
                    let container = self.container(message);
                    self.conversation.container = container.or(self.conversation.container.take());
                }
                self.push_or_note(message, Speaker::Assistant, blocks);
            }
        }
    }

    fn instruct(&mut self, message: &'a Message) {
        let texts = texts(message).filter(|text| !is_blank(text));
        if self.form.family.system_messages {
            let blocks = texts.map(Block::text).collect();
            self.push_or_note(message, Speaker::System, blocks);
        } else {
            let marked = |text| Block::text(format!("{INSTRUCTIONS}{text}"));
            let blocks = texts.map(marked).collect();
            self.push_or_note(message, Speaker::User, blocks);
        }
    }

    /// What the model said.
    fn answer(&mut self, at: usize, message: &'a Message) -> Vec<Block<'a>> {
        let reasons = message
            .parts
            .iter()
            .any(|stored| matches!(stored.part.content, Content::Reasoning { .. }));
        let reasoning = reasons && self.form.with_reasoning && self.is_valid(message);
        let answered = self.answered_items(at);
        let mut blocks = Vec::new();
        for (position, StoredPart { part, .. }) in message.parts.iter().enumerate() {
            let written = match &part.content {
                Content::Text(text) | Content::Refusal(text) => (!is_blank(text)).then(|| {
                    Block::new(Written::Text {
                        text: Cow::Borrowed(text),
                        citations: citations(part, self.is_own(message)),
                    })
                }),
                Content::ToolCall(call) => Some(Block::new(Written::ToolUse {
                    id: self.ids.get(&call.id),
                    name: &call.name,
                    input: arguments(call),
                    caller: own::attached(KIND, part).and_then(|mut own| own.remove("caller")),
                })),
                Content::Reasoning { text, .. } => {
                    let block = reasoning.then(|| thinking(part, text)).flatten();
                    if block.is_none() {
                        self.note(
                            message,
                            position,
                            "The reasoning is not sent back to this model.",
                        );
                    }
                    self.conversation.has_reasoning |= block.is_some();
                    block
                }
                Content::ProviderItem(item) => {
                    let block = self.item(item, answered.as_ref());
                    if block.is_none() {
                        self.note(message, position, "This model cannot read the item.");
                    }
                    block
                }
                // The transcript is checked: a result is never an assistant's. A medium that it
                // shows became words before.
                Content::ToolResult(_) | Content::Media(_) | Content::Unknown(_) => None,
            };
            blocks.extend(written);
        }
        blocks
    }

    /// The container that the service said the answer worked in.
    fn container(&self, message: &Message) -> Option<String> {
        let response = message.response.as_ref().filter(|_| self.is_own(message))?;
        let entry = own::entry(KIND, response.provider_metadata.as_deref()?)?;
        let id = entry.get("container")?.get("id")?.as_str()?;
        Some(id.to_owned())
    }

    /// An item of the service's own. A call of its tools that never got a result is refused.
    fn item(
        &self,
        item: &'a ProviderItem,
        answered: Option<&BTreeSet<String>>,
    ) -> Option<Block<'a>> {
        let own = item.provider == self.form.provider;
        let complete = || {
            let id = || member(&item.json, "id");
            item.kind != SERVER_CALL || answered.is_none_or(|answered| answered.contains(&id()))
        };
        (own && complete()).then(|| Block::Item(Json(Cow::Borrowed(&item.json))))
    }

    /// The calls of the service's own tools that have a result in the run of answers that the
    /// message belongs to. `None` means the service is still at work on them.
    fn answered_items(&self, at: usize) -> Option<BTreeSet<String>> {
        let stored = self.prompt.transcript.messages();
        let rest = stored[at..]
            .iter()
            .take_while(|message| message.role == Role::Assistant);
        if rest.clone().count() == stored.len() - at {
            return None;
        }
        let parts = rest.flat_map(|message| &message.parts);
        let items = parts.filter_map(|stored| match &stored.part.content {
            Content::ProviderItem(item) if item.kind != SERVER_CALL => {
                Some(member(&item.json, "tool_use_id"))
            }
            Content::ProviderItem(_)
            | Content::Text(_)
            | Content::Reasoning { .. }
            | Content::ToolCall(_)
            | Content::ToolResult(_)
            | Content::Refusal(_)
            | Content::Media(_)
            | Content::Unknown(_) => None,
        });
        Some(items.collect())
    }

    /// Whether the model takes back what it thought: it wrote the message, and after the very words
    /// that stand before it now.
    fn is_valid(&self, message: &Message) -> bool {
        let written_after = message
            .response
            .as_ref()
            .and_then(|response| response.prompt_fingerprint.as_ref());
        // The hash of a prefix takes a while, and there is one of each answer.
        let is_unchanged = |prefix: &Prefix| {
            written_after.is_some_and(|written_after| *written_after == prefix.fingerprint())
        };
        self.is_own(message) && self.prefix.as_ref().is_none_or(is_unchanged)
    }

    /// Whether the model that is asked now wrote the message.
    fn is_own(&self, message: &Message) -> bool {
        own::wrote(self.form.provider, &self.prompt.model, message)
    }

    fn note(&mut self, message: &Message, part: usize, text: &str) {
        self.conversation.left_out.push(PromptNote {
            kind: PromptNoteKind::Dropped,
            message: Some(message.id.clone()),
            part: Some(part),
            text: text.to_owned(),
        });
    }

    /// Adds blocks of a message, or notes that nothing of it can be sent.
    fn push_or_note(&mut self, message: &Message, speaker: Speaker, blocks: Vec<Block<'a>>) {
        if blocks.is_empty() {
            self.conversation.left_out.push(PromptNote {
                kind: PromptNoteKind::Dropped,
                message: Some(message.id.clone()),
                part: None,
                text: "Nothing in the message can be sent to this model.".to_owned(),
            });
        }
        self.push(speaker, blocks);
    }

    /// Adds blocks to what was said last by the same speaker, or as a message of their own.
    fn push(&mut self, speaker: Speaker, blocks: Vec<Block<'a>>) {
        if blocks.is_empty() {
            return;
        }
        if let Some(prefix) = &mut self.prefix {
            blocks.iter().for_each(|block| add(prefix, speaker, block));
        }
        match self.conversation.messages.last_mut() {
            Some(last) if last.role == speaker => last.content.extend(blocks),
            Some(_) | None => self.conversation.messages.push(WireMessage {
                role: speaker,
                content: blocks,
            }),
        }
    }

    fn finish(self) -> Conversation<'a> {
        Conversation {
            fingerprint: self.prefix.map(|prefix| prefix.fingerprint()),
            ..self.conversation
        }
    }
}

/// Whether an answer that calls tools begins with reasoning. One that calls none does.
fn reasons_before_it_calls(blocks: &[Block<'_>]) -> bool {
    let is = |block: &Block<'_>, wanted: fn(&Written<'_>) -> bool| match block {
        Block::Own { content, .. } => wanted(content),
        Block::Item(_) => false,
    };
    let calls = blocks
        .iter()
        .any(|block| is(block, |content| matches!(content, Written::ToolUse { .. })));
    let reasons = blocks.first().is_some_and(|block| {
        is(block, |content| {
            matches!(
                content,
                Written::Thinking { .. } | Written::RedactedThinking { .. }
            )
        })
    });
    !calls || reasons
}

/// The texts of a message.
fn texts(message: &Message) -> impl Iterator<Item = &str> {
    message
        .parts
        .iter()
        .filter_map(|stored| match &stored.part.content {
            Content::Text(text) => Some(text.as_str()),
            Content::Reasoning { .. }
            | Content::ToolCall(_)
            | Content::ToolResult(_)
            | Content::Refusal(_)
            | Content::Media(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => None,
        })
}

/// The service refuses texts without a letter.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// A part of what a user says. `None` means nothing that can be sent.
fn said<'a>(part: &'a Part, contents: &Contents) -> Option<Block<'a>> {
    match &part.content {
        Content::Text(text) if !is_blank(text) => Some(Block::text(text.as_str())),
        Content::Media(medium) => Some(media::block(medium, contents)),
        Content::Text(_)
        | Content::Reasoning { .. }
        | Content::ToolCall(_)
        | Content::ToolResult(_)
        | Content::Refusal(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => None,
    }
}

/// The result of a call.
fn result<'a>(part: &'a Part, ids: &'a Ids, contents: &Contents) -> Option<Block<'a>> {
    match &part.content {
        Content::ToolResult(result) => Some(Block::new(Written::ToolResult {
            tool_use_id: ids.get(&result.call),
            content: given(result, contents),
            is_error: match result.outcome {
                ToolOutcome::Success => false,
                ToolOutcome::Error
                | ToolOutcome::Denied
                | ToolOutcome::TimedOut
                | ToolOutcome::Cancelled => true,
            },
        })),
        Content::Text(_)
        | Content::Reasoning { .. }
        | Content::ToolCall(_)
        | Content::Refusal(_)
        | Content::Media(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => None,
    }
}

/// What a tool gave. An error is said in words at least.
fn given<'a>(result: &'a ToolResult, contents: &Contents) -> Vec<Block<'a>> {
    let blocks: Vec<Block<'a>> = result
        .parts
        .iter()
        .filter_map(|given| match given {
            Given::Text(text) => (!is_blank(text)).then(|| Block::text(text.as_str())),
            Given::Media(medium) => Some(media::block(medium, contents)),
        })
        .collect();
    let words = match result.outcome {
        ToolOutcome::Success => return blocks,
        ToolOutcome::Error => "Error",
        ToolOutcome::Denied => "Denied",
        ToolOutcome::TimedOut => "Timed out",
        ToolOutcome::Cancelled => "Cancelled",
    };
    if blocks.is_empty() {
        vec![Block::text(words)]
    } else {
        blocks
    }
}

/// What the model thought, as it was. `None` means nothing proves that it did.
fn thinking<'a>(part: &Part, text: &'a str) -> Option<Block<'a>> {
    let mut entry = own::attached(KIND, part)?;
    let mut word = |name: &str| match entry.remove(name) {
        Some(Value::String(word)) => Some(word),
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_),
        )
        | None => None,
    };
    let content = match word("redacted_thinking") {
        Some(data) => Written::RedactedThinking { data },
        None => Written::Thinking {
            thinking: text,
            signature: word("signature")?,
        },
    };
    Some(Block::new(content))
}

/// The sources of a text as the service wrote them.
fn citations<'a>(part: &'a Part, own: bool) -> Vec<Json<'a>> {
    let cited = part.citations.iter().filter(|_| own);
    cited
        .filter_map(|citation| citation.provider_metadata.as_deref())
        .map(|json| Json(Cow::Borrowed(json)))
        .collect()
}

/// The arguments as the model wrote them. A call whose arguments are no JSON object was never run,
/// and goes back without any. The service takes no halves of characters.
fn arguments(call: &ToolCall) -> Json<'_> {
    Json(if call.has_object() {
        sound(&call.arguments)
    } else {
        Cow::Borrowed("{}")
    })
}

/// A member of an item that is a word; empty if it has none.
fn member(json: &str, name: &str) -> String {
    let members = lenient::members(json);
    members
        .get(name)
        .map(|raw| lenient::word(raw))
        .unwrap_or_default()
}

/// Adds a block to what was written so far. Markers of the cache are none of it.
fn add(prefix: &mut Prefix, speaker: Speaker, block: &Block<'_>) {
    let who = match speaker {
        Speaker::User => "user",
        Speaker::Assistant => "assistant",
        Speaker::System => "system",
    };
    match block {
        Block::Item(json) => prefix.add(who, ["item", &json.0]),
        Block::Own { content, .. } => match content {
            Written::Text { text, citations } => {
                let citations = citations.iter().map(|json| json.0.as_ref());
                prefix.add(who, ["text", text.as_ref()].into_iter().chain(citations));
            }
            Written::Image { source } => prefix.add(who, ["image", source.text()]),
            Written::Document { source, title } => {
                prefix.add(who, ["document", source.text(), title]);
            }
            Written::ToolUse {
                id,
                name,
                input,
                caller: _,
            } => prefix.add(who, ["tool_use", id, name, &input.0]),
            Written::ToolResult {
                tool_use_id,
                content,
                is_error,
            } => {
                let error = if *is_error { "error" } else { "" };
                prefix.add(who, ["tool_result", tool_use_id, error]);
                content.iter().for_each(|block| add(prefix, speaker, block));
            }
            Written::Thinking {
                thinking,
                signature,
            } => prefix.add(who, ["thinking", thinking, signature]),
            Written::RedactedThinking { data } => prefix.add(who, ["redacted_thinking", data]),
        },
    }
}
