//! Parts, to and from their rows: text and names are in columns that psql can show, everything else is encoded in
//! `rest`.

use prost::Message as _;

use crate::{
    model::{
        CallId, Content, Media, OutputPart, Part, ProviderItem, ToolCall, ToolOutcome, ToolResult,
        media::Source,
        message::{Pruned, StoredPart, UnknownPart},
    },
    pb,
};

use super::{
    DecodeError,
    field::{Choice as _, Field, messages},
    read, usage,
};

const TEXT: &str = "text";
const REASONING: &str = "reasoning";
const TOOL_CALL: &str = "tool_call";
/// The [`PartRow::kind`] of a tool result.
pub const TOOL_RESULT: &str = "tool_result";
const REFUSAL: &str = "refusal";
/// The [`PartRow::kind`] of media whose content is a stored blob. SQL statements match on it: the part's body is the id
/// of the blob, and the part keeps that blob from being removed.
pub const MEDIA: &str = "media";
const MEDIA_URL: &str = "media_url";
/// The [`PartRow::kind`] of a provider item: the body is the item, the name is the provider's type name.
const PROVIDER_ITEM: &str = "provider_item";

/// Maximum bytes of `rest` for reasoning without a provider attachment. A larger `rest` contains an attachment.
pub const MAX_BARE_REASONING_BYTES: i32 = 8;

/// The columns of a part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartRow {
    /// The kind of the part: `text`, `reasoning`, `tool_call`, `tool_result`, `refusal`, `media`, `media_url` or
    /// `provider_item`.
    pub kind: String,
    /// The tool call that the part requests or answers.
    pub call: Option<String>,
    /// The tool of that call.
    pub name: Option<String>,
    /// The outcome of the call: a number of the proto's `ToolOutcome`.
    pub outcome: Option<i16>,
    /// The text of the part, unchanged: its text, a call's arguments, the first text of a result, or the blob id or URL
    /// of media.
    pub body: String,
    /// The fields that no other column holds, as an encoded `Part` without the text in `body`. `None` if no such field
    /// is set.
    pub rest: Option<Vec<u8>>,
}

/// The number that stores an outcome in [`PartRow::outcome`].
pub fn outcome_number(outcome: ToolOutcome) -> i16 {
    outcome.to_pb() as i16
}

/// Converts a part to its columns.
pub fn to_row(part: &Part) -> PartRow {
    let rest = if let Content::Unknown(unknown) = &part.content {
        unknown.rest.clone()
    } else {
        pb::Part { content: rest_of(&part.content), ..without_content(part) }.encode_to_vec()
    };
    PartRow { rest: Some(rest).filter(|bytes| !bytes.is_empty()), ..columns(&part.content) }
}

fn columns(content: &Content) -> PartRow {
    match content {
        Content::Text(text) => text_row(TEXT, text),
        Content::Reasoning { text, redacted: _ } => text_row(REASONING, text),
        Content::ToolCall(ToolCall { id, name, arguments }) => {
            PartRow { call: Some(id.to_string()), name: Some(name.clone()), ..text_row(TOOL_CALL, arguments) }
        }
        Content::ToolResult(result) => PartRow {
            call: Some(result.call.to_string()),
            name: Some(result.name.clone()),
            outcome: Some(outcome_number(result.outcome)),
            ..text_row(TOOL_RESULT, result.texts().next().unwrap_or_default())
        },
        Content::Refusal(text) => text_row(REFUSAL, text),
        Content::Media(media) => match &media.source {
            Source::Blob(kept) => text_row(MEDIA, kept.id.as_str()),
            Source::Url(url) => text_row(MEDIA_URL, url),
        },
        Content::ProviderItem(item) => PartRow { name: Some(item.kind.clone()), ..text_row(PROVIDER_ITEM, &item.json) },
        Content::Unknown(unknown) => text_row(&unknown.kind, &unknown.body),
    }
}

fn text_row(kind: &str, body: &str) -> PartRow {
    PartRow { kind: kind.to_owned(), body: body.to_owned(), ..PartRow::default() }
}

