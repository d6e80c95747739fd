//! Encodes a conversation as items, in the order of the transcript.

use std::{borrow::Cow, collections::BTreeSet};

use super::{
    assistant_items::{self, EncodedResponse, answer},
    encode_options::EncodeOptions,
    media,
    wire::{Content as Piece, Input, Message as Said, Text},
};
use crate::{
    model::{CallId, Content, Contents, Message, Prompt, PromptNote, Role, ToolResult, transcript},
    provider::{
        call_ids::CallIdMap,
        call_names,
        inputs::{self, Input as Given},
        inserted::{failure_text, origin_note, result_text},
        omissions,
    },
};

/// Encodes all messages as items. Also returns what was left out, in order.
pub(super) fn items<'a>(
    prompt: &'a Prompt,
    form: EncodeOptions<'_>,
    ids: &'a CallIdMap,
) -> (Vec<Input<'a>>, Vec<PromptNote>) {
    let stored = prompt.transcript.messages();
    let contents = &prompt.contents;
    let custom = custom_calls(stored, &prompt.model, form);
    let loop_begins = transcript::loop_begins(stored);
    let mut items = Vec::new();
    let mut notes = Vec::new();
    for (at, message) in stored.iter().enumerate() {
        match message.role {
            Role::System | Role::User => {
                let role = match (message.role, form.dialect.developer_role) {
                    (Role::System, true) => "developer",
                    (Role::System, false) => "system",
                    (_, _) => "user",
                };
                let written = input_message(role, message, contents);
                notes.extend(written.is_none().then(|| omissions::message(message)));
                items.extend(written);
            }
            Role::Assistant => {
                let own = form.is_own(&prompt.model, message);
                let EncodedResponse { items: written, left_out } =
                    answer(message, (own, at > loop_begins), form, (ids, contents));
                if written.is_empty() {
                    notes.push(omissions::message(message));
                } else {
                    notes.extend(left_out.into_iter().map(|at| note(message, at)));
                    notes.extend(omissions::names(message, call_names::MAX_NAME_CHARS));
                }
                items.extend(written);
            }
            Role::Tool => items.extend(results(message, contents, &custom, form, ids)),
        }
    }
    (items, notes)
}

/// Notes that the part at this index is not sent.
fn note(message: &Message, at: usize) -> PromptNote {
    let part = message.parts.get(at).map(|stored| &stored.part.content);
    let is_item = matches!(part, Some(Content::ProviderItem(_) | Content::Media(_)));
    let why =
        if is_item { "The item can be sent back only to the model that generated it." } else { omissions::REASONING };
    omissions::part(message, at, why)
}

/// The custom tool calls, whose input is a text, of the model that is called.
fn custom_calls<'a>(stored: &'a [Message], model: &str, form: EncodeOptions<'_>) -> BTreeSet<&'a CallId> {
    let own = stored.iter().filter(|message| form.is_own(model, message));
    own.flat_map(assistant_items::custom_calls).collect()
}

/// Encodes a user or system message. Returns `None` if it is empty.
fn input_message<'a>(role: &'static str, message: &'a Message, contents: &Contents) -> Option<Input<'a>> {
    let pieces = inputs::of_message(message).map(|given| piece(given, contents));
    let pieces: Vec<Piece<'a>> = pieces.collect();
    (!pieces.is_empty()).then(|| message_item(role, pieces))
}

fn piece<'a>(given: Given<'a>, contents: &Contents) -> Piece<'a> {
    match given {
        Given::Text(text) => Piece::text(text),
        Given::Media(medium) => media::content(medium, contents),
    }
}

fn message_item<'a>(role: &'static str, pieces: Vec<Piece<'a>>) -> Input<'a> {
    Input::Message(Said { role, id: None, status: None, phase: None, content: text(pieces) })
}

/// A single text becomes a string, anything else an array of contents.
fn text(mut pieces: Vec<Piece<'_>>) -> Text<'_> {
    match (pieces.pop(), pieces.is_empty()) {
        (None, _) => Text::One(Cow::Borrowed("")),
        (Some(Piece::InputText { text }), true) => Text::One(text),
        (Some(last), _) => {
            pieces.push(last);
            Text::Several(pieces)
        }
    }
}

/// Encodes the results in a tool message, and after them their media if the service accepts none in
/// results.
fn results<'a>(
    message: &'a Message,
    contents: &Contents,
    custom: &BTreeSet<&CallId>,
    form: EncodeOptions<'_>,
    ids: &'a CallIdMap,
) -> Vec<Input<'a>> {
    let mut items: Vec<Input<'a>> = Vec::new();
    for result in message.results() {
        let call_id = ids.get(&result.call);
        let output = output(result, contents, form.dialect.media.in_results);
        items.push(if custom.contains(&result.call) {
            Input::CustomToolCallOutput { call_id, output }
        } else {
            Input::FunctionCallOutput { call_id, output }
        });
    }
    if !form.dialect.media.in_results {
        let shown = message.results().flat_map(|it| result_media(it, contents));
        let shown: Vec<Piece<'a>> = shown.collect();
        items.extend((!shown.is_empty()).then(|| message_item("user", shown)));
    }
    items
}

/// Encodes the output of a tool call. There is no field for the outcome, so the text states a
/// failure.
fn output<'a>(result: &'a ToolResult, contents: &Contents, with_media: bool) -> Text<'a> {
    if !with_media || result.media().next().is_none() {
        return Text::One(result_text(result));
    }
    let failure = failure_text(result.outcome).map(Piece::text);
    let given = inputs::of_result(result).map(|given| piece(given, contents));
    Text::Several(failure.into_iter().chain(given).collect())
}

/// The media of a result, each after a text that states its origin.
fn result_media<'a>(result: &'a ToolResult, contents: &Contents) -> impl Iterator<Item = Piece<'a>> {
    result.media().flat_map(|medium| {
        let origin = Piece::text(origin_note(result, medium));
        [origin, media::content(medium, contents)]
    })
}
