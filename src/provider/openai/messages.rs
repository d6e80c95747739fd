//! Encodes a conversation in the format of Chat Completions.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{
    KIND, bound::BoundReasoning, dialect::Dialect, encode_options::EncodeOptions, media, options, order,
    reasoning_details, wire,
};
use crate::{
    model::{
        Content, Contents, Message, Part, Prompt, PromptNote, RequestDiff, Role, ToolResult,
        generation::ReasoningEffort,
        message::StoredPart,
        service_rules::{ReasoningBack, ReasoningField},
        transcript,
    },
    provider::{
        PastReasoning, authorship,
        call_ids::CallIdMap,
        call_names,
        inputs::{self, Input},
        inserted::{NO_REASONING, arguments, origin_note, result_text},
        omissions,
    },
};

/// An encoded conversation.
#[derive(Debug, Default)]
pub(super) struct Conversation<'a> {
    pub(super) messages: Vec<wire::Message<'a>>,
    /// What was left out, in order.
    pub(super) left_out: Vec<PromptNote>,
    /// Fingerprint of the conversation, for a model that binds its reasoning to it.
    pub(super) fingerprint: Option<String>,
}

/// Encodes all messages, system messages first, in an order that the service accepts. An assistant
/// message without content to send is left out. Media of tool results follow the results as a user
/// message, to which the next user message is appended.
pub(super) fn conversation<'a>(prompt: &'a Prompt, form: EncodeOptions<'_>, ids: &'a CallIdMap) -> Conversation<'a> {
    let bound = BoundReasoning::of(prompt, form);
    let (written, left_out) = written(
        Cow::Owned(prompt.instructions()),
        prompt.transcript.messages(),
        (&prompt.model, &prompt.contents),
        form,
        (ids, thinks(prompt), &bound),
    );
    let messages = order::ordered(form.dialect.message_order, written);
    Conversation { messages, left_out, fingerprint: bound.fingerprint }
}

/// How the order of messages that the service accepts changes a conversation.
pub(super) fn arrangement(system: &str, stored: &[Message], form: EncodeOptions<'_>) -> RequestDiff {
    // The reasoning that is sent back, call ids and media content change neither the order nor the
    // number of messages.
    let contents = Contents::default();
    let ids = CallIdMap::default();
    let bound = BoundReasoning::default();
    let (written, _) = written(Cow::Borrowed(system), stored, ("", &contents), form, (&ids, true, &bound));
    order::changes(form.dialect.message_order, written)
}

/// Whether the model reasons, as far as it follows from the settings.
fn thinks(prompt: &Prompt) -> bool {
    let off = prompt.generation.reasoning_effort == Some(ReasoningEffort::None);
    options::may_think(&prompt.model) && !off
}

/// Encodes all messages in the order of the transcript. Also returns what was left out.
fn written<'a>(
    system: Cow<'a, str>,
    stored: &'a [Message],
    (model, contents): (&str, &Contents),
    form: EncodeOptions<'_>,
    (ids, thinks, bound): (&'a CallIdMap, bool, &BoundReasoning),
) -> (Vec<wire::Message<'a>>, Vec<PromptNote>) {
    let mut written = Vec::new();
    let mut left_out = Vec::new();
    let role = if form.developer { "developer" } else { "system" };
    let instructions = |content| wire::Message::Instructions { role, content };
    if !system.is_empty() {
        written.push(instructions(system));
    }
    let back = past_reasoning(stored, model, form, bound);
    for (at, (message, back)) in stored.iter().zip(back).enumerate() {
        if matches!(message.role, Role::System | Role::User) && texts(message).is_empty() {
            left_out.push(omissions::message(message));
        }
        match message.role {
            Role::System => {
                let texts = texts(message).into_iter().map(Cow::Borrowed);
                written.extend(texts.map(instructions));
            }
            Role::User => {
                let shown_before = at > 0 && stored[at - 1].role == Role::Tool;
                match written.last_mut() {
                    Some(wire::Message::User { content: wire::UserContent::Parts(parts) }) if shown_before => {
                        parts.extend(user_parts(message, contents))
                    }
                    Some(_) | None => {
                        let content = user(message, contents);
                        written.extend(content.map(|content| wire::Message::User { content }));
                    }
                }
            }
            Role::Assistant if is_sendable(message, form.dialect) => {
                let answer = assistant(message, form.dialect, back, thinks, (ids, contents), &mut left_out);
                left_out.extend(omissions::names(message, call_names::MAX_NAME_CHARS));
                written.push(wire::Message::Assistant(answer));
            }
            Role::Assistant => left_out.push(omissions::message(message)),
            Role::Tool => {
                written.extend(message.results().map(|result| wire::Message::Tool {
                    tool_call_id: ids.get(&result.call),
                    content: result_text(result),
                }));
                if holds_media(message) {
                    let media = message.results().flat_map(|it| result_media(it, contents));
                    let content = wire::UserContent::Parts(media.collect());
                    written.push(wire::Message::User { content });
                }
            }
        }
    }
    (written, left_out)
}

/// Encodes a user message. Returns `None` if it is empty.
fn user<'a>(message: &'a Message, contents: &Contents) -> Option<wire::UserContent<'a>> {
    match (texts(message).as_slice(), holds_media(message)) {
        ([], false) => None,
        ([text], false) => Some(wire::UserContent::Text(Cow::Borrowed(text))),
        (_, _) => Some(wire::UserContent::Parts(user_parts(message, contents))),
    }
}

