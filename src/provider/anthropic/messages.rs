//! Encodes a conversation in the format of Anthropic Messages.
//!
//! User and assistant messages alternate: consecutive messages of one role are merged. The results
//! of a response's tool calls come first in the next user message.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value;

use super::{
    KIND,
    cache::Pruned,
    family::Family,
    hosted::{self, Hosted},
    media,
    wire::{Block, Content as Written, Json, Message as WireMessage, WireRole},
};
use crate::{
    model::{
        Content, Contents, Message, MessageId, OutputPart, Part, Prompt, PromptNote, ProviderItem,
        Role, Seq, ToolCall, ToolOutcome, ToolResult, json::replace_lone_surrogates,
        message::StoredPart, transcript,
    },
    provider::{
        PastReasoning, authorship,
        call_ids::CallIdMap,
        call_names,
        http::lenient,
        inserted::{CONTINUE, INSTRUCTIONS, OPENING},
        omissions,
        prefix::Prefix,
    },
};

/// How requests of one provider are encoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConversationOptions<'a> {
    /// Configured name of the provider.
    pub(super) provider: &'a str,
    /// What the model accepts.
    pub(super) family: Family,
    /// Whether reasoning is sent back at all.
    pub(super) with_reasoning: bool,
}

/// An encoded conversation.
#[derive(Debug)]
pub(super) struct Conversation<'a> {
    /// The leading instructions, one per block.
    pub(super) system: Vec<Cow<'a, str>>,
    pub(super) messages: Vec<WireMessage<'a>>,
    /// What was left out, in order.
    pub(super) left_out: Vec<PromptNote>,
    /// The fingerprint of the conversation, for a model that binds its reasoning to the prefix.
    pub(super) fingerprint: Option<String>,
    /// The code execution container that the current tool loop uses.
    pub(super) container: Option<String>,
    /// Whether any reasoning is sent back.
    pub(super) has_reasoning: bool,
    /// Whether the conversation contains system messages.
    pub(super) has_system: bool,
    /// The extent of pruned results. `None` if nothing is pruned.
    pub(super) pruned: Option<Pruned>,
    /// Whether a call in the current tool loop lacks the reasoning that preceded it. A model that
    /// must start each response with reasoning rejects that.
    pub(super) has_call_without_reasoning: bool,
}

/// Encodes the conversation of a prompt. `tools` are its tools in encoded form.
pub(super) fn conversation<'a>(
    prompt: &'a Prompt,
    form: ConversationOptions<'a>,
    ids: &'a CallIdMap,
    tools: &[String],
) -> Conversation<'a> {
    let stored = prompt.transcript.messages();
    let leading = stored
        .iter()
        .take_while(|message| message.role == Role::System);
    let instructions = prompt.system.iter().map(String::as_str);
    let system: Vec<Cow<'a, str>> = instructions
        .chain(leading.clone().flat_map(Message::texts))
        .filter(|text| !is_blank(text))
        .map(Cow::Borrowed)
        .collect();
    let mut writer = Writer {
        prompt,
        form,
        ids,
        loop_begins: transcript::loop_begins(stored),
        newest_prune: stored.iter().filter_map(pruned_at).max(),
        last_answer: stored
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .map(|message| message.seq)
            .max(),
        hosted: Hosted::of(stored, form.provider),
        prefix: form.family.binds_prefix.then(|| Prefix::of(stored)),
        reasoning: Vec::new(),
        trailing: Trailing::default(),
        conversation: Conversation {
            system,
            messages: Vec::new(),
            left_out: Vec::new(),
            fingerprint: None,
            container: None,
            has_reasoning: false,
            has_system: false,
            pruned: None,
            has_call_without_reasoning: false,
        },
    };
    writer.begin(tools);
    for at in leading.count()..stored.len() {
        writer.write(at);
    }
    writer.finish()
}

/// The seq of the newest prune that cleared a result of the message.
fn pruned_at(message: &Message) -> Option<Seq> {
    let marks = message.parts.iter().filter_map(|stored| stored.pruned);
    marks.map(|pruned| pruned.at).max()
}

