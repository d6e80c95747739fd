//! Tests of the decoder: all recordings, every split of small ones, and arbitrary bytes.

use proptest::prelude::*;
use serde_json::Value;

use super::{decode::Decoder, dialect};
use crate::{
    model::{CallId, FinishReason, Part},
    provider::{
        Chunk, Finish,
        error::Kind,
        http::Fault,
        recordings::{self, DecodeOutcome, assembled},
    },
};

mod bodies;
mod chunks;
mod media;
pub(super) mod requests;

/// Decodes a stream that arrives in these pieces, in the same way as a model call does.
fn decode<'a>(name: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> DecodeOutcome {
    let dialect = dialect::named(name).expect("a dialect");
    recordings::decode(Decoder::new(dialect, None), pieces)
}

/// A stream with these payloads and `[DONE]`.
fn stream(payloads: &[Value]) -> String {
    let events = payloads.iter().map(|payload| format!("data: {payload}\n\n"));
    events.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

/// The chunks of a valid stream.
fn chunks(name: &str, payloads: &[Value]) -> Vec<Chunk> {
    let (chunks, result) = decode(name, [stream(payloads).as_bytes()]);
    assert_eq!(result, Ok(()), "{payloads:?}");
    chunks
}

/// The fault of an invalid stream.
fn fault(name: &str, body: &str) -> Fault {
    decode(name, [body.as_bytes()]).1.expect_err(body)
}

fn finish(chunks: &[Chunk]) -> &Finish {
    match chunks.last() {
        Some(Chunk::Finished(finish)) => finish,
        other => panic!("no finish: {other:?}"),
    }
}
