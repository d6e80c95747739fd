//! The conversation in the form of Chat Completions.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{
    KIND,
    bound::Bound,
    dialect::{Dialect, ReasoningBack, ReasoningField},
    form::Form,
    media, options, order, reasoning_details, wire,
};
use crate::{
    model::{
        Arrangement, Content, Contents, Message, Part, Prompt, Role, ToolCall, ToolOutcome,
        ToolResult, generation::ReasoningEffort, message::StoredPart, transcript,
    },
    provider::{
        PastReasoning, authorship,
        call_ids::Ids,
        call_names,
        inserted::{NO_REASONING, in_words},
    },
};

/// All messages, the instructions first, in an order that the service takes. An assistant message
/// with nothing to send is left out. Media of results follow the results as a user's message, and
/// what the user says next goes on there.
pub(super) fn messages<'a>(
    prompt: &'a Prompt,
    form: Form<'_>,
    ids: &'a Ids,
) -> Vec<wire::Message<'a>> {
    let Prompt {
        model,
        transcript,
        contents,
        ..
    } = prompt;
    let system = Cow::Owned(prompt.instructions());
    order::ordered(
        form.dialect.turns,
        written(
            system,
            transcript.messages(),
            (model, contents),
            form,
            (ids, thinks(prompt), &Bound::of(prompt, form)),
        ),
    )
}

/// What the order that the service takes changes in a conversation.
pub(super) fn arrangement(system: &str, stored: &[Message], form: Form<'_>) -> Arrangement {
    // Which reasoning goes back, ids and the content of media change neither the order nor the
    // number of messages.
    let contents = Contents::default();
    let ids = Ids::default();
    order::changes(
        form.dialect.turns,
        written(
            Cow::Borrowed(system),
            stored,
            ("", &contents),
            form,
            (&ids, true, &Bound::default()),
        ),
    )
}

/// Whether the model thinks, as far as the settings tell.
fn thinks(prompt: &Prompt) -> bool {
    let off = prompt.generation.reasoning_effort == Some(ReasoningEffort::None);
    options::may_think(&prompt.model) && !off
}

/// All messages as they follow each other in the transcript, for a model.
fn written<'a>(
    system: Cow<'a, str>,
    stored: &'a [Message],
    (model, contents): (&str, &Contents),
    form: Form<'_>,
    (ids, thinks, bound): (&'a Ids, bool, &Bound),
) -> Vec<wire::Message<'a>> {
    let mut written = Vec::new();
    if !system.is_empty() {
        written.push(instructions(system, form.developer));
    }
    for (at, (message, back)) in stored
        .iter()
        .zip(Back::of(stored, model, form, bound))
        .enumerate()
    {
        match message.role {
            Role::System => written.extend(
                texts(message)
                    .into_iter()
                    .map(|text| instructions(Cow::Borrowed(text), form.developer)),
            ),
            Role::User => {
                let shown_before = at > 0 && stored[at - 1].role == Role::Tool;
                match written.last_mut() {
                    Some(wire::Message::User {
                        content: wire::UserContent::Parts(parts),
                    }) if shown_before => {
                        parts.extend(said(message, contents));
                    }
                    Some(_) | None => {
                        written.extend(
                            user(message, contents).map(|content| wire::Message::User { content }),
                        );
                    }
                }
            }
            Role::Assistant => {
                written.extend(
                    assistant(message, back, thinks, (ids, contents)).map(wire::Message::Assistant),
                );
            }
            Role::Tool => {
                written.extend(
                    message
                        .parts
                        .iter()
                        .filter_map(|part| result(&part.part, ids)),
                );
                if holds_media(message) {
                    let content = wire::UserContent::Parts(shown(message, contents));
                    written.push(wire::Message::User { content });
                }
            }
        }
    }
    written
}

fn instructions(content: Cow<'_, str>, developer: bool) -> wire::Message<'_> {
    if developer {
        wire::Message::Developer { content }
    } else {
        wire::Message::System { content }
    }
}

/// What a user says. `None` means nothing.
fn user<'a>(message: &'a Message, contents: &Contents) -> Option<wire::UserContent<'a>> {
    match (texts(message).as_slice(), holds_media(message)) {
        ([], false) => None,
        ([text], false) => Some(wire::UserContent::Text(Cow::Borrowed(text))),
        (_, _) => Some(wire::UserContent::Parts(said(message, contents))),
    }
}