/// Encodes the parts of a user message without empty texts.
fn user_parts<'a>(message: &'a Message, contents: &Contents) -> Vec<wire::UserPart<'a>> {
    let parts = inputs::of_message(message).map(|input| match input {
        Input::Text(text) => wire::UserPart::text(text),
        Input::Media(medium) => media::part(medium, contents),
    });
    parts.collect()
}

/// The media of a tool result, each after a text that states its origin.
fn result_media<'a>(result: &'a ToolResult, contents: &Contents) -> impl Iterator<Item = wire::UserPart<'a>> {
    result.media().flat_map(|medium| {
        let origin = wire::UserPart::text(origin_note(result, medium));
        [origin, media::part(medium, contents)]
    })
}

fn holds_media(message: &Message) -> bool {
    message.media().next().is_some()
}

/// The texts of a message that are not empty.
fn texts(message: &Message) -> Vec<&str> {
    message.texts().filter(|text| !text.is_empty()).collect()
}

/// For each message of a conversation, what determines whether its reasoning is sent back. It is not
/// `own` if it is no longer valid at its position.
fn past_reasoning<'a>(
    stored: &'a [Message],
    model: &'a str,
    form: EncodeOptions<'a>,
    bound: &'a BoundReasoning,
) -> impl Iterator<Item = PastReasoning> + 'a {
    let loop_begins = transcript::loop_begins(stored);
    let calling = transcript::calling_turns(stored.iter().map(|it| (it.role, it.calls())));
    let messages = stored.iter().zip(calling).enumerate();
    messages.map(move |(at, (message, in_calling_turn))| PastReasoning {
        has_metadata: false,
        own: authorship::wrote(form.provider, model, message) && bound.allows(at),
        in_loop: at > loop_begins,
        in_calling_turn,
    })
}

/// Whether an assistant message has content that can be sent. Reasoning alone cannot.
fn is_sendable(message: &Message, dialect: &Dialect) -> bool {
    let sendable = |stored: &StoredPart| match &stored.part.content {
        Content::Text(text) | Content::Refusal(text) => !text.is_empty(),
        Content::ToolCall(_) => true,
        Content::Media(_) => dialect.media.own_pictures,
        Content::Reasoning { .. } | Content::ToolResult(_) | Content::ProviderItem(_) | Content::Unknown(_) => false,
    };
    message.parts.iter().any(sendable)
}

/// Encodes an assistant message with content that can be sent.
fn assistant<'a>(
    message: &'a Message,
    dialect: &Dialect,
    past: PastReasoning,
    thinks: bool,
    (ids, contents): (&'a CallIdMap, &Contents),
    left_out: &mut Vec<PromptNote>,
) -> wire::Assistant<'a> {
    let takes = |part: &Part| {
        let has_metadata = part.provider_metadata.is_some();
        dialect.reasoning().includes(PastReasoning { has_metadata, ..past })
    };
    let mut written = wire::Assistant::default();
    for (position, StoredPart { part, .. }) in message.parts.iter().enumerate() {
        match &part.content {
            Content::Text(text) => append(&mut written.content, text),
            Content::Refusal(text) if dialect.refusals => append(&mut written.refusal, text),
            Content::Refusal(text) => append(&mut written.content, text),
            Content::ToolCall(call) => written.tool_calls.push(wire::Call {
                id: ids.get(&call.id),
                kind: "function",
                function: wire::Function {
                    name: call_names::sanitize(&call.name, call_names::MAX_NAME_CHARS),
                    arguments: arguments(call),
                },
                extra_content: authorship::attached(KIND, part, "extra_content").filter(|_| past.own),
            }),
            Content::Reasoning { text, .. } if takes(part) => match dialect.reasoning_back {
                ReasoningBack::InLoop | ReasoningBack::WhileCalls => {
                    append(place(&mut written, dialect.reasoning_field), text)
                }
                ReasoningBack::Details => reasoning_details::add(&mut written.reasoning_details, blocks(part)),
                ReasoningBack::Never => {}
            },
            Content::Reasoning { .. } => left_out.push(omissions::part(message, position, omissions::REASONING)),
            Content::Media(medium) if dialect.media.own_pictures => {
                written.images.push(media::part(medium, contents));
            }
            // The transcript is validated: assistant messages have no tool results. Media that the
            // service does not accept was replaced by text before.
            Content::ToolResult(_) | Content::Media(_) | Content::ProviderItem(_) | Content::Unknown(_) => {}
        }
    }
    let placeholder = dialect.placeholder().filter(|_| thinks);
    if let Some(field) = placeholder.filter(|_| !written.tool_calls.is_empty()) {
        place(&mut written, field).get_or_insert_with(|| NO_REASONING.to_owned());
    }
    written
}

/// The field for the reasoning of a response.
fn place<'w>(written: &'w mut wire::Assistant<'_>, field: ReasoningField) -> &'w mut Option<String> {
    match field {
        ReasoningField::ReasoningContent => &mut written.reasoning_content,
        ReasoningField::Reasoning => &mut written.reasoning,
    }
}

fn blocks(part: &Part) -> Vec<Map<String, Value>> {
    let details = authorship::attached(KIND, part, "reasoning_details");
    details.and_then(|details| serde_json::from_value(details).ok()).unwrap_or_default()
}

fn append(to: &mut Option<String>, text: &str) {
    if !text.is_empty() {
        to.get_or_insert_default().push_str(text);
    }
}
