//! Assembles the items of a response while they are streaming: text, calls, and items that only the
//! provider can read. Emitted content is never taken back; a later and longer version of the same
//! text adds what is new.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json, value::RawValue};

use super::{
    KIND,
    citation::citation,
    hosted::{self, ClientCalls},
    order::SequenceCheck,
    wire,
};
use crate::provider::{
    Chunk, GeneratedImage, chunk,
    error::Kind,
    http::{
        Chunks, Decoded, Fault,
        lenient::{Joiner, Piece, Text, read},
    },
};

/// Limit on the items of one response.
const MAX_ITEMS: usize = 4_096;

/// The kind of a call whose input is a text.
pub(super) const CUSTOM_CALL: &str = "custom_tool_call";

/// The kind of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TextKind {
    Text,
    Refusal,
    /// A part of a reasoning summary.
    Summary,
    /// Unencrypted reasoning, which open-weight models return.
    Reasoning,
}

impl TextKind {
    /// The kind of the chunks with this text.
    fn of_chunks(self) -> chunk::TextKind {
        match self {
            Self::Text => chunk::TextKind::Text,
            Self::Refusal => chunk::TextKind::Refusal,
            Self::Summary | Self::Reasoning => chunk::TextKind::Reasoning,
        }
    }
}

/// The place of a text in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextLocation {
    /// Number of the item.
    pub(super) output: i64,
    pub(super) kind: TextKind,
    /// Index of the content or summary part in the item.
    pub(super) index: i64,
}

impl TextLocation {
    pub(super) fn new(output: i64, kind: TextKind, index: i64) -> Self {
        Self { output, kind, index }
    }
}

/// The items of one response.
#[derive(Debug, Default)]
pub(super) struct Items {
    items: BTreeMap<i64, Item>,
    /// Number of calls that were emitted.
    pub(super) calls: u32,
    /// The place of the text that was written last, if nothing else was written since.
    open: Option<TextLocation>,
    /// The service runs custom tools itself.
    runs_custom_tools: bool,
    refused: bool,
    /// Reasoning arrived that is not sent back. The service links later items to it by id, so their
    /// ids are dropped too.
    forgets_reasoning: bool,
    /// Calls that the client has to run.
    client_calls: ClientCalls,
    /// Some events have no item number, so items are identified by id.
    unnumbered: bool,
    /// Whether sequence numbers indicate missing events.
    pub(super) order: SequenceCheck,
}

#[derive(Debug, Default)]
pub(super) struct Item {
    id: String,
    phase: String,
    words: BTreeMap<(TextKind, i64), StreamedText>,
    pub(super) call: Call,
    /// It is a custom tool call, whose input is a text.
    pub(super) is_custom: bool,
    done: bool,
}

/// The text at one place.
#[derive(Debug, Default)]
struct StreamedText {
    /// The text that was emitted.
    text: String,
    joiner: Joiner,
    /// Byte offset of the part that was written last. It is not 0 if another part was written in
    /// between.
    part_begins: usize,
    citations: usize,
}

/// A call that is still streaming.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// Index of the call, once it was emitted.
    pub(super) index: Option<u32>,
    /// The arguments received so far.
    pub(super) arguments: Text,
    pub(super) joiner: Joiner,
}

impl Items {
    /// Creates an empty response.
    pub(super) fn new(runs_custom_tools: bool) -> Self {
        Self { runs_custom_tools, ..Self::default() }
    }

    /// Records the sequence number of an event about an item. If the numbers show that no event is
    /// missing, a complete text that differs from its deltas was changed by the service and is not
    /// an error.
    pub(super) fn record_sequence(&mut self, number: Option<i64>, output: i64, is_piece: bool) -> Decoded {
        let in_order = self.order.record(number, output);
        if is_piece && !in_order {
            return Err(inconsistent_events());
        }
        Ok(())
    }

    /// Whether the model refused.
    pub(super) fn refused(&self) -> bool {
        self.refused
    }

    /// Whether the model called a tool.
    pub(super) fn called(&self) -> bool {
        self.calls > 0
    }

    /// The item number for an event without one: the number of the known id, or a new number if the
    /// item starts or the id is new, or else the last number.
    pub(super) fn output_index(&mut self, id: &str, begins: bool) -> Result<i64, Fault> {
        self.unnumbered |= !id.is_empty();
        let known = self.items.iter().find(|(_, item)| item.id == id);
        if let Some((output, _)) = known.filter(|_| !id.is_empty()) {
            return Ok(*output);
        }
        let last = self.items.keys().next_back().copied();
        let next = last.map_or(0, |last| last + 1);
        if !begins && id.is_empty() {
            return Ok(last.unwrap_or_default());
        }
        if !id.is_empty() {
            id.clone_into(&mut self.item(next)?.id);
        }
        Ok(next)
    }

