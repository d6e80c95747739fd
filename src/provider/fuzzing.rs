//! Invariants that must hold for any bytes that a service sends, as functions of arbitrary bytes:
//! nothing panics, the size of the decoded output is bounded by the size of the input, and the way
//! the bytes are split does not matter.
//!
//! The fuzz targets in `fuzz/` call these functions (cargo-fuzz sets `cfg(fuzzing)`). The tests in
//! this file replay the inputs that fuzzing found, with the stable toolchain.

use std::{collections::BTreeSet, fmt::Debug};

use super::{
    Chunk, anthropic,
    assemble::{Assembly, Progress},
    discovery, gemini,
    http::{Chunks, Decoder, Fault, ReportedError, classify, sse},
    openai, responses,
};
use crate::model::{CallId, MessageId};

/// Bytes before the stream in each input: one that selects a dialect, and the sizes of three
/// pieces.
const HEADER: usize = 4;

/// Limit on the decoded output, in bytes of its debug text per byte of input. An escape in debug
/// text takes up to 8 bytes, and a chunk has names in addition to its content.
const GROWTH: usize = 100;

/// Limit on the decoded output of an empty input, in bytes of its debug text.
const MIN_OUTPUT_LIMIT: usize = 4 << 10;

/// A small limit on the bytes of an event, to exercise the limit itself.
const SMALL_EVENT: usize = 64;

/// Limit on the bytes of an assembled response.
const MAX_ANSWER: usize = 4 << 20;

/// The decoded stream: its chunks and how it ended.
pub(super) type DecodeOutcome = (Vec<Chunk>, Result<(), Fault>);

/// Checks the reader of server-sent events, with the normal event limit and with one that inputs
/// exceed.
pub fn sse(input: &[u8]) {
    let input = Input::of(input);
    for most in [sse::MAX_EVENT_BYTES, SMALL_EVENT] {
        let read = |pieces: Vec<&[u8]>| {
            let mut reader = sse::Reader::new(most);
            let mut events = Vec::new();
            for piece in pieces {
                if let Err(error) = reader.push(piece, &mut events) {
                    return (events, Some(error));
                }
            }
            events.extend(reader.finish());
            (events, None)
        };
        input.at_every_split(read);
    }
}

/// Checks the Chat Completions decoder.
pub fn chat(input: &[u8]) {
    let input = Input::of(input);
    let dialect = &openai::dialect::DIALECTS[input.choice % openai::dialect::DIALECTS.len()];
    check(&input, || openai::decode::Decoder::new(dialect, None));
}

/// Checks the Anthropic Messages decoder.
pub fn anthropic(input: &[u8]) {
    check(&Input::of(input), || anthropic::decode::Decoder::new(Some("fingerprint".to_owned())));
}

/// Checks the Responses API decoder.
pub fn responses(input: &[u8]) {
    let input = Input::of(input);
    let dialects = responses::dialect::DIALECTS;
    let dialect = &dialects[input.choice % dialects.len()];
    check(&input, || responses::decode::Decoder::new(dialect));
}

/// Checks the Gemini decoder.
pub fn gemini(input: &[u8]) {
    check(&Input::of(input), gemini::decode::Decoder::default);
}

/// Checks the readers of model lists and of error bodies.
pub fn bodies(input: &[u8]) {
    let input = Input::of(input);
    let said = ReportedError::of_body(input.body);
    for place in [classify::ErrorSource::Stream, classify::ErrorSource::Body(400 + input.choice as u16)] {
        bounded(&input, &classify::fault(place, &said));
    }
    if let Ok(answer) = serde_json::from_slice(input.body) {
        for list in discovery::read_in_every_way(&answer) {
            bounded(&input, &list);
        }
    }
}

