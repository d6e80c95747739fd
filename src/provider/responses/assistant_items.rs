//! Encodes an assistant message as items: unchanged for the model that generated it, only text and
//! calls for another model.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    KIND,
    encode_options::EncodeOptions,
    hosted::{self, ClientCalls},
    wire::{Content as Piece, Input, Message as Said, Reasoning, Text},
};
use crate::{
    model::{CallId, Content, Contents, Media, Message, Part, ProviderItem, ToolCall, message::StoredPart},
    provider::{PastReasoning, authorship, call_ids::CallIdMap, call_names, http::lenient, inserted::arguments},
};

/// Limit on the bytes of an item id.
const MAX_ID_BYTES: usize = 64;

/// An assistant message as items.
#[derive(Debug, Default)]
pub(super) struct EncodedResponse<'a> {
    pub(super) items: Vec<Input<'a>>,
    /// Positions of the parts that are not in any item.
    pub(super) left_out: Vec<usize>,
}

/// An item that is being built, with the positions of its parts.
#[derive(Debug)]
struct Draft<'a> {
    item: Input<'a>,
    parts: Vec<usize>,
    /// The metadata of the message item that the texts belong to.
    of: Option<Map<String, Value>>,
}

/// The state of one encoding.
#[derive(Debug)]
struct Writer<'a> {
    own: bool,
    /// Whether encrypted reasoning is sent back.
    sends_encrypted: bool,
    /// Whether reasoning is sent back as plain text.
    sends_plain: bool,
    /// Calls of the message that the client should have run.
    client_calls: ClientCalls,
    drafts: Vec<Draft<'a>>,
    /// Reasoning whose item has not ended yet.
    summary: Vec<(usize, &'a str)>,
    left_out: Vec<usize>,
}

/// Encodes an assistant message. `own`: the model that is called wrote it; `in_loop`: no user
/// message follows it.
pub(super) fn answer<'a>(
    message: &'a Message,
    (own, in_loop): (bool, bool),
    form: EncodeOptions<'_>,
    (ids, contents): (&'a CallIdMap, &Contents),
) -> EncodedResponse<'a> {
    let takes = |attached| {
        form.dialect.reasoning().includes(PastReasoning {
            has_metadata: attached,
            own,
            in_loop,
            in_calling_turn: false,
        })
    };
    let mut writer = Writer {
        own,
        sends_encrypted: takes(true),
        sends_plain: takes(false),
        client_calls: client_calls(message),
        drafts: Vec::new(),
        summary: Vec::new(),
        left_out: Vec::new(),
    };
    for (at, StoredPart { part, .. }) in message.parts.iter().enumerate() {
        match &part.content {
            Content::Reasoning { text, .. } => writer.reason(at, part, text),
            Content::Text(text) if !text.is_empty() => writer.say(at, part, text, false),
            Content::Refusal(text) if !text.is_empty() => writer.say(at, part, text, true),
            Content::ToolCall(call) => writer.call(at, part, call, ids),
            Content::ProviderItem(item) => writer.add(at, item, form),
            Content::Media(medium) => writer.show(at, part, medium, contents),
            // The transcript is validated: assistant messages have no tool results.
            Content::Text(_) | Content::Refusal(_) | Content::ToolResult(_) | Content::Unknown(_) => {}
        }
    }
    writer.finish()
}

/// The calls of a message that the client should have run. The service rejects them without an
/// output.
fn client_calls(message: &Message) -> ClientCalls {
    let mut calls = ClientCalls::default();
    for StoredPart { part, .. } in &message.parts {
        if let Content::ProviderItem(item) = &part.content {
            calls.add(&item.kind, &item.json);
        }
    }
    calls
}

/// Whether a part is a custom tool call, whose input is a text.
pub(super) fn is_custom(part: &Part) -> bool {
    let kind = authorship::attached_string(KIND, part, "type");
    kind.as_deref() == Some("custom_tool_call")
}

/// The ids of the custom tool calls of a message.
pub(super) fn custom_calls(message: &Message) -> impl Iterator<Item = &CallId> {
    let parts = message.parts.iter().map(|stored| &stored.part);
    let calls = parts.filter_map(|part| Some((part, part.content.as_call()?)));
    calls.filter(|(part, _)| is_custom(part)).map(|(_, call)| &call.id)
}

