//! The decoder against everything that was recorded, at every split of what is small, and against
//! arbitrary bytes.

use std::{collections::VecDeque, fs, path::Path};

use proptest::prelude::*;
use serde_json::Value;

use super::{decode::Decoder, dialect};
use crate::{
    model::{CallId, FinishReason, MessageId, Part},
    provider::{
        Chunk, Finish,
        assemble::{Assembled, Assembly, Progress},
        error::Kind,
        http::{Decoder as _, Fault, sse},
    },
};

mod bodies;
mod chunks;
mod media;
pub(super) mod requests;

/// Bytes of a recording that is read at every split.
const SMALL: usize = 8 << 10;

/// What a stream became: its chunks and how it ended.
type Outcome = (Vec<Chunk>, Result<(), Fault>);

/// Decodes a stream that comes in these pieces, as a call does.
fn decode<'a>(name: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let dialect = dialect::named(name).expect("a dialect");
    let mut decoder = Decoder::new(dialect);
    let mut reader = sse::Reader::default();
    let mut chunks = VecDeque::new();
    let mut seen = Vec::new();
    let mut read = |decoder: &mut Decoder, events: Vec<sse::Event>| -> Result<bool, Fault> {
        for event in events {
            let result = decoder.event(&event, &mut chunks);
            seen.extend(chunks.drain(..));
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
        seen.extend(chunks.drain(..));
    }
    (seen, result.map(drop))
}

/// A stream with these payloads and `[DONE]`.
fn stream(payloads: &[Value]) -> String {
    let events = payloads
        .iter()
        .map(|payload| format!("data: {payload}\n\n"));
    events.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

/// The chunks of a good stream.
fn chunks(name: &str, payloads: &[Value]) -> Vec<Chunk> {
    let (chunks, result) = decode(name, [stream(payloads).as_bytes()]);
    assert_eq!(result, Ok(()), "{payloads:?}");
    chunks
}

/// The fault of a bad one.
fn fault(name: &str, body: &str) -> Fault {
    decode(name, [body.as_bytes()]).1.expect_err(body)
}

/// The chunks as one message.
fn assembled(chunks: &[Chunk]) -> Assembled {
    let mut assembly = Assembly::new(MessageId::new("m"), Default::default(), 1 << 20);
    for (made, chunk) in chunks.iter().enumerate() {
        match assembly
            .apply(chunk.clone(), || CallId::new(format!("made_{made}")))
            .expect("a sound answer")
        {
            Progress::Finished(finish) => return assembly.finish(finish),
            Progress::Quiet | Progress::Delta(_) => {}
        }
    }
    panic!("no end: {chunks:?}")
}

fn finish(chunks: &[Chunk]) -> &Finish {
    match chunks.last() {
        Some(Chunk::Finished(finish)) => finish,
        other => panic!("no finish: {other:?}"),
    }
}