/// The state of one encoding.
struct Writer<'a> {
    prompt: &'a Prompt,
    form: ConversationOptions<'a>,
    ids: &'a CallIdMap,
    /// Index of the message that starts the current tool loop.
    loop_begins: usize,
    /// The seq of the newest prune that affects what is sent.
    newest_prune: Option<Seq>,
    /// The seq of the last response.
    last_answer: Option<Seq>,
    /// Which calls and results of server tools are sent back.
    hosted: Hosted,
    /// Hash of what was written so far, for a model that binds its reasoning to the prefix.
    prefix: Option<Prefix>,
    /// The reasoning that was written: its message and the index of its part.
    reasoning: Vec<(&'a Message, usize)>,
    trailing: Trailing,
    conversation: Conversation<'a>,
}

/// Reasoning at the end of what was written so far.
#[derive(Default)]
struct Trailing {
    /// Number of blocks.
    count: usize,
    /// The prefix before the reasoning.
    prefix: Option<Prefix>,
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
            Role::System => self.instruct(at, message),
            Role::User => {
                let blocks: Vec<Block<'a>> = message
                    .parts
                    .iter()
                    .filter_map(|stored| user_block(&stored.part, contents))
                    .collect();
                self.push_or_note(message, WireRole::User, blocks);
            }
            Role::Tool => {
                let results = message
                    .parts
                    .iter()
                    .filter_map(|stored| result(&stored.part, self.ids, contents));
                let results = results.collect();
                self.push(WireRole::User, results);
                if let Some(at) = pruned_at(message) {
                    self.note_pruned(message, at);
                }
            }
            Role::Assistant => {
                if self.conversation.messages.is_empty() {
                    self.push(WireRole::User, vec![Block::text(OPENING)]);
                }
                let blocks = self.answer(at, message);
                let renamed = omissions::names(message, call_names::MAX_NAME_CHARS_ANTHROPIC);
                self.conversation.left_out.extend(renamed);
                if at > self.loop_begins {
                    self.conversation.has_call_without_reasoning |= !starts_with_reasoning(&blocks);
                    let container = self.container(message);
                    self.conversation.container = container.or(self.conversation.container.take());
                }
                self.push_or_note(message, WireRole::Assistant, blocks);
            }
        }
    }

    /// Records the end of the message that was written last. The prune at `at` cleared one of its
    /// results.
    fn note_pruned(&mut self, message: &Message, at: Seq) {
        let sent = self.conversation.messages.len();
        let is_newest = self.newest_prune == Some(at);
        let is_new = self.newest_prune > self.last_answer;
        let pruned = self.conversation.pruned.get_or_insert(Pruned {
            cleared: 0,
            cleared_before: None,
            changed: 0,
            is_new,
        });
        if is_newest && pruned.changed == 0 {
            pruned.changed = sent;
        }
        // If the message has other results, the next prune may change it.
        let mut results = message
            .parts
            .iter()
            .filter(|it| it.part.content.as_result().is_some());
        if results.all(|stored| stored.pruned.is_some()) {
            pruned.cleared = sent;
            if pruned.changed == 0 {
                pruned.cleared_before = Some(sent);
            }
        }
    }

    fn instruct(&mut self, at: usize, message: &'a Message) {
        let mut texts = message.texts().filter(|text| !is_blank(text)).peekable();
        if texts.peek().is_some() {
            self.drop_trailing_reasoning();
        }
        if self.can_instruct() && self.answer_follows(at) {
            let blocks = texts.map(Block::text).collect();
            self.push_or_note(message, WireRole::System, blocks);
        } else {
            let marked = |text| Block::text(format!("{INSTRUCTIONS}{text}"));
            let blocks = texts.map(marked).collect();
            self.push_or_note(message, WireRole::User, blocks);
        }
    }

    /// Whether the service accepts a system message at this position: after a user message or the
    /// result of a server tool.
    fn can_instruct(&self) -> bool {
        let last = self.conversation.messages.last();
        self.form.family.system_messages
            && last.is_some_and(|last| match last.role {
                WireRole::User | WireRole::System => true,
                WireRole::Assistant => last.content.last().is_some_and(is_hosted_result),
            })
    }

    /// Whether the next content that is sent after the message at `at` is the model's, or there is
    /// none. A user message must not follow a system message.
    fn answer_follows(&self, at: usize) -> bool {
        let stored = self.prompt.transcript.messages();
        let mut next = stored.iter().enumerate().skip(at + 1);
        let role = next.find_map(|(at, message)| {
            let sent = match message.role {
                Role::System => false,
                Role::Tool => true,
                Role::User | Role::Assistant => self.has_sendable_content(at, message),
            };
            sent.then_some(message.role)
        });
        role.is_none_or(|role| role == Role::Assistant)
    }

    /// Whether any content of the message is sent that is valid without content after it.
    fn has_sendable_content(&self, at: usize, message: &Message) -> bool {
        let mut parts = message.parts.iter().enumerate();
        parts.any(|(position, stored)| match &stored.part.content {
            Content::Text(text) => !is_blank(text),
            Content::Refusal(text) => message.role == Role::Assistant && !is_blank(text),
            Content::ToolCall(_) => message.role == Role::Assistant,
            Content::Media(_) => message.role == Role::User,
            Content::ProviderItem(item) => {
                message.role == Role::Assistant && self.sends_item(at, position, item)
            }
            Content::Reasoning { .. } | Content::ToolResult(_) | Content::Unknown(_) => false,
        })
    }

    /// Encodes an assistant message.
    fn answer(&mut self, at: usize, message: &'a Message) -> Vec<Block<'a>> {
        let reasons = message
            .parts
            .iter()
            .any(|stored| matches!(stored.part.content, Content::Reasoning { .. }));
        let is_valid = reasons && self.form.with_reasoning && self.is_unchanged(message);
        let own = self.is_own(message);
        let cites = own && self.hosted.sends_sources(at);
        let mut blocks = Vec::new();
        for (position, StoredPart { part, .. }) in message.parts.iter().enumerate() {
            let written = match &part.content {
                Content::Text(text) | Content::Refusal(text) => (!is_blank(text)).then(|| {
                    Block::new(Written::Text {
                        text: Cow::Borrowed(text),
                        citations: citations(part, cites),
                    })
                }),
                Content::ToolCall(call) => Some(Block::new(Written::ToolUse {
                    id: self.ids.get(&call.id),
                    name: call_names::sanitize(&call.name, call_names::MAX_NAME_CHARS_ANTHROPIC),
                    input: arguments(call),
                    caller: self.caller(part),
                })),
                Content::Reasoning { text, .. } => {
                    let block = is_valid.then(|| self.thinking(own, part, text)).flatten();
                    if block.is_some() {
                        self.reasoning.push((message, position));
                    } else {
                        self.note(message, position, omissions::REASONING);
                    }
                    block
                }
                Content::ProviderItem(item) => {
                    let sent = self.sends_item(at, position, item);
                    if !sent {
                        self.note(message, position, omissions::ITEM);
                    }
                    sent.then(|| Block::Item(Json(Cow::Borrowed(&item.json))))
                }
                // The transcript is validated: assistant messages have no tool results. Media in
                // them was replaced by text before.
                Content::ToolResult(_) | Content::Media(_) | Content::Unknown(_) => None,
            };
            blocks.extend(written);
        }
        blocks
    }

    /// The container that the service reported for the response.
    fn container(&self, message: &Message) -> Option<String> {
        let response = message.response.as_ref().filter(|_| self.is_own(message))?;
        let entry = authorship::entry(KIND, response.provider_metadata.as_deref()?)?;
        let id = entry.get("container")?.get("id")?.as_str()?;
        Some(id.to_owned())
    }

    /// Whether an item is sent back: only to the provider that created it, and a server tool call
    /// only with its result.
    fn sends_item(&self, at: usize, position: usize, item: &ProviderItem) -> bool {
        item.provider == self.form.provider && self.hosted.sends(at, position)
    }

    /// The caller of a host tool call. Returns `None` if that caller is not sent back.
    fn caller(&self, part: &Part) -> Option<Value> {
        let caller = authorship::attached_metadata(KIND, part)?.remove("caller")?;
        let is_sent = match &caller["tool_id"] {
            Value::String(id) => self.hosted.sends_call(id),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => true,
        };
        is_sent.then_some(caller)
    }

    /// Whether a model that binds its reasoning accepts this reasoning: the content before the
    /// message is exactly the content that the message was generated after.
    fn is_unchanged(&self, message: &Message) -> bool {
        let written_after = message
            .response
            .as_ref()
            .and_then(|response| response.prompt_fingerprint.as_ref());
        // Comparing costs a hash of the prefix for each response, so it is done only when needed.
        let is_unchanged = |prefix: &Prefix| {
            written_after.is_some_and(|written_after| prefix.matches(written_after))
        };
        self.prefix.as_ref().is_none_or(is_unchanged)
    }

    /// Encodes reasoning unchanged. Returns `None` if the rules exclude it or it is empty.
    fn thinking(&self, own: bool, part: &Part, text: &'a str) -> Option<Block<'a>> {
        let (content, is_signed) = thinking(part, text)?;
        let reasoning = PastReasoning::anywhere(own, is_signed);
        let is_sent = self.form.family.reasoning().includes(reasoning);
        is_sent.then(|| Block::new(content))
    }

    /// Whether the model that is called wrote the message.
    fn is_own(&self, message: &Message) -> bool {
        authorship::wrote(self.form.provider, &self.prompt.model, message)
    }

    fn note(&mut self, message: &Message, part: usize, text: &str) {
        let note = omissions::part(message, part, text);
        self.conversation.left_out.push(note);
    }

    /// Adds the blocks of a message, or notes that nothing of it can be sent.
    fn push_or_note(&mut self, message: &Message, speaker: WireRole, blocks: Vec<Block<'a>>) {
        if blocks.is_empty() {
            let note = omissions::message(message);
            self.conversation.left_out.push(note);
        }
        self.push(speaker, blocks);
    }

    /// Removes reasoning at the end of an assistant message, which the service rejects. It occurs
    /// if the response was cut off or what followed is not sent.
    fn drop_trailing_reasoning(&mut self) {
        let Trailing { count, prefix } = std::mem::take(&mut self.trailing);
        if count == 0 {
            return;
        }
        let messages = &mut self.conversation.messages;
        if let Some(answer) = messages.last_mut() {
            let kept = answer.content.len().saturating_sub(count);
            answer.content.truncate(kept);
        }
        messages.pop_if(|answer| answer.content.is_empty());
        self.prefix = prefix;
        let kept = self.reasoning.len().saturating_sub(count);
        for (message, position) in self.reasoning.split_off(kept) {
            let why = "Reasoning at the end of a response is not sent back.";
            self.note(message, position, why);
        }
    }

    /// Appends blocks to the last message if it has the same role, otherwise adds a message.
    fn push(&mut self, speaker: WireRole, blocks: Vec<Block<'a>>) {
        if blocks.is_empty() {
            return;
        }
        match speaker {
            WireRole::User | WireRole::System => self.drop_trailing_reasoning(),
            WireRole::Assistant => {}
        }
        for block in &blocks {
            if !is_reasoning(block) {
                self.trailing = Trailing::default();
            } else {
                if self.trailing.count == 0 {
                    self.trailing.prefix.clone_from(&self.prefix);
                }
                self.trailing.count += 1;
            }
            if let Some(prefix) = &mut self.prefix {
                add(prefix, speaker, block);
            }
        }
        match self.conversation.messages.last_mut() {
            Some(last) if last.role == speaker => last.content.extend(blocks),
            Some(_) | None => self.conversation.messages.push(WireMessage {
                role: speaker,
                content: blocks,
            }),
        }
    }

    fn finish(mut self) -> Conversation<'a> {
        self.drop_trailing_reasoning();
        if !self.can_end() {
            self.push(WireRole::User, vec![Block::text(CONTINUE)]);
        }
        self.order_notes();
        let messages = &self.conversation.messages;
        Conversation {
            has_reasoning: !self.reasoning.is_empty(),
            has_system: messages
                .iter()
                .any(|message| message.role == WireRole::System),
            fingerprint: self.prefix.map(|prefix| prefix.fingerprint()),
            ..self.conversation
        }
    }

    /// Sorts the notes by message: trailing reasoning is noted only after what follows it was read.
    fn order_notes(&mut self) {
        let stored = self.prompt.transcript.messages();
        let order: BTreeMap<&MessageId, usize> = stored
            .iter()
            .enumerate()
            .map(|(at, message)| (&message.id, at))
            .collect();
        let place = |note: &PromptNote| note.message.as_ref().and_then(|id| order.get(id));
        self.conversation
            .left_out
            .sort_by_key(|note| place(note).copied());
    }

    /// Whether the conversation can end here. Most models can continue only after an item of the
    /// service, at which the response paused. No model can continue if nothing of the last message
    /// is sent, because its own earlier output would become the start of its response.
    fn can_end(&self) -> bool {
        let stored = self.prompt.transcript.messages();
        let goes_on = stored
            .last()
            .is_some_and(|last| last.role == Role::Assistant);
        self.conversation
            .messages
            .last()
            .is_none_or(|last| match last.role {
                WireRole::User | WireRole::System => true,
                WireRole::Assistant => {
                    let is_item = |block: &Block<'_>| matches!(block, Block::Item(_));
                    goes_on
                        && (self.form.family.prefill || last.content.last().is_some_and(is_item))
                }
            })
    }
}

