//! Durable events, to and from their stored form: the kind is the name of the proto's oneof field, the payload is its
//! member.

pub(crate) mod kind;
mod read;
mod write;

pub use read::{CompletedCall, EventContent, refs_to_load, to_pb};
pub use write::{EncodedEvent, encode, encode_call_cancelled, encode_compaction_lost, encode_dropped_with_session};
