//! Caches the token counts of short pieces of text, because most words of a text occur repeatedly.

/// Maximum length of a cached piece, in bytes.
const MAX_PIECE_BYTES: usize = 15;

/// Number of cached pieces, a power of two.
const SLOTS: usize = 1 << 14;

/// The token counts of recent pieces. The size is fixed: pieces with the same slot replace each other.
#[derive(Debug, Clone)]
pub(super) struct Pieces(Vec<Slot>);

/// A piece, padded with zeros, and its token count. A length of zero means the slot is empty.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    piece: u128,
    length: u8,
    tokens: u8,
}

impl Pieces {
    /// An empty cache.
    pub(super) fn new() -> Self {
        Self(vec![Slot::default(); SLOTS])
    }

    /// The number of tokens of a piece; calls `count` if it is not cached.
    pub(super) fn tokens(&mut self, piece: &[u8], count: impl FnOnce(&[u8]) -> usize) -> usize {
        let Ok(length @ 1..) = u8::try_from(piece.len()) else {
            return count(piece);
        };
        if piece.len() > MAX_PIECE_BYTES {
            return count(piece);
        }
        let packed = pack(piece);
        let slot = &mut self.0[place(packed, length)];
        if slot.piece == packed && slot.length == length {
            return usize::from(slot.tokens);
        }
        let tokens = count(piece);
        if let Ok(tokens) = u8::try_from(tokens) {
            *slot = Slot { piece: packed, length, tokens };
        }
        tokens
    }
}

/// The bytes of a piece as one number.
fn pack(piece: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    bytes[..piece.len()].copy_from_slice(piece);
    u128::from_le_bytes(bytes)
}

/// The slot of a piece: the upper bits of the product depend on all of its bytes.
fn place(packed: u128, length: u8) -> usize {
    let folded = (packed as u64) ^ ((packed >> 64) as u64).rotate_left(29) ^ u64::from(length);
    let mixed = (folded ^ (folded >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - SLOTS.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_piece_is_counted_once_and_a_long_one_each_time() {
        let table = [("word", 1), (" fifteen bytes!", 1), ("sixteen bytes ok", 2), ("", 2)];
        for (piece, expected) in table {
            let mut pieces = Pieces::new();
            let mut counted = 0;
            for _ in 0..2 {
                let count = |piece: &[u8]| {
                    counted += 1;
                    piece.len()
                };
                assert_eq!(pieces.tokens(piece.as_bytes(), count), piece.len());
            }
            assert_eq!(counted, expected, "{piece:?}");
        }
    }

    proptest! {
        #[test]
        fn cached_piece_costs_never_collide(texts in proptest::collection::vec("[a-c\\x00]{0,15}", 0..300)) {
            let mut pieces = Pieces::new();
            let cost = |piece: &[u8]| piece.iter().map(|byte| usize::from(*byte % 5)).sum::<usize>();
            for text in &texts {
                prop_assert_eq!(pieces.tokens(text.as_bytes(), cost), cost(text.as_bytes()));
            }
        }
    }
}
