//! Encodes a conversation in the format of generateContent.
//!
//! User and model contents alternate: consecutive messages of one role are merged. The content
//! after calls starts with a response for each of them, in their order. Parts that the model wrote
//! are sent back unchanged, each with its own signature.

use std::{borrow::Cow, collections::BTreeMap};

use super::{
    KIND,
    family::Family,
    items, media, names,
    wire::{Call, Content as Written, Data, OwnPart, Part, Response, WireRole},
};
use crate::{
    model::{
        CallId, Content, Media, Message, Part as StoredContent, Prompt, PromptNote, ProviderItem, Role, ToolCall,
        ToolResult, json::replace_lone_surrogates, message::StoredPart,
    },
    provider::{
        PastReasoning, authorship,
        body::Json,
        call_names,
        http::lenient,
        inputs::{self, Input},
        inserted::{self, INSTRUCTIONS, OPENING, media_follows_note, origin_note, outcome_text},
        omissions,
        rules::ReasoningRule,
    },
};

/// Which reasoning of earlier responses is sent.
pub(super) const REASONING: ReasoningRule = ReasoningRule::SIGNED;

/// Placeholder for a missing signature, which the service does not validate.
pub(super) const UNSIGNED: &str = "skip_thought_signature_validator";

/// An encoded conversation.
#[derive(Debug, Default)]
pub(super) struct Conversation<'a> {
    /// The leading instructions, one per part.
    pub(super) system: Vec<&'a str>,
    pub(super) contents: Vec<Written<'a>>,
    /// What was left out, in order.
    pub(super) left_out: Vec<PromptNote>,
}

/// Encodes the conversation of a prompt, for a provider with this configured name and a model of
/// this family.
pub(super) fn conversation<'a>(prompt: &'a Prompt, provider: &'a str, family: Family) -> Conversation<'a> {
    let stored = prompt.transcript.messages();
    let (system, leading) = inputs::leading_instructions(prompt);
    let mut writer = Writer {
        prompt,
        provider,
        family,
        calls: BTreeMap::new(),
        conversation: Conversation { system, ..Conversation::default() },
    };
    // The results of one response's calls may be several messages.
    let both_results = |one: &Message, next: &Message| one.role == Role::Tool && next.role == Role::Tool;
    for group in stored[leading..].chunk_by(both_results) {
        writer.write(group);
    }
    writer.conversation
}

/// A tool call that was written.
#[derive(Debug, Clone)]
struct WrittenCall {
    /// Number of calls written before it.
    number: usize,
    /// The id that the service gave the call, if any.
    id: Option<String>,
}

/// The state of one encoding.
struct Writer<'a> {
    prompt: &'a Prompt,
    provider: &'a str,
    family: Family,
    calls: BTreeMap<&'a CallId, WrittenCall>,
    conversation: Conversation<'a>,
}

impl<'a> Writer<'a> {
    /// Writes a message, or several tool messages.
    fn write(&mut self, group: &'a [Message]) {
        let contents = &self.prompt.contents;
        let message = &group[0];
        match message.role {
            Role::System => {
                let texts = message.texts().filter(|text| !inputs::is_blank(text));
                let parts = texts.map(|text| Part::text(format!("{INSTRUCTIONS}{text}")));
                self.push_or_note(message, WireRole::User, parts.collect());
            }
            Role::User => {
                let parts = inputs::of_message(message).map(|input| match input {
                    Input::Text(text) => Part::text(text),
                    Input::Media(medium) => media::part(medium, contents),
                });
                self.push_or_note(message, WireRole::User, parts.collect());
            }
            Role::Tool => self.results(group),
            Role::Assistant => {
                if self.conversation.contents.is_empty() {
                    self.push(WireRole::User, vec![Part::text(OPENING)]);
                }
                let parts = self.answer(message);
                let renamed = omissions::names(message, call_names::MAX_NAME_CHARS);
                self.conversation.left_out.extend(renamed);
                self.push_or_note(message, WireRole::Model, parts);
            }
        }
    }