fn is_reasoning(block: &Block<'_>) -> bool {
    match block {
        Block::Own { content, .. } => match content {
            Written::Thinking { .. } | Written::RedactedThinking { .. } => true,
            Written::Text { .. }
            | Written::Image { .. }
            | Written::Document { .. }
            | Written::ToolUse { .. }
            | Written::ToolResult { .. } => false,
        },
        Block::Item(_) => false,
    }
}

/// Whether a block is the result of a server tool.
fn is_hosted_result(block: &Block<'_>) -> bool {
    match block {
        Block::Item(json) => hosted::is_result(&member(&json.0, "type")),
        Block::Own { .. } => false,
    }
}

/// Whether a message that calls tools starts with reasoning. Returns true for a message without
/// calls.
fn starts_with_reasoning(blocks: &[Block<'_>]) -> bool {
    let is_call = |block: &Block<'_>| match block {
        Block::Own { content, .. } => matches!(content, Written::ToolUse { .. }),
        Block::Item(_) => false,
    };
    !blocks.iter().any(is_call) || blocks.first().is_some_and(is_reasoning)
}

/// The service rejects blank texts.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Encodes a part of a user message. Returns `None` if it cannot be sent.
fn user_block<'a>(part: &'a Part, contents: &Contents) -> Option<Block<'a>> {
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

