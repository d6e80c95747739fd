//! Protobuf in gRPC's frames, in buffers that suit streams on which mostly nothing happens.
//!
//! Tonic's own codec keeps 8 KiB for each stream from its beginning, and puts 32 KiB together
//! before it sends anything, which a reader that does not read holds on to.

use std::marker::PhantomData;

use prost::Message;
use tonic::{
    Status,
    codec::{BufferSettings, EncodeBuf},
};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Bytes that a stream begins with; a larger message makes room for itself.
const INITIAL_BUFFER_BYTES: usize = 1 << 10;
/// Bytes of messages that are ready, from which on they are sent together.
const YIELD_THRESHOLD_BYTES: usize = 8 << 10;

/// What the generated services and clients read and write with.
#[derive(Debug, Clone)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Encoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        Encoder(ProstEncoder::new(BufferSettings::new(INITIAL_BUFFER_BYTES, YIELD_THRESHOLD_BYTES)))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(INITIAL_BUFFER_BYTES, YIELD_THRESHOLD_BYTES))
    }
}

/// Writes messages. Reserves the size of each message first: otherwise the buffer doubles while a large message is
/// written, and an idle stream keeps it.
#[derive(Debug, Clone)]
pub struct Encoder<T>(ProstEncoder<T>);

impl<T: Message> tonic::codec::Encoder for Encoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.encoded_len());
        self.0.encode(message, buffer)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}
