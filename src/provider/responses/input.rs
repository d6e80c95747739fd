//! Encodes a conversation as items, in the order of the transcript.

use std::{borrow::Cow, collections::BTreeSet};

use super::{
    assistant_items::{EncodedResponse, answer},
    encode_options::EncodeOptions,
    media,
    wire::{Content as Piece, Input, Message as Said, Text},
};
use crate::{
    model::{
        CallId, Content, Contents, Message, OutputPart, Prompt, Role, ToolOutcome, ToolResult,
        message::StoredPart, transcript,
    },
    provider::{call_ids::CallIdMap, inserted::result_parts_text},
};

/// Prefixes of the text of a result whose call failed or was denied.
const FAILED: &str = "Error";
const DENIED: &str = "Denied";

/// Encodes all messages as items.
pub(super) fn items<'a>(
    prompt: &'a Prompt,
    form: EncodeOptions<'_>,
    ids: &'a CallIdMap,
) -> Vec<Input<'a>> {
    let stored = prompt.transcript.messages();
    let contents = &prompt.contents;
    let custom = custom_calls(stored, &prompt.model, form);
    let loop_begins = transcript::loop_begins(stored);
    let mut items = Vec::new();
    for (at, message) in stored.iter().enumerate() {
        match message.role {
            Role::System => {
                let role = if form.dialect.developer_role {
                    "developer"
                } else {
                    "system"
                };
                items.extend(input_message(role, message, contents));
            }
            Role::User => items.extend(input_message("user", message, contents)),
            Role::Assistant => {
                let own = form.is_own(&prompt.model, message);
                let EncodedResponse { items: written, .. } =
                    answer(message, (own, at > loop_begins), form, (ids, contents));
                items.extend(written);
            }
            Role::Tool => items.extend(results(message, contents, &custom, form, ids)),
        }
    }
    items
}

/// The custom tool calls, whose input is a text, of the model that is called.
fn custom_calls<'a>(
    stored: &'a [Message],
    model: &str,
    form: EncodeOptions<'_>,
) -> BTreeSet<&'a CallId> {
    let custom = |part: &'a StoredPart| match &part.part.content {
        Content::ToolCall(call) if super::assistant_items::is_custom(&part.part) => Some(&call.id),
        Content::Text(_)
        | Content::Reasoning { .. }
        | Content::ToolCall(_)
        | Content::ToolResult(_)
        | Content::Refusal(_)
        | Content::Media(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => None,
    };
    stored
        .iter()
        .filter(|message| form.is_own(model, message))
        .flat_map(|message| &message.parts)
        .filter_map(custom)
        .collect()
}

/// Encodes a user or system message. Returns `None` if it is empty.
pub(super) fn input_message<'a>(
    role: &'static str,
    message: &'a Message,
    contents: &Contents,
) -> Option<Input<'a>> {
    let piece = |part: &'a StoredPart| match &part.part.content {
        Content::Text(text) if !text.is_empty() => Some(Piece::InputText {
            text: Cow::Borrowed(text),
        }),
        Content::Media(medium) => Some(media::content(medium, contents)),
        Content::Text(_)
        | Content::Reasoning { .. }
        | Content::ToolCall(_)
        | Content::ToolResult(_)
        | Content::Refusal(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => None,
    };
    let pieces: Vec<Piece<'a>> = message.parts.iter().filter_map(piece).collect();
    (!pieces.is_empty()).then(|| message_item(role, pieces))
}

fn message_item<'a>(role: &'static str, pieces: Vec<Piece<'a>>) -> Input<'a> {
    Input::Message(Said {
        role,
        id: None,
        status: None,
        phase: None,
        content: text(pieces),
    })
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
        let shown: Vec<Piece<'a>> = message
            .results()
            .flat_map(|result| result_media(result, contents))
            .collect();
        items.extend((!shown.is_empty()).then(|| message_item("user", shown)));
    }
    items
}

/// Encodes the output of a tool call. There is no field for the outcome, so the text states a
/// failure.
fn output<'a>(result: &'a ToolResult, contents: &Contents, with_media: bool) -> Text<'a> {
    let mark = match result.outcome {
        ToolOutcome::Success | ToolOutcome::TimedOut | ToolOutcome::Cancelled => None,
        ToolOutcome::Error => Some(FAILED),
        ToolOutcome::Denied => Some(DENIED),
    };
    if with_media && result.media().next().is_some() {
        let mark = mark.map(|mark| Piece::InputText {
            text: Cow::Borrowed(mark),
        });
        let given = result.parts.iter().map(|given| match given {
            OutputPart::Text(text) => Piece::InputText {
                text: Cow::Borrowed(text),
            },
            OutputPart::Media(medium) => media::content(medium, contents),
        });
        return Text::Several(mark.into_iter().chain(given).collect());
    }
    let words = result_parts_text(&result.parts);
    Text::One(match (mark, &*words) {
        (None, _) => words,
        (Some(mark), "") => Cow::Borrowed(mark),
        (Some(mark), words) => Cow::Owned(format!("{mark}: {words}")),
    })
}

/// The media of a result, each after a text that states its origin.
fn result_media<'a>(result: &'a ToolResult, contents: &Contents) -> Vec<Piece<'a>> {
    let from = |title: String| Piece::InputText {
        text: Cow::Owned(format!("[From the result of {}: {title}]", result.name)),
    };
    result
        .media()
        .flat_map(|medium| [from(medium.title()), media::content(medium, contents)])
        .collect()
}