/// Encodes a tool result.
fn result<'a>(part: &'a Part, ids: &'a CallIdMap, contents: &Contents) -> Option<Block<'a>> {
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

/// Encodes the content of a tool result. An error must have some text.
fn given<'a>(result: &'a ToolResult, contents: &Contents) -> Vec<Block<'a>> {
    let blocks: Vec<Block<'a>> = result
        .parts
        .iter()
        .filter_map(|given| match given {
            OutputPart::Text(text) => (!is_blank(text)).then(|| Block::text(text.as_str())),
            OutputPart::Media(medium) => Some(media::block(medium, contents)),
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

/// Decodes the reasoning to send, and whether it has a signature. Returns `None` if there is
/// nothing to send.
fn thinking<'a>(part: &Part, text: &'a str) -> Option<(Written<'a>, bool)> {
    let mut entry = authorship::attached_metadata(KIND, part).unwrap_or_default();
    let mut word = |name: &str| match entry.remove(name) {
        Some(Value::String(word)) => Some(word),
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_),
        )
        | None => None,
    };
    if let Some(data) = word("redacted_thinking") {
        return Some((Written::RedactedThinking { data }, true));
    }
    let signature = word("signature");
    let is_signed = signature.is_some();
    let content = Written::Thinking {
        thinking: text,
        signature,
    };
    (is_signed || !text.is_empty()).then_some((content, is_signed))
}