/// The parts of what a user says, empty texts left out.
fn said<'a>(message: &'a Message, contents: &Contents) -> Vec<wire::UserPart<'a>> {
    let part = |part| match content(part) {
        Content::Text(text) if !text.is_empty() => Some(wire::UserPart::Text {
            text: Cow::Borrowed(text),
        }),
        Content::Media(medium) => Some(media::part(medium, contents)),
        Content::Text(_)
        | Content::Reasoning { .. }
        | Content::ToolCall(_)
        | Content::ToolResult(_)
        | Content::Refusal(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => None,
    };
    message.parts.iter().filter_map(part).collect()
}

/// The media of results, each after what says where it is from.
fn shown<'a>(message: &'a Message, contents: &Contents) -> Vec<wire::UserPart<'a>> {
    let of_result = |part: &'a StoredPart| {
        let name = match content(part) {
            Content::ToolResult(result) => result.name.as_str(),
            Content::Text(_)
            | Content::Reasoning { .. }
            | Content::ToolCall(_)
            | Content::Refusal(_)
            | Content::Media(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => "",
        };
        part.part.media().flat_map(move |medium| {
            let from = format!("[From the result of {name}: {}]", medium.title());
            [
                wire::UserPart::Text {
                    text: Cow::Owned(from),
                },
                media::part(medium, contents),
            ]
        })
    };
    message.parts.iter().flat_map(of_result).collect()
}

fn holds_media(message: &Message) -> bool {
    message.media().next().is_some()
}

/// The texts of a message that are not empty.
pub(super) fn texts(message: &Message) -> Vec<&str> {
    message.texts().filter(|text| !text.is_empty()).collect()
}

/// How much of an assistant message's reasoning goes back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Back<'a> {
    dialect: &'a Dialect,
    /// The same model of the same provider wrote it, and what it thought is valid where it stands.
    own: bool,
    /// It belongs to the tool loop that is going on.
    in_loop: bool,
    /// The answers around it, between two messages of the user's, call tools.
    in_calling_turn: bool,
}

impl<'a> Back<'a> {
    /// Of each message of a conversation.
    pub(super) fn of(
        stored: &'a [Message],
        model: &'a str,
        form: Form<'a>,
        bound: &'a Bound,
    ) -> impl Iterator<Item = Self> + 'a {
        let loop_begins = transcript::loop_begins(stored);
        let calling = transcript::calling_turns(stored.iter().map(|it| (it.role, it.calls())));
        let messages = stored.iter().zip(calling).enumerate();
        messages.map(move |(at, (message, in_calling_turn))| Self {
            dialect: form.dialect,
            own: authorship::wrote(form.provider, model, message) && bound.allows(at),
            in_loop: at > loop_begins,
            in_calling_turn,
        })
    }

    /// Whether a part that is reasoning goes back.
    pub(super) fn takes(self, part: &Part) -> bool {
        let reasoning = PastReasoning {
            attached: part.provider_metadata.is_some(),
            own: self.own,
            in_loop: self.in_loop,
            in_calling_turn: self.in_calling_turn,
        };
        self.dialect.reasoning().takes(reasoning)
    }
}