    /// Encodes an assistant message.
    fn answer(&mut self, message: &'a Message) -> Vec<Part<'a>> {
        let own = authorship::wrote(self.provider, &self.prompt.model, message);
        let mut written = Vec::new();
        let mut called = false;
        for (position, StoredPart { part, .. }) in message.parts.iter().enumerate() {
            let mut attached = attached(part);
            let signature = attached.remove("thoughtSignature").filter(|_| own);
            let data = match &part.content {
                Content::Text(text) | Content::Refusal(text) => {
                    let sendable = !text.is_empty() || signature.is_some();
                    sendable.then(|| Data::Text(Cow::Borrowed(text)))
                }
                Content::Reasoning { text, .. } => {
                    let reasoning = PastReasoning::anywhere(own, signature.is_some());
                    let is_sent = REASONING.includes(reasoning);
                    let data = is_sent.then(|| Data::Text(Cow::Borrowed(text)));
                    if data.is_none() {
                        self.note(message, position, omissions::REASONING);
                    }
                    data
                }
                Content::ToolCall(call) => Some(self.call(call, attached.remove("id"))),
                Content::ProviderItem(item) => {
                    let sent = self.item(item, own);
                    if sent.is_none() {
                        let why = if items::is_whole(item) {
                            omissions::ITEM
                        } else {
                            "The content of the item was too large to be kept."
                        };
                        self.note(message, position, why);
                    }
                    written.extend(sent);
                    None
                }
                Content::Media(medium) => Some(media::data(medium, &self.prompt.contents)),
                // The transcript is validated: assistant messages have no tool results.
                Content::ToolResult(_) | Content::Unknown(_) => None,
            };
            let is_call = matches!(data, Some(Data::FunctionCall(_)));
            // Only the first of several calls is signed.
            let stand_in = is_call && !called && self.family.signs_calls;
            called |= is_call;
            let thought = matches!(&part.content, Content::Reasoning { .. });
            let stand_in = stand_in.then_some(Cow::Borrowed(UNSIGNED));
            written.extend(data.map(|data| {
                Part::Own(OwnPart { data, thought, thought_signature: signature.map(Cow::Owned).or(stand_in) })
            }));
        }
        written
    }

    fn call(&mut self, call: &'a ToolCall, id: Option<String>) -> Data<'a> {
        let number = self.calls.len();
        let asked = WrittenCall { number, id: id.clone() };
        self.calls.insert(&call.id, asked);
        Data::FunctionCall(Call {
            id,
            name: names::escape_call(&call.name),
            args: Json(replace_lone_surrogates(inserted::arguments(call))),
        })
    }

    /// Encodes a provider item. The signature is removed for another model, to which it has no
    /// meaning. Returns `None` if the item belongs to another provider or is incomplete.
    fn item(&self, item: &'a ProviderItem, own: bool) -> Option<Part<'a>> {
        if item.provider != self.provider || !items::is_whole(item) {
            return None;
        }
        if own {
            return Some(Part::Item(Json(Cow::Borrowed(&item.json))));
        }
        let mut fields = lenient::members(&item.json);
        fields.remove("thoughtSignature");
        let json = serde_json::to_string(&fields).ok()?;
        Some(Part::Item(Json(Cow::Owned(json))))
    }

    /// Writes tool results in the order of their calls, and after them the media that cannot be
    /// part of a result.
    fn results(&mut self, messages: &'a [Message]) {
        let contents = &self.prompt.contents;
        let results = messages.iter().flat_map(Message::results);
        let results = results.map(|result| (self.asked(&result.call), result));
        let mut results: Vec<(WrittenCall, &ToolResult)> = results.collect();
        results.sort_by_key(|(asked, _)| asked.number);
        let mut after = Vec::new();
        let mut written = Vec::new();
        for (asked, result) in results {
            let (inside, outside): (Vec<&Media>, Vec<&Media>) = result
                .media()
                .partition(|medium| self.family.media_in_results && media::fits_in_result(medium, contents));
            for medium in &outside {
                after.push(Part::text(origin_note(result, medium)));
                after.push(media::part(medium, contents));
            }
            written.push(Part::new(Data::FunctionResponse(Response {
                id: asked.id,
                name: names::escape_call(&result.name),
                response: BTreeMap::from([outcome(result, &outside)]),
                parts: inside.iter().map(|it| media::part(it, contents)).collect(),
            })));
        }
        written.extend(after);
        self.push(WireRole::User, written);
    }

    fn asked(&self, call: &CallId) -> WrittenCall {
        let unknown = || WrittenCall { number: usize::MAX, id: None };
        self.calls.get(call).cloned().unwrap_or_else(unknown)
    }

    fn note(&mut self, message: &Message, part: usize, why: &str) {
        let note = omissions::part(message, part, why);
        self.conversation.left_out.push(note);
    }

    /// Adds the parts of a message, or notes that nothing of it can be sent.
    fn push_or_note(&mut self, message: &Message, speaker: WireRole, parts: Vec<Part<'a>>) {
        if parts.is_empty() {
            let note = omissions::message(message);
            self.conversation.left_out.push(note);
        }
        self.push(speaker, parts);
    }

    /// Appends parts to the last content if it has the same role, otherwise adds a content.
    fn push(&mut self, speaker: WireRole, parts: Vec<Part<'a>>) {
        if parts.is_empty() {
            return;
        }
        match self.conversation.contents.last_mut() {
            Some(last) if last.role == speaker => last.parts.extend(parts),
            Some(_) | None => self.conversation.contents.push(Written { role: speaker, parts }),
        }
    }
}

/// The name and the text of a tool result. Each media part in `outside` is replaced by a note that it follows.
fn outcome(result: &ToolResult, outside: &[&Media]) -> (&'static str, String) {
    let words = inputs::of_result(result).filter_map(|given| match given {
        Input::Text(text) => Some(Cow::Borrowed(text)),
        Input::Media(medium) => {
            let follows = outside.contains(&medium);
            follows.then(|| Cow::Owned(media_follows_note(medium)))
        }
    });
    let words = words.collect::<Vec<_>>().join("\n");
    match outcome_text(result.outcome) {
        None => ("output", words),
        Some(silent) if words.is_empty() => ("error", silent.to_owned()),
        Some(_) => ("error", words),
    }
}

/// The strings in the metadata that this kind of provider attached to a part.
fn attached(part: &StoredContent) -> BTreeMap<String, String> {
    let words = authorship::attached_metadata(KIND, part).into_iter().flatten();
    words
        .filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())))
        .filter(|(_, word)| !word.is_empty())
        .collect()
}