/// The citations of a text as the service wrote them.
fn citations<'a>(part: &'a Part, own: bool) -> Vec<Json<'a>> {
    let cited = part.citations.iter().filter(|_| own);
    cited
        .filter_map(|citation| citation.provider_metadata.as_deref())
        .map(|json| Json(Cow::Borrowed(json)))
        .collect()
}

/// The arguments as the model wrote them. A call whose arguments are not a JSON object was never
/// run, and is sent without arguments. Unpaired surrogates, which the service rejects, are
/// replaced.
fn arguments(call: &ToolCall) -> Json<'_> {
    Json(if call.has_object() {
        replace_lone_surrogates(&call.arguments)
    } else {
        Cow::Borrowed("{}")
    })
}

/// A string member of an item. Empty if there is none.
fn member(json: &str, name: &str) -> String {
    let members = lenient::members(json);
    members
        .get(name)
        .map(|raw| lenient::string(raw))
        .unwrap_or_default()
}

/// Adds a block to the hashed prefix. Cache markers are not included.
fn add(prefix: &mut Prefix, speaker: WireRole, block: &Block<'_>) {
    let who = match speaker {
        WireRole::User => "user",
        WireRole::Assistant => "assistant",
        WireRole::System => "system",
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
            } => {
                let signature = signature.as_deref().unwrap_or_default();
                prefix.add(who, ["thinking", *thinking, signature]);
            }
            Written::RedactedThinking { data } => prefix.add(who, ["redacted_thinking", data]),
        },
    }
}
