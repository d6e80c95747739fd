//! Tests of decoding and encoding, with recorded responses.

mod answers;
mod requests;