impl<'a> Writer<'a> {
    /// Adds reasoning. Encrypted reasoning is sent back with its visible text.
    fn reason(&mut self, at: usize, part: &'a Part, text: &'a str) {
        self.summary.push((at, text));
        let metadata = authorship::attached_metadata(KIND, part).filter(|_| self.sends_encrypted);
        let Some(metadata) = metadata else {
            return;
        };
        let Some(encrypted) = word(&metadata, "encrypted_content") else {
            return;
        };
        let shown = std::mem::take(&mut self.summary);
        let is_raw = metadata.get("raw") == Some(&Value::Bool(true));
        let summary = shown.iter().filter(|(_, text)| !is_raw && !text.is_empty());
        let summary = summary.map(|(_, text)| Piece::SummaryText { text: Cow::Borrowed(*text) }).collect();
        let item = Input::Reasoning(Reasoning {
            // The visible text belongs to the encrypted content, whatever its kind.
            id: word(&metadata, "id").map(str::to_owned),
            summary,
            content: None,
            encrypted_content: Some(encrypted.to_owned()),
        });
        let parts = shown.iter().map(|(at, _)| *at).collect();
        self.push(item, parts, None);
    }

    /// Adds text. Texts of one message item of the service form one item again; texts of another
    /// service are joined.
    fn say(&mut self, at: usize, part: &'a Part, text: &'a str, refused: bool) {
        self.end_summary();
        let of = authorship::attached_metadata(KIND, part);
        let text = Cow::Borrowed(text);
        let piece =
            if refused { Piece::Refusal { refusal: text } } else { Piece::OutputText { text, annotations: [] } };
        if let Some(last) = self.drafts.last_mut().filter(|last| last.of == of)
            && let Input::Message(Said { content: Text::Several(pieces), .. }) = &mut last.item
        {
            pieces.push(piece);
            last.parts.push(at);
            return;
        }
        let metadata = of.as_ref().filter(|_| self.own);
        let phase = metadata.and_then(|it| word(it, "phase")).map(str::to_owned);
        let id = self.id(metadata, "msg_");
        let item = Input::Message(Said {
            role: "assistant",
            status: id.is_some().then_some("completed"),
            id,
            phase,
            content: Text::Several(vec![piece]),
        });
        self.push(item, vec![at], of);
    }

    /// Adds a tool call. A call whose arguments are not a JSON object was never run, and is sent
    /// without arguments.
    fn call(&mut self, at: usize, part: &'a Part, call: &'a ToolCall, ids: &'a CallIdMap) {
        self.end_summary();
        let metadata = authorship::attached_metadata(KIND, part).filter(|_| self.own);
        let call_id = ids.get(&call.id);
        let name = call_names::sanitize(&call.name, call_names::MAX_NAME_CHARS);
        let item = if metadata.is_some() && is_custom(part) {
            Input::CustomToolCall { id: self.id(metadata.as_ref(), "ctc_"), call_id, name, input: custom_input(call) }
        } else {
            Input::FunctionCall {
                id: self.id(metadata.as_ref(), "fc_"),
                call_id,
                name,
                arguments: arguments(call),
                caller: metadata.and_then(|mut own| own.remove("caller")),
            }
        };
        self.push(item, vec![at], None);
    }

    /// Adds an item that only the model that generated it can read.
    fn add(&mut self, at: usize, item: &ProviderItem, form: EncodeOptions<'_>) {
        self.end_summary();
        let readable = self.own && item.provider == form.provider;
        let whole = lenient::value(&item.json).is_some_and(|json| hosted::is_whole(&json));
        let answered = !self.client_calls.has(&item.kind, &item.json);
        match RawValue::from_string(item.json.clone()) {
            Ok(raw) if readable && whole && answered => self.push(Input::Own(raw), vec![at], None),
            Ok(_) | Err(_) => {
                // Reasoning is only valid together with the item that follows it.
                self.drop_reasoning();
                self.left_out.push(at);
            }
        }
    }