    /// Starts an item.
    pub(super) fn begin(&mut self, output: i64, raw: &RawValue, chunks: &mut Chunks) -> Decoded {
        let item: wire::Item = read(raw);
        self.identify(output, &item)?;
        if item.kind.0 == "function_call" && !item.name.0.is_empty() {
            self.begin_call(output, &item, chunks)?;
        }
        Ok(())
    }

    /// Adds text.
    pub(super) fn add_text(&mut self, place: TextLocation, piece: &Piece, chunks: &mut Chunks) -> Decoded {
        if piece.is_empty() {
            return Ok(());
        }
        self.check_open(place.output)?;
        self.write(place, piece, chunks)
    }

    fn write(&mut self, place: TextLocation, piece: &Piece, chunks: &mut Chunks) -> Decoded {
        self.turn_to(place, chunks)?;
        let words = self.words(place)?;
        let text = words.joiner.join(piece);
        words.text.push_str(&text.text);
        self.refused |= place.kind == TextKind::Refusal;
        chunks.text(place.kind.of_chunks(), text);
        Ok(())
    }

    /// Completes the text at a place. Some services send a text only once it is complete.
    pub(super) fn complete(&mut self, place: TextLocation, whole: &Piece, chunks: &mut Chunks) -> Decoded {
        let mut said = self.words(place)?.text.clone();
        let is_compared = self.complete_next(place, whole, &mut said, chunks)?;
        self.check_rest(&said, is_compared && !whole.is_empty())
    }

    /// Adds a citation. It is emitted only if it belongs to the part that was written last.
    pub(super) fn cite(&mut self, place: TextLocation, raw: &RawValue, chunks: &mut Chunks) -> Decoded {
        let is_open = self.open == Some(place);
        let words = self.words(place)?;
        words.citations += 1;
        if is_open {
            let part = words.text.get(words.part_begins..).unwrap_or_default();
            let before = words.text.len() - part.len();
            let cited = citation(raw, &words.text, before);
            chunks.push(Chunk::Citation(cited));
        }
        Ok(())
    }

    /// Checks text that was emitted but is missing from the complete text.
    fn check_rest(&self, rest: &str, is_repeated: bool) -> Decoded {
        if is_repeated && !self.order.is_whole() && !rest.trim().is_empty() {
            return Err(inconsistent_events());
        }
        Ok(())
    }

    /// Rejects deltas of a completed item, which would duplicate its content.
    pub(super) fn check_open(&self, output: i64) -> Decoded {
        if self.items.get(&output).is_some_and(|item| item.done) {
            return Err(inconsistent_events());
        }
        Ok(())
    }

    /// Completes an item.
    pub(super) fn end(&mut self, output: i64, raw: &RawValue, chunks: &mut Chunks) -> Decoded {
        let item: wire::Item = read(raw);
        self.identify(output, &item)?;
        if std::mem::replace(&mut self.item(output)?.done, true) {
            return Ok(());
        }
        match item.kind.0.as_str() {
            "message" => self.end_message(output, &item, chunks),
            "reasoning" => self.end_reasoning(output, &item, chunks),
            "function_call" => self.end_call(output, &item, chunks),
            CUSTOM_CALL if !self.runs_custom_tools => self.end_custom_call(output, &item, chunks),
            // An item without a type is ignored.
            "" => Ok(()),
            kind => {
                self.close(chunks);
                self.client_calls.add(kind, raw.get());
                match hosted::picture(kind, raw) {
                    Some((picture, item)) => {
                        chunks.push(Chunk::Image(GeneratedImage::Content(picture)));
                        chunks.attach(KIND, json!({"item": item}));
                    }
                    None => chunks.push(Chunk::Item(hosted::item(kind, raw))),
                }
                Ok(())
            }
        }
    }

    /// Completes the response. `output` repeats its items. Some services do not mark every item as
    /// complete, and some repeat no items here.
    pub(super) fn finish(&mut self, output: Vec<Box<RawValue>>, chunks: &mut Chunks) -> Decoded {
        let done = self.items.values().filter(|item| item.done).count();
        if output.len() > done {
            for (at, raw) in (0..).zip(&output) {
                if let Some(place) = self.missing(at, raw) {
                    self.end(place, raw, chunks)?;
                }
            }
        }
        self.close(chunks);
        // If ids change during the response too, content of one item may have been assigned to
        // several.
        let is_left = |item: &Item| !item.done && (!item.words.is_empty() || item.call.index.is_some());
        let ends = self.items.values().any(|item| item.done);
        if self.unnumbered && ends && self.items.values().any(is_left) {
            return Err(inconsistent_events());
        }
        let unnamed = |item: &Item| item.call.index.is_none() && !item.call.arguments.text.is_empty() && !item.done;
        if self.items.values().any(unnamed) {
            return Err(unnamed_call());
        }
        let call = self.client_calls.first();
        call.map_or(Ok(()), |kind| Err(client_call(kind)))
    }

