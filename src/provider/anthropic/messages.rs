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
    parts::{self, arguments, citations},
    wire::{Block, Content as Written, Message as WireMessage, WireRole},
};
use crate::{
    model::{
        Content, Message, MessageId, Part, Prompt, PromptNote, ProviderItem, Role, Seq, message::StoredPart, transcript,
    },
    provider::{
        PastReasoning, authorship,
        body::Json,
        call_ids::CallIdMap,
        call_names,
        http::lenient,
        inputs::{self, is_blank},
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
#[derive(Debug, Default)]
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
    let (system, leading) = inputs::leading_instructions(prompt);
    let system = system.into_iter().map(Cow::Borrowed).collect();
    let answers = stored.iter().filter(|it| it.role == Role::Assistant);
    let mut writer = Writer {
        prompt,
        form,
        ids,
        loop_begins: transcript::loop_begins(stored),
        newest_prune: stored.iter().filter_map(pruned_at).max(),
        last_answer: answers.map(|message| message.seq).max(),
        hosted: Hosted::of(stored, form.provider),
        prefix: form.family.binds_prefix.then(|| Prefix::of(stored)),
        reasoning: Vec::new(),
        trailing: Trailing::default(),
        conversation: Conversation { system, ..Conversation::default() },
    };
    writer.begin(tools);
    for at in leading..stored.len() {
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
                let blocks = parts::blocks(inputs::of_message(message), contents);
                self.push_or_note(message, WireRole::User, blocks);
            }
            Role::Tool => {
                let (results, ids) = (message.results(), self.ids);
                let results = results.map(|result| parts::tool_result(result, ids, contents));
                self.push(WireRole::User, results.collect());
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
        let pruned =
            self.conversation.pruned.get_or_insert(Pruned { cleared: 0, cleared_before: None, changed: 0, is_new });
        if is_newest && pruned.changed == 0 {
            pruned.changed = sent;
        }
        // If the message has other results, the next prune may change it.
        let parts = message.parts.iter();
        let mut results = parts.filter(|it| it.part.content.as_result().is_some());
        if results.all(|stored| stored.pruned.is_some()) {
            pruned.cleared = sent;
            if pruned.changed == 0 {
                pruned.cleared_before = Some(sent);
            }
        }
    }

    fn instruct(&mut self, at: usize, message: &'a Message) {
        let texts = message.texts().filter(|text| !is_blank(text));
        let mut texts = texts.peekable();
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
            Content::ProviderItem(item) => message.role == Role::Assistant && self.sends_item(at, position, item),
            Content::Reasoning { .. } | Content::ToolResult(_) | Content::Unknown(_) => false,
        })
    }

    /// Encodes an assistant message.
    fn answer(&mut self, at: usize, message: &'a Message) -> Vec<Block<'a>> {
        let mut parts = message.parts.iter();
        let reasons = parts.any(|it| matches!(it.part.content, Content::Reasoning { .. }));
        let is_valid = reasons && self.form.with_reasoning && self.is_unchanged(message);
        let own = self.is_own(message);
        let cites = own && self.hosted.sends_sources(at);
        let mut blocks = Vec::new();
        for (position, StoredPart { part, .. }) in message.parts.iter().enumerate() {
            let written = match &part.content {
                Content::Text(text) | Content::Refusal(text) => (!is_blank(text)).then(|| {
                    Block::new(Written::Text { text: Cow::Borrowed(text), citations: citations(part, cites) })
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
        let caller = authorship::attached(KIND, part, "caller")?;
        let id = caller["tool_id"].as_str();
        id.is_none_or(|id| self.hosted.sends_call(id)).then_some(caller)
    }

    /// Whether a model that binds its reasoning accepts this reasoning: the content before the
    /// message is exactly the content that the message was generated after.
    fn is_unchanged(&self, message: &Message) -> bool {
        let response = message.response.as_ref();
        let written_after = response.and_then(|response| response.prompt_fingerprint.as_ref());
        // Comparing costs a hash of the prefix for each response, so it is done only when needed.
        let prefix = self.prefix.as_ref();
        prefix.is_none_or(|prefix| written_after.is_some_and(|after| prefix.matches(after)))
    }

    /// Encodes reasoning unchanged. Returns `None` if the rules exclude it or it is empty.
    fn thinking(&self, own: bool, part: &Part, text: &'a str) -> Option<Block<'a>> {
        let (content, is_signed) = parts::thinking(part, text)?;
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
                parts::add(prefix, speaker, block);
            }
        }
        match self.conversation.messages.last_mut() {
            Some(last) if last.role == speaker => last.content.extend(blocks),
            Some(_) | None => self.conversation.messages.push(WireMessage { role: speaker, content: blocks }),
        }
    }

    fn finish(mut self) -> Conversation<'a> {
        self.drop_trailing_reasoning();
        if !self.can_end() {
            self.push(WireRole::User, vec![Block::text(CONTINUE)]);
        }
        self.order_notes();
        let messages = &self.conversation.messages;
        let has_system = messages.iter().any(|it| it.role == WireRole::System);
        Conversation {
            has_reasoning: !self.reasoning.is_empty(),
            has_system,
            fingerprint: self.prefix.map(|prefix| prefix.fingerprint()),
            ..self.conversation
        }
    }

    /// Sorts the notes by message: trailing reasoning is noted only after what follows it was read.
    fn order_notes(&mut self) {
        let stored = self.prompt.transcript.messages();
        let ids = stored.iter().map(|message| &message.id);
        let order: BTreeMap<&MessageId, usize> = ids.zip(0..).collect();
        let place = |note: &PromptNote| order.get(note.message.as_ref()?).copied();
        self.conversation.left_out.sort_by_key(place);
    }

    /// Whether the conversation can end here. Most models can continue only after an item of the
    /// service, at which the response paused. No model can continue if nothing of the last message
    /// is sent, because its own earlier output would become the start of its response.
    fn can_end(&self) -> bool {
        let stored = self.prompt.transcript.messages();
        let goes_on = stored.last().is_some_and(|it| it.role == Role::Assistant);
        let last = self.conversation.messages.last();
        last.is_none_or(|last| match last.role {
            WireRole::User | WireRole::System => true,
            WireRole::Assistant => {
                let is_item = |block: &Block<'_>| matches!(block, Block::Item(_));
                goes_on && (self.form.family.prefill || last.content.last().is_some_and(is_item))
            }
        })
    }
}

fn is_reasoning(block: &Block<'_>) -> bool {
    let content = block.own_content();
    matches!(content, Some(Written::Thinking { .. } | Written::RedactedThinking { .. }))
}

/// Whether a block is the result of a server tool.
fn is_hosted_result(block: &Block<'_>) -> bool {
    match block {
        Block::Item(json) => hosted::is_result(&lenient::member(&json.0, "type")),
        Block::Own { .. } => false,
    }
}

/// Whether a message that calls tools starts with reasoning. Returns true for a message without
/// calls.
fn starts_with_reasoning(blocks: &[Block<'_>]) -> bool {
    let is_call = |block: &Block<'_>| matches!(block.own_content(), Some(Written::ToolUse { .. }));
    !blocks.iter().any(is_call) || blocks.first().is_some_and(is_reasoning)
}