    /// Adds an image as the item of the tool that generated it. For an image of another model, adds
    /// text instead.
    fn show(&mut self, at: usize, part: &'a Part, medium: &Media, contents: &Contents) {
        self.end_summary();
        let metadata = authorship::attached_metadata(KIND, part).filter(|_| self.own);
        let item = metadata.and_then(|mut own| own.remove("item"));
        let content = medium.blob().and_then(|kept| contents.get(&kept.id));
        let whole = item.zip(content).and_then(|(mut item, content)| {
            item.as_object_mut()?.insert("result".to_owned(), json!(STANDARD.encode(content)));
            serde_json::value::to_raw_value(&item).ok()
        });
        match whole {
            Some(raw) => self.push(Input::Own(raw), vec![at], None),
            None => {
                self.drop_reasoning();
                self.left_out.push(at);
            }
        }
    }

    fn push(&mut self, item: Input<'a>, parts: Vec<usize>, of: Option<Map<String, Value>>) {
        self.drafts.push(Draft { item, parts, of });
    }

    /// Ends reasoning without encrypted content. It is sent back as plain text, or left out.
    fn end_summary(&mut self) {
        let shown = std::mem::take(&mut self.summary);
        let text: String = shown.iter().map(|(_, text)| *text).collect();
        let parts: Vec<usize> = shown.iter().map(|(at, _)| *at).collect();
        if !self.sends_plain || text.is_empty() {
            self.left_out.extend(parts);
            return;
        }
        let item = Input::Reasoning(Reasoning {
            id: None,
            summary: Vec::new(),
            content: Some([Piece::ReasoningText { text: Cow::Owned(text) }]),
            encrypted_content: None,
        });
        self.push(item, parts, None);
    }

    /// Leaves out the reasoning items at the end.
    fn drop_reasoning(&mut self) {
        let is_reasoning = |draft: &mut Draft<'_>| matches!(draft.item, Input::Reasoning(_));
        while let Some(draft) = self.drafts.pop_if(is_reasoning) {
            self.left_out.extend(draft.parts);
        }
    }

    /// The id that the service gave an item, if it is valid for this kind of item.
    fn id(&self, metadata: Option<&Map<String, Value>>, prefix: &str) -> Option<String> {
        let id = word(metadata?, "id")?;
        let is_valid = self.own && id.starts_with(prefix) && id.len() <= MAX_ID_BYTES;
        is_valid.then(|| id.to_owned())
    }

    fn finish(mut self) -> EncodedResponse<'a> {
        self.end_summary();
        self.drop_reasoning();
        self.left_out.sort_unstable();
        let drafts = self.drafts.into_iter();
        EncodedResponse { items: drafts.map(|draft| plain(draft.item)).collect(), left_out: self.left_out }
    }
}

/// Joins the texts of a message without an id into one.
fn plain(item: Input<'_>) -> Input<'_> {
    match item {
        Input::Message(Said { role, id: None, status, phase, content: Text::Several(pieces) }) => {
            let words = |piece| match piece {
                Piece::InputText { text }
                | Piece::OutputText { text, .. }
                | Piece::SummaryText { text }
                | Piece::ReasoningText { text } => text,
                Piece::Refusal { refusal } => refusal,
                Piece::InputImage { .. } | Piece::InputFile { .. } => Cow::Borrowed(""),
            };
            let words: Vec<Cow<'_, str>> = pieces.into_iter().map(words).collect();
            Input::Message(Said { role, id: None, status, phase, content: Text::One(Cow::Owned(words.concat())) })
        }
        other @ (Input::Message(_)
        | Input::Reasoning(_)
        | Input::FunctionCall { .. }
        | Input::FunctionCallOutput { .. }
        | Input::CustomToolCall { .. }
        | Input::CustomToolCallOutput { .. }
        | Input::Own(_)) => other,
    }
}

/// The input of a custom tool call, or its arguments if they have no text input.
pub(super) fn custom_input(call: &ToolCall) -> String {
    let arguments: Map<String, Value> = serde_json::from_str(&call.arguments).unwrap_or_default();
    word(&arguments, "input").map_or_else(|| call.arguments.clone(), str::to_owned)
}

fn word<'a>(own: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    own.get(key)?.as_str().filter(|word| !word.is_empty())
}