/// Whether a message of the model's has something that can be sent: reasoning alone cannot.
pub(super) fn is_sendable(message: &Message, dialect: &Dialect) -> bool {
    let sendable = |part| match content(part) {
        Content::Text(text) | Content::Refusal(text) => !text.is_empty(),
        Content::ToolCall(_) => true,
        Content::Media(_) => dialect.takes.own_pictures,
        Content::Reasoning { .. }
        | Content::ToolResult(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => false,
    };
    message.parts.iter().any(sendable)
}

/// What the model said. `None` means nothing that can be sent.
fn assistant<'a>(
    message: &'a Message,
    back: Back<'_>,
    thinks: bool,
    (ids, contents): (&'a Ids, &Contents),
) -> Option<wire::Assistant<'a>> {
    if !is_sendable(message, back.dialect) {
        return None;
    }
    let mut written = wire::Assistant::default();
    for StoredPart { part, .. } in &message.parts {
        match &part.content {
            Content::Text(text) => append(&mut written.content, text),
            Content::Refusal(text) if back.dialect.refusals => append(&mut written.refusal, text),
            Content::Refusal(text) => append(&mut written.content, text),
            Content::ToolCall(call) => written.tool_calls.push(wire::Call {
                id: ids.get(&call.id),
                kind: "function",
                function: wire::Function {
                    name: call_names::sent(&call.name, call_names::MOST),
                    arguments: arguments(call),
                },
                extra_content: authorship::attached(KIND, part)
                    .and_then(|mut own| own.remove("extra_content"))
                    .filter(|_| back.own),
            }),
            Content::Reasoning { text, .. } if back.takes(part) => {
                match back.dialect.reasoning_back {
                    ReasoningBack::Text { field, .. } => append(place(&mut written, field), text),
                    ReasoningBack::Details => {
                        reasoning_details::add(&mut written.reasoning_details, blocks(part))
                    }
                    ReasoningBack::Never => {}
                }
            }
            Content::Reasoning { .. } => {}
            Content::Media(medium) if back.dialect.takes.own_pictures => {
                written.images.push(media::part(medium, contents));
            }
            // The transcript is checked: a result is never an assistant's. A medium that a service does not
            // take became words before.
            Content::ToolResult(_)
            | Content::Media(_)
            | Content::ProviderItem(_)
            | Content::Unknown(_) => {}
        }
    }
    let placeholder = back.dialect.placeholder().filter(|_| thinks);
    if let Some(field) = placeholder.filter(|_| !written.tool_calls.is_empty()) {
        place(&mut written, field).get_or_insert_with(|| NO_REASONING.to_owned());
    }
    Some(written)
}

/// The field of an answer's reasoning.
fn place<'w>(
    written: &'w mut wire::Assistant<'_>,
    field: ReasoningField,
) -> &'w mut Option<String> {
    match field {
        ReasoningField::Content => &mut written.reasoning_content,
        ReasoningField::Reasoning => &mut written.reasoning,
    }
}

/// The result of a call. There is no field for failures, so the words say it.
fn result<'a>(part: &'a Part, ids: &'a Ids) -> Option<wire::Message<'a>> {
    match &part.content {
        Content::ToolResult(result) => Some(wire::Message::Tool {
            tool_call_id: ids.get(&result.call),
            content: words(result),
        }),
        Content::Text(_)
        | Content::Reasoning { .. }
        | Content::ToolCall(_)
        | Content::Refusal(_)
        | Content::Media(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => None,
    }
}

/// A result in words; where its media stand, that they follow.
fn words(result: &ToolResult) -> Cow<'_, str> {
    let text = in_words(&result.parts);
    match (result.outcome, &*text) {
        (ToolOutcome::Success | ToolOutcome::TimedOut | ToolOutcome::Cancelled, _) => text,
        (ToolOutcome::Error, "") => Cow::Borrowed("Error"),
        (ToolOutcome::Error, text) => Cow::Owned(format!("Error: {text}")),
        (ToolOutcome::Denied, "") => Cow::Borrowed("Denied"),
        (ToolOutcome::Denied, text) => Cow::Owned(format!("Denied: {text}")),
    }
}

/// The arguments as the model wrote them. A call whose arguments are no JSON object was never run;
/// some services refuse to read it again, so it goes back without any.
fn arguments(call: &ToolCall) -> &str {
    if call.has_object() {
        &call.arguments
    } else {
        "{}"
    }
}

fn blocks(part: &Part) -> Vec<Map<String, Value>> {
    let details =
        authorship::attached(KIND, part).and_then(|mut own| own.remove("reasoning_details"));
    details
        .and_then(|details| serde_json::from_value(details).ok())
        .unwrap_or_default()
}

fn content(part: &StoredPart) -> &Content {
    &part.part.content
}

fn append(to: &mut Option<String>, text: &str) {
    if !text.is_empty() {
        to.get_or_insert_default().push_str(text);
    }
}