    /// The number of an item in the complete response. Returns `None` if the item is already
    /// complete.
    fn missing(&self, at: i64, raw: &RawValue) -> Option<i64> {
        let item: wire::Item = read(raw);
        let id = item.id.0;
        let mut items = self.items.iter();
        let known = items.find(|(_, item)| !id.is_empty() && item.id == id);
        match (known, self.items.get(&at)) {
            (Some((_, known)), _) if known.done => None,
            (Some((output, _)), _) => Some(*output),
            (None, Some(other)) if !other.done => Some(at),
            (None, None) => Some(at),
            (None, Some(_)) => self.items.keys().next_back().map(|last| last + 1),
        }
    }

    fn end_message(&mut self, output: i64, item: &wire::Item, chunks: &mut Chunks) -> Decoded {
        let parts: Vec<wire::ContentPart> = item.content.as_deref().map(read).unwrap_or_default();
        let mut said =
            [TextKind::Text, TextKind::Refusal].map(|voice| (voice, self.emitted_text(output, voice), false));
        let mut is_compared = true;
        let texts = |words: &StreamedText| words.citations;
        let mut cited: usize = self.item(output)?.words.values().map(texts).sum();
        for (index, part) in (0..).zip(&parts) {
            for ((voice, said, repeats), whole) in said.iter_mut().zip([&part.text, &part.refusal]) {
                let place = TextLocation::new(output, *voice, index);
                if let Some(whole) = whole {
                    let whole = Piece::of(whole);
                    *repeats |= !whole.is_empty();
                    is_compared &= self.complete_next(place, &whole, said, chunks)?;
                }
            }
            let place = TextLocation::new(output, TextKind::Text, index);
            let sources: Vec<&RawValue> = part.annotations.as_deref().map(read).unwrap_or_default();
            for raw in sources {
                match cited.checked_sub(1) {
                    Some(left) => cited = left,
                    None => self.cite(place, raw, chunks)?,
                }
            }
        }
        for (_, rest, repeats) in &said {
            self.check_rest(rest, is_compared && *repeats)?;
        }
        self.close(chunks);
        Ok(())
    }

    /// The text of one kind that was emitted for an item.
    fn emitted_text(&self, output: i64, voice: TextKind) -> String {
        let words = self.items.get(&output).map(|item| &item.words);
        let words = words.into_iter().flatten();
        let words = words.filter(|((known, _), _)| *known == voice);
        words.map(|(_, words)| words.text.as_str()).collect()
    }