/// Decodes a stream that arrives in these pieces, in the same way as a model call does.
pub(super) fn decode<'a>(mut decoder: impl Decoder, pieces: impl IntoIterator<Item = &'a [u8]>) -> DecodeOutcome {
    let mut reader = sse::Reader::default();
    let mut chunks = Chunks::default();
    let mut seen = Vec::new();
    let mut read = |decoder: &mut _, events: Vec<sse::Event>| -> Result<bool, Fault> {
        for event in events {
            let result = Decoder::event(decoder, &event, &mut chunks);
            seen.extend(chunks.drain());
            result?;
            if matches!(seen.last(), Some(Chunk::Finished(_))) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let mut result = Ok(false);
    for piece in pieces {
        let mut events = Vec::new();
        result = match reader.push(piece, &mut events) {
            Ok(()) => read(&mut decoder, events),
            Err(error) => Err(Fault::broken(error.to_string())),
        };
        if !matches!(result, Ok(false)) {
            break;
        }
    }
    if matches!(result, Ok(false)) {
        result = read(&mut decoder, reader.finish().into_iter().collect());
    }
    if matches!(result, Ok(false)) {
        result = decoder.end(&mut chunks).map(|()| true);
        seen.extend(chunks.drain());
    }
    (seen, result.map(drop))
}

/// Runs a decoder on every split of the input, and assembles the message from its chunks.
fn check<D: Decoder>(input: &Input<'_>, decoder: impl Fn() -> D) {
    let (chunks, _) = input.at_every_split(|pieces| decode(decoder(), pieces));
    bounded(input, &chunks);
    let mut assembly = Assembly::new(MessageId::new("m"), BTreeSet::new(), MAX_ANSWER);
    for (made, chunk) in chunks.into_iter().enumerate() {
        match assembly.apply(chunk, || CallId::new(format!("made_{made}"))) {
            Ok(Progress::Finished(finish)) => {
                assembly.finish(finish);
                return;
            }
            Ok(Progress::NoDelta | Progress::Delta(_)) => {}
            Err(_) => return,
        }
    }
    assembly.into_partial();
}

fn bounded(input: &Input<'_>, made: &impl Debug) {
    let made = format!("{made:?}").len();
    let most = MIN_OUTPUT_LIMIT + GROWTH * input.body.len();
    assert!(made <= most, "{} bytes became {made}", input.body.len());
}

/// A stream and the sizes of its pieces.
struct Input<'a> {
    choice: usize,
    sizes: [usize; HEADER - 1],
    body: &'a [u8],
}

impl<'a> Input<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let (header, body) = bytes.split_at(HEADER.min(bytes.len()));
        let byte = |at: usize| header.get(at).copied().map_or(0, usize::from);
        Self { choice: byte(0), sizes: [byte(1) + 1, byte(2) + 1, byte(3) + 1], body }
    }

    /// Reads the stream as a whole, in pieces of the sizes given by the input, and byte by byte.
    /// Asserts that all three results are equal and returns the result.
    fn at_every_split<T: PartialEq + Debug>(&self, read: impl Fn(Vec<&'a [u8]>) -> T) -> T {
        let whole = read(vec![self.body]);
        assert_eq!(read(self.pieces()), whole, "in pieces of {:?}", self.sizes);
        assert_eq!(read(self.body.chunks(1).collect()), whole, "byte by byte");
        whole
    }

    fn pieces(&self) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        let mut rest = self.body;
        for size in self.sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(rest.len().min(*size));
            pieces.push(piece);
            rest = after;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Runs a target on each input in its corpus.
    fn replay(target: &str, run: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let mut inputs = 0;
        for entry in fs::read_dir(&folder).expect("the folder of the target") {
            let path = entry.expect("an entry").path();
            let input = fs::read(&path).expect("an input");
            // The output of a failing test is shown, so it names the last input.
            eprintln!("{}", path.display());
            run(&input);
            inputs += 1;
        }
        assert!(inputs > 0, "{} is empty", folder.display());
    }

    #[test]
    fn the_reader_of_events_holds_on_every_input_that_fuzzing_kept() {
        replay("sse", sse);
    }

    #[test]
    fn the_decoder_of_chat_completions_holds_on_every_input_that_fuzzing_kept() {
        replay("chat", chat);
    }

    #[test]
    fn the_decoder_of_messages_holds_on_every_input_that_fuzzing_kept() {
        replay("anthropic", anthropic);
    }

    #[test]
    fn the_decoder_of_responses_holds_on_every_input_that_fuzzing_kept() {
        replay("responses", responses);
    }

    #[test]
    fn the_decoder_of_gemini_holds_on_every_input_that_fuzzing_kept() {
        replay("gemini", gemini);
    }

    #[test]
    fn the_readers_of_lists_and_errors_hold_on_every_input_that_fuzzing_kept() {
        replay("bodies", bodies);
    }
}