fn rest_of(content: &Content) -> Option<pb::part::Content> {
    match content {
        Content::Text(_)
        | Content::ToolCall(_)
        | Content::Refusal(_)
        | Content::Unknown(_)
        | Content::Reasoning { redacted: false, .. } => None,
        Content::Reasoning { text: _, redacted: true } => {
            Some(pb::part::Content::Reasoning(pb::Reasoning { text: String::new(), redacted: true }))
        }
        Content::ToolResult(result) => rest_of_result(result).map(pb::part::Content::ToolResult),
        Content::Media(medium) => Some(pb::part::Content::Media(pb::Media { source: None, ..medium.to_field() })),
        Content::ProviderItem(ProviderItem { provider, kind: _, json: _, title }) => {
            Some(pb::part::Content::ProviderItem(pb::ProviderItem {
                provider: provider.clone(),
                title: title.clone(),
                ..pb::ProviderItem::default()
            }))
        }
    }
}

/// The encoded result, without its first text, which is the row's body. A result of one text that is not truncated
/// needs no `rest`.
fn rest_of_result(result: &ToolResult) -> Option<pb::ToolResult> {
    let ToolResult { call: _, name: _, parts, outcome: _, truncation, display_text } = result;
    let is_text = matches!(parts.as_slice(), [OutputPart::Text(_)]);
    if is_text && truncation.is_none() && display_text.is_empty() {
        return None;
    }
    let mut parts: Vec<pb::Part> = parts.to_field();
    if let Some(first) = parts.iter_mut().find_map(text_of) {
        first.clear();
    }
    Some(pb::ToolResult {
        parts,
        truncation: truncation.to_field(),
        display_text: display_text.clone(),
        ..pb::ToolResult::default()
    })
}

/// The text of a part. Returns `None` if it is not a text.
fn text_of(part: &mut pb::Part) -> Option<&mut String> {
    let Some(pb::part::Content::Text(text)) = &mut part.content else {
        return None;
    };
    Some(text)
}

/// Reads a part from its columns.
pub fn from_row(row: PartRow) -> Result<Part, DecodeError> {
    let PartRow { kind, call, name, outcome, body, rest: encoded } = row;
    let pb::Part { citations, provider_metadata_json, tokens: _, preview_of: _, sanitized, content: rest } =
        read("part", encoded.as_deref().unwrap_or_default())?;
    let content = match kind.as_str() {
        TEXT => Content::Text(body),
        REASONING => match rest {
            None => Content::Reasoning { text: body, redacted: false },
            Some(pb::part::Content::Reasoning(rest)) => Content::Reasoning { text: body, redacted: rest.redacted },
            Some(_) => return Err(misplaced("reasoning")),
        },
        TOOL_CALL => Content::ToolCall(ToolCall {
            id: CallId::new(column("call", call)?),
            name: column("name", name)?,
            arguments: body,
        }),
        TOOL_RESULT => {
            let rest = match rest {
                // The result is one text, the body.
                None => pb::ToolResult { parts: vec![OutputPart::from("").to_field()], ..pb::ToolResult::default() },
                Some(pb::part::Content::ToolResult(rest)) => rest,
                Some(_) => return Err(misplaced("a tool result")),
            };
            Content::ToolResult(ToolResult {
                call: CallId::new(column("call", call)?),
                name: column("name", name)?,
                parts: result_parts(body, rest.parts)?,
                outcome: Field::from_field("outcome", i32::from(column("outcome", outcome)?))?,
                truncation: Field::from_field("truncation", rest.truncation)?,
                display_text: rest.display_text,
            })
        }
        REFUSAL => Content::Refusal(body),
        MEDIA => Content::Media(medium(rest, pb::media::Source::BlobId(body))?),
        MEDIA_URL => Content::Media(medium(rest, pb::media::Source::Url(body))?),
        PROVIDER_ITEM => {
            let Some(pb::part::Content::ProviderItem(rest)) = rest else {
                return Err(misplaced("a provider item"));
            };
            let pb::ProviderItem { provider, kind: _, item_json: _, title } = rest;
            Content::ProviderItem(ProviderItem { provider, kind: column("name", name)?, json: body, title })
        }
        _ => Content::Unknown(UnknownPart { kind, body, rest: encoded.unwrap_or_default() }),
    };
    Ok(Part {
        content,
        citations: Field::from_field("citations", citations)?,
        provider_metadata: Field::from_field("provider_metadata_json", provider_metadata_json)?,
        sanitized,
    })
}

