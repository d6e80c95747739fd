//! Decodes one content block of a response, from its start to its stop event.

use std::collections::BTreeMap;

use serde_json::{json, value::RawValue};

use super::{
    KIND,
    hosted::ResultBudget,
    wire::{BlockStart, Delta, WireCitation},
};
use crate::{
    model::{Citation, ProviderItem},
    provider::{
        Chunk, authorship,
        body::plain,
        chunk::TextKind,
        http::{
            Chunks, Fault,
            lenient::{self, Joiner, Piece},
        },
    },
};

/// Limit on the bytes that are buffered until their block ends: signatures and provider items.
pub(super) const MAX_HELD_BYTES: usize = 8 << 20;

/// A content block that is still streaming.
#[derive(Debug)]
pub(super) enum Block {
    /// Text and its citations, which arrive before it.
    Text { joiner: Joiner, sources: Vec<Citation>, shown: bool },
    /// Reasoning and its signature.
    Thinking { joiner: Joiner, signature: String, shown: bool },
    /// Redacted reasoning.
    Redacted { data: String },
    /// A call of a host tool.
    Call {
        index: u32,
        joiner: Joiner,
        /// The initial input, for a service that sends no deltas.
        input: Option<Box<RawValue>>,
        begun: bool,
    },
    /// A block that only the service can read.
    Item { fields: BTreeMap<String, Box<RawValue>>, input: Piece },
}

impl Block {
    /// Opens a block. `calls` is the number of calls that started before it.
    pub(super) fn open(raw: &RawValue, calls: u32, chunks: &mut Chunks) -> Result<Self, Fault> {
        let opened: BlockStart = lenient::read(raw);
        let joiner = Joiner::default();
        let (mut block, begin) = match opened.kind.0.as_str() {
            "text" => {
                let given = opened.citations.unwrap_or_default();
                let block = Self::Text { joiner, sources: given.iter().map(|raw| source(raw)).collect(), shown: false };
                let begin = Delta { text: opened.text, ..Delta::default() };
                (block, begin)
            }
            "thinking" => {
                let block = Self::Thinking { joiner, signature: String::new(), shown: false };
                let begin = Delta { thinking: opened.thinking, signature: opened.signature, ..Delta::default() };
                (block, begin)
            }
            "redacted_thinking" => {
                let data = opened.data.0;
                return Ok(Self::Redacted { data });
            }
            "tool_use" if opened.name.0.is_empty() => {
                return Err(Fault::broken("the response contains a tool call without a name"));
            }
            "tool_use" => {
                chunks.push(Chunk::ToolCall { index: calls, id: opened.id.0, name: opened.name.0 });
                if let Some(caller) = opened.caller.filter(|caller| caller.get() != "null") {
                    let own = json!({ "caller": lenient::value(caller.get()) });
                    chunks.attach_to_call(calls, KIND, own);
                }
                return Ok(Self::Call { index: calls, joiner, input: opened.input, begun: false });
            }
            _ => {
                return Ok(Self::Item { fields: lenient::members(raw.get()), input: Piece::default() });
            }
        };
        block.extend(begin, chunks);
        Ok(block)
    }

    /// Whether the block started with content that is emitted only when it ends.
    pub(super) fn is_held(&self) -> bool {
        matches!(self, Self::Redacted { .. } | Self::Item { .. })
    }

    /// Whether the block is a call of a host tool.
    pub(super) fn is_call(&self) -> bool {
        matches!(self, Self::Call { .. })
    }