    /// Completes the next text of an item. `said` is the emitted text that was not yet found in the
    /// complete item. Some services number contents differently in events, so the numbers are not
    /// compared. Returns whether the text equals the emitted text, as far as that goes.
    fn complete_next(
        &mut self,
        place: TextLocation,
        whole: &Piece,
        said: &mut String,
        chunks: &mut Chunks,
    ) -> Result<bool, Fault> {
        let Text { text, replaced } = whole.whole();
        if let Some(left) = said.strip_prefix(&text) {
            *said = left.to_owned();
        } else if let Some(more) = text.strip_prefix(said.as_str()) {
            said.clear();
            self.words(place)?.joiner = Joiner::default();
            if !more.is_empty() {
                self.write(place, &Piece::from(more), chunks)?;
            }
            chunks.extend(replaced.then_some(Chunk::Sanitized));
        } else if !self.order.is_whole() && is_garbled(said, &text) {
            return Err(inconsistent_events());
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Completes a reasoning item. Encrypted reasoning is sent back to the provider, however much
    /// of it is visible.
    fn end_reasoning(&mut self, output: i64, item: &wire::Item, chunks: &mut Chunks) -> Decoded {
        for (voice, parts) in [(TextKind::Summary, &item.summary), (TextKind::Reasoning, &item.content)] {
            let parts: Vec<wire::ContentPart> = parts.as_deref().map(read).unwrap_or_default();
            let mut said = self.emitted_text(output, voice);
            let (mut repeats, mut is_compared) = (false, true);
            for (index, part) in (0..).zip(&parts) {
                let place = TextLocation::new(output, voice, index);
                if let Some(whole) = &part.text {
                    let whole = Piece::of(whole);
                    repeats |= !whole.is_empty();
                    is_compared &= self.complete_next(place, &whole, &mut said, chunks)?;
                }
            }
            self.check_rest(&said, is_compared && repeats)?;
        }
        let encrypted = item.encrypted_content.0.as_str();
        if encrypted.is_empty() {
            self.forgets_reasoning = true;
            self.close(chunks);
            return Ok(());
        }
        match self.open {
            Some(place) if place.output == output => self.end_text(chunks),
            Some(_) | None => {
                self.close(chunks);
                chunks.push(Chunk::Reasoning(String::new()));
            }
        }
        self.open = None;
        let item = self.item(output)?;
        let raw = |(voice, _): &(TextKind, i64)| *voice == TextKind::Reasoning;
        let mut own = json!({"id": item.id, "encrypted_content": encrypted});
        if item.words.keys().any(raw) {
            own["raw"] = json!(true);
        }
        chunks.attach(KIND, own);
        Ok(())
    }

    /// Records the kind, id and phase of an item. Some services change the id during the response;
    /// the last id is the one that they accept later.
    fn identify(&mut self, output: i64, item: &wire::Item) -> Decoded {
        let known = self.item(output)?;
        known.is_custom |= item.kind.0 == CUSTOM_CALL;
        item.id.clone_into(&mut known.id);
        item.phase.clone_into(&mut known.phase);
        Ok(())
    }

    pub(super) fn item(&mut self, output: i64) -> Result<&mut Item, Fault> {
        if self.items.len() == MAX_ITEMS && !self.items.contains_key(&output) {
            return Err(Fault::broken("the response has too many items"));
        }
        Ok(self.items.entry(output).or_default())
    }

    fn words(&mut self, place: TextLocation) -> Result<&mut StreamedText, Fault> {
        let words = &mut self.item(place.output)?.words;
        Ok(words.entry((place.kind, place.index)).or_default())
    }

    /// Selects the place to which text is written next.
    fn turn_to(&mut self, place: TextLocation, chunks: &mut Chunks) -> Decoded {
        if self.open != Some(place) {
            self.close(chunks);
            let words = self.words(place)?;
            words.part_begins = words.text.len();
            self.open = Some(place);
        }
        Ok(())
    }

    /// Ends the current text, because it is complete or other content follows.
    pub(super) fn close(&mut self, chunks: &mut Chunks) {
        self.end_text(chunks);
        let Some(place) = self.open.take() else {
            return;
        };
        let own = match place.kind {
            TextKind::Text | TextKind::Refusal => self.id_and_phase(place.output),
            TextKind::Summary | TextKind::Reasoning => Map::new(),
        };
        if own.is_empty() {
            chunks.push(Chunk::PartEnded);
        } else {
            chunks.attach(KIND, own);
        }
    }

    /// The id and phase of an item.
    pub(super) fn id_and_phase(&self, output: i64) -> Map<String, Value> {
        let Some(Item { id, phase, .. }) = self.items.get(&output) else {
            return Map::new();
        };
        let id = Some(id).filter(|_| !self.forgets_reasoning);
        let words = [("id", id), ("phase", Some(phase))].into_iter();
        let words = words.filter_map(|(key, word)| Some((key.to_owned(), word?)));
        let words = words.filter(|(_, word)| !word.is_empty());
        words.map(|(key, word)| (key, json!(word))).collect()
    }

    /// Ends the current text. An unpaired surrogate at its end is replaced.
    fn end_text(&mut self, chunks: &mut Chunks) {
        let Some(place) = self.open else {
            return;
        };
        let item = self.items.get_mut(&place.output);
        if let Some(words) = item.and_then(|item| item.words.get_mut(&(place.kind, place.index))) {
            let last = words.joiner.rest();
            words.text.push_str(&last.text);
            chunks.text(place.kind.of_chunks(), last);
        }
    }
}

/// Whether the emitted text differs from the complete text in the way that results from missing,
/// repeated or reordered deltas. Other differences are changes by the service and are accepted.
pub(super) fn is_garbled(said: &str, whole: &str) -> bool {
    let letters = |text: &str| -> Vec<char> { text.trim().chars().collect() };
    let (mut said, mut whole) = (letters(said), letters(whole));
    if said == whole || said.is_empty() || whole.is_empty() {
        return false;
    }
    if is_within(&said, &whole) || is_within(&whole, &said) {
        return true;
    }
    said.sort_unstable();
    whole.sort_unstable();
    said == whole
}

/// Whether `part` is a subsequence of `whole`.
fn is_within(part: &[char], whole: &[char]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|wanted| rest.any(|it| it == wanted))
}

/// The fault for deltas that contradict the complete response.
pub(super) fn inconsistent_events() -> Fault {
    Fault::broken("events of the response are missing, repeated or out of order")
}

/// The fault for a call of a server tool that the client has to run. In the history, its item would
/// need an output in a format specific to each such tool.
fn client_call(kind: &str) -> Fault {
    Fault {
        code: kind.to_owned(),
        should_retry: Some(false),
        ..Fault::new(
            Kind::BadRequest,
            format!(
                "the response contains a {kind}, which the client has to run and contextd cannot pass to a host: remove that tool from provider_tools, or offer it as a host tool"
            ),
        )
    }
}

pub(super) fn unnamed_call() -> Fault {
    Fault::broken("the response contains a tool call without a name")
}