fn column<T>(name: &str, value: Option<T>) -> Result<T, DecodeError> {
    value.ok_or_else(|| DecodeError::new("part", format_args!("its {name} is missing")))
}

/// The rest belongs to another kind of part.
fn misplaced(what: &str) -> DecodeError {
    DecodeError::new("part", format_args!("its rest does not belong to {what}"))
}

/// The parts of a result, with the body as its first text.
fn result_parts(body: String, mut parts: Vec<pb::Part>) -> Result<Vec<OutputPart>, DecodeError> {
    if let Some(first) = parts.iter_mut().find_map(text_of) {
        *first = body;
    }
    Field::from_field("parts", parts)
}

/// Media whose content is given.
fn medium(rest: Option<pb::part::Content>, source: pb::media::Source) -> Result<Media, DecodeError> {
    let Some(pb::part::Content::Media(medium)) = rest else {
        return Err(misplaced("media"));
    };
    Field::from_field("media", pb::Media { source: Some(source), ..medium })
}

/// Converts a stored part, with its size, for the wire.
pub fn to_pb(stored: &StoredPart) -> pb::Part {
    let StoredPart { part, size, estimator, pruned } = stored;
    pb::Part {
        tokens: Some(usage::size_to_pb(size.tokens, estimator)),
        content: content_to_pb(&part.content).map(|content| with_mark(content, pruned.as_ref())),
        ..without_content(part)
    }
}

/// The fields of a part that do not depend on its content.
fn without_content(part: &Part) -> pb::Part {
    let Part { content: _, citations, provider_metadata, sanitized } = part;
    pb::Part {
        citations: citations.to_field(),
        provider_metadata_json: provider_metadata.to_field(),
        sanitized: *sanitized,
        ..pb::Part::default()
    }
}

/// Adds the prune mark to a result that was pruned.
fn with_mark(mut content: pb::part::Content, pruned: Option<&Pruned>) -> pb::part::Content {
    if let pb::part::Content::ToolResult(result) = &mut content {
        result.prune_mark = pruned.map(|pruned| pb::PruneMark {
            pruned_at_seq: pruned.at.to_field(),
            compacted_time: pruned.time.to_field(),
            original_tokens: pruned.original_tokens.to_field(),
        });
    }
    content
}

/// Converts a part that is still being written; its size is not known yet.
pub fn open_to_pb(content: &Content) -> pb::Part {
    pb::Part { content: content_to_pb(content), ..pb::Part::default() }
}

/// Converts an input part for the wire.
pub(super) fn input_to_pb(part: &Part) -> pb::Part {
    pb::Part { content: content_to_pb(&part.content), ..without_content(part) }
}

fn content_to_pb(content: &Content) -> Option<pb::part::Content> {
    Some(match content {
        Content::Text(text) => pb::part::Content::Text(text.clone()),
        Content::Reasoning { text, redacted } => {
            pb::part::Content::Reasoning(pb::Reasoning { text: text.clone(), redacted: *redacted })
        }
        Content::ToolCall(call) => pb::part::Content::ToolCall(call.to_field()),
        Content::ToolResult(result) => pb::part::Content::ToolResult(result.to_field()),
        Content::Refusal(text) => pb::part::Content::Refusal(text.clone()),
        Content::Media(medium) => pb::part::Content::Media(medium.to_field()),
        Content::ProviderItem(item) => pb::part::Content::ProviderItem(item.to_field()),
        Content::Unknown(_) => return None,
    })
}