    /// Applies a delta. Returns the number of its bytes that are buffered until the block ends.
    pub(super) fn extend(&mut self, delta: Delta, chunks: &mut Chunks) -> usize {
        match self {
            Self::Text { joiner, sources, shown } => {
                if let Some(text) = delta.text {
                    *shown |= !text.is_empty();
                    chunks.text(TextKind::Text, joiner.join(&text));
                }
                let held = delta.citation.as_ref().map_or(0, |raw| raw.get().len());
                sources.extend(delta.citation.map(|raw| source(&raw)));
                held
            }
            Self::Thinking { joiner, signature, shown } => {
                if let Some(thinking) = delta.thinking {
                    *shown |= !thinking.is_empty();
                    chunks.text(TextKind::Reasoning, joiner.join(&thinking));
                }
                // A signature arrives whole, so an equal one is a repetition.
                if delta.signature.0 != *signature {
                    signature.push_str(&delta.signature.0);
                }
                delta.signature.0.len()
            }
            Self::Redacted { data: _ } => 0,
            Self::Call { index, joiner, input: _, begun } => {
                if let Some(json) = delta.partial_json {
                    *begun |= !json.is_empty();
                    chunks.input(*index, joiner.join(&json));
                }
                0
            }
            Self::Item { fields, input } => {
                let mut held = 0;
                if let Some(json) = delta.partial_json {
                    held += json.len();
                    input.extend(&json);
                }
                if let Some(content) = delta.content {
                    held += content.get().len();
                    fields.insert("content".to_owned(), content);
                }
                held
            }
        }
    }

    /// Completes the block.
    pub(super) fn close(self, room: &mut ResultBudget, chunks: &mut Chunks) {
        match self {
            Self::Text { mut joiner, sources, shown } => {
                chunks.end_text(TextKind::Text, &mut joiner);
                let sources = sources.into_iter().filter(|_| shown);
                chunks.extend(sources.map(Chunk::Citation));
            }
            Self::Thinking { mut joiner, signature, shown } => {
                chunks.end_text(TextKind::Reasoning, &mut joiner);
                if !signature.is_empty() {
                    attach("signature", &signature, shown, chunks);
                }
            }
            Self::Redacted { data } => attach("redacted_thinking", &data, false, chunks),
            Self::Call { index, mut joiner, input, begun } => {
                chunks.input(index, joiner.rest());
                let whole = input.filter(|input| !begun && input.get() != "null");
                chunks.extend(whole.map(|input| Chunk::ToolInput { index, json: input.get().to_owned() }));
            }
            Self::Item { fields, input } => {
                chunks.push(Chunk::Item(item(fields, &input, room)));
                return;
            }
        }
        chunks.push(Chunk::PartEnded);
    }
}

/// Attaches the signature or the redacted data of reasoning. If no text was emitted, creates a
/// reasoning part without text.
fn attach(name: &str, value: &str, shown: bool, chunks: &mut Chunks) {
    if !shown {
        chunks.push(Chunk::Reasoning(String::new()));
    }
    chunks.attach(KIND, json!({ name: value }));
}

/// Converts a citation. Its positions refer to the source rather than to the text, so they are not
/// used as offsets.
pub(super) fn source(raw: &RawValue) -> Citation {
    let cited: WireCitation = lenient::read(raw);
    Citation {
        url: cited.url.some().unwrap_or(cited.source.0),
        title: cited.title.some().unwrap_or(cited.document_title.0),
        cited_text: cited.cited_text.0,
        provider_metadata: lenient::value(raw.get()).map(|value| value.to_string()),
        ..Citation::default()
    }
}

/// Builds the complete item: its initial fields and the streamed input. Its result is left out if
/// it is too large to keep.
fn item(mut fields: BTreeMap<String, Box<RawValue>>, input: &Piece, room: &mut ResultBudget) -> ProviderItem {
    let pieces = input.whole().text;
    if let Ok(input) = RawValue::from_string(pieces) {
        fields.insert("input".to_owned(), input);
    }
    let word = |name: &str| fields.get(name).map(|raw| lenient::string(raw));
    let kind = word("type").unwrap_or_default();
    let title = title(&word("name").unwrap_or_else(|| kind.clone()), fields.get("input").map(AsRef::as_ref));
    room.fit(&kind, &mut fields);
    authorship::item(&kind, plain(&fields).get().to_owned(), &title)
}

/// A human-readable line: the tool that was used, and its main argument.
pub(super) fn title(name: &str, input: Option<&RawValue>) -> String {
    let input = input.map(|input| lenient::members(input.get()));
    let about = ["query", "url", "command", "path"].iter().find_map(|key| {
        let value = input.as_ref()?.get(*key)?;
        Some(lenient::string(value)).filter(|word| !word.is_empty())
    });
    match about {
        Some(about) => format!("{name}: {}", about.replace(['\r', '\n'], " ")),
        None => name.to_owned(),
    }
}
