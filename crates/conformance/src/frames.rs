//! The framing of gRPC messages: a flag, a length of four bytes, the message.

use prost::bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

const HEAD: usize = 5;

/// The part of a body received so far.
#[derive(Debug, Default)]
pub(super) struct Frames(BytesMut);

impl Frames {
    /// Adds received data.
    pub(super) fn push(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
    }

    /// The next complete message. Returns `None` until it has arrived.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let length = self.0.get(1..HEAD)?;
        let length = u32::from_be_bytes(length.try_into().ok()?);
        let end = HEAD + usize::try_from(length).ok()?;
        if self.0.len() < end {
            return None;
        }
        let mut whole = self.0.split_to(end);
        whole.advance(HEAD);
        Some(whole.freeze())
    }
}

/// A message with its frame header.
pub(super) fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEAD + message.len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    bytes.extend_from_slice(message);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_however_the_body_is_cut() {
        let body = [framed(b"one"), framed(b""), framed(b"three")].concat();
        for size in 1..body.len() {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for piece in body.chunks(size) {
                frames.push(piece);
                while let Some(message) = frames.next() {
                    found.push(message);
                }
            }
            assert_eq!(found, ["one", "", "three"], "pieces of {size}");
        }
    }
}