messages! {
    ProviderItem = ProviderItem { provider, kind, json = item_json, title, }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        codec::arbitrary,
        model::{Category, PartSize},
    };

    proptest! {
        #[test]
        fn parts_round_trip_through_rows(part in arbitrary::part()) {
            let row = to_row(&part);
            prop_assert_eq!(from_row(row), Ok(part));
        }

        #[test]
        fn reasoning_bytes_say_whether_provider_data_is_attached(
            text in "\\PC{0,20}", redacted in any::<bool>(), sanitized in any::<bool>(), attached in any::<bool>(),
        ) {
            let metadata = attached.then(|| r#"{"openai":{"reasoning_details":[]}}"#.to_owned());
            let part = Part { provider_metadata: metadata, sanitized, ..Part::new(Content::Reasoning { text, redacted }) };
            let bytes = to_row(&part).rest.map_or(0, |rest| rest.len());
            prop_assert_eq!(bytes > MAX_BARE_REASONING_BYTES as usize, attached);
        }

        #[test]
        fn part_body_is_the_plain_text(part in arbitrary::part()) {
            let row = to_row(&part);
            let words = match &part.content {
                Content::Text(text) | Content::Refusal(text) | Content::Reasoning { text, redacted: _ } => text.as_str(),
                Content::ToolCall(call) => &call.arguments,
                Content::ToolResult(result) => result.texts().next().unwrap_or_default(),
                Content::Media(medium) => match &medium.source {
                    Source::Blob(kept) => kept.id.as_str(),
                    Source::Url(url) => url,
                },
                Content::ProviderItem(item) => &item.json,
                Content::Unknown(unknown) => &unknown.body,
            };
            prop_assert_eq!(row.body.as_bytes(), words.as_bytes());
        }
    }

    #[test]
    fn a_plain_text_part_has_no_extra_bytes() {
        let result = ToolResult {
            call: CallId::new("c1"),
            name: "bash".to_owned(),
            parts: vec!["ok".into()],
            outcome: ToolOutcome::Success,
            truncation: None,
            display_text: String::new(),
        };
        let call = ToolCall { id: CallId::new("c1"), name: "bash".to_owned(), arguments: "{ \"a\" : 1.0}".to_owned() };
        for content in [
            Content::Text("hello".to_owned()),
            Content::Reasoning { text: "hm".to_owned(), redacted: false },
            Content::ToolCall(call),
            Content::ToolResult(result),
            Content::Refusal("no".to_owned()),
        ] {
            assert_eq!(to_row(&Part::new(content)).rest, None);
        }
    }

    #[test]
    fn a_tool_result_that_sql_wrote_is_decoded() {
        let row = PartRow {
            kind: "tool_result".to_owned(),
            call: Some("c1".to_owned()),
            name: Some("bash".to_owned()),
            outcome: Some(outcome_number(ToolOutcome::TimedOut)),
            body: "no result in time".to_owned(),
            rest: None,
        };
        let Content::ToolResult(result) = from_row(row).unwrap().content else { panic!("not a result") };
        assert_eq!(result.parts, [OutputPart::from("no result in time")]);
        assert_eq!(result.outcome, ToolOutcome::TimedOut);
    }

    #[test]
    fn a_part_of_a_newer_kind_is_kept_as_it_is_and_shown_without_content() {
        let rest = pb::Part { provider_metadata_json: r#"{"a":1}"#.to_owned(), ..pb::Part::default() };
        let row = PartRow { rest: Some(rest.encode_to_vec()), ..text_row("hologram", "words") };
        let part = from_row(row.clone()).unwrap();
        assert_eq!(to_row(&part), row);
        let shown = input_to_pb(&part);
        assert_eq!((shown.content, shown.provider_metadata_json), (None, rest.provider_metadata_json));
    }

    #[test]
    fn an_inconsistent_part_row_is_an_error() {
        let check = |row: PartRow, expected: &str| assert_eq!(from_row(row).unwrap_err().to_string(), expected);
        check(text_row(TOOL_CALL, "{}"), "a stored part cannot be read: its call is missing");
        assert!(from_row(PartRow { rest: Some(vec![0xff]), ..text_row(TEXT, "") }).is_err());
        let reasoning = to_row(&Part::new(Content::Reasoning { text: String::new(), redacted: true }));
        assert!(from_row(PartRow { kind: TOOL_RESULT.to_owned(), ..reasoning }).is_err());
        check(text_row(MEDIA, "b"), "a stored part cannot be read: its rest does not belong to media");
    }

    #[test]
    fn a_part_on_the_wire_has_its_token_count() {
        let part = Part::text("hello");
        let size = PartSize { tokens: 2, category: Category::User };
        let wire = to_pb(&StoredPart { part, size, estimator: "chars".to_owned(), pruned: None });
        assert_eq!(wire.content, Some(pb::part::Content::Text("hello".to_owned())));
        assert_eq!(wire.tokens, Some(usage::size_to_pb(2, "chars")));
    }
}
