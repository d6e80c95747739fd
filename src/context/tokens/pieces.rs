//! Remembers what short pieces of text cost: most words of a text were seen before.

/// Longest piece that is remembered, in bytes.
const LONGEST: usize = 15;

/// Pieces that are remembered, a power of two.
const SLOTS: usize = 1 << 14;

/// The cost of pieces that were met lately. It never grows: pieces that share a slot replace each
/// other.
#[derive(Debug, Clone)]
pub(super) struct Pieces(Vec<Slot>);

/// A piece, filled up with zeros, and what it costs. A length of zero: nothing is remembered.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    piece: u128,
    length: u8,
    tokens: u8,
}

impl Pieces {
    /// None so far.
    pub(super) fn new() -> Self {
        Self(vec![Slot::default(); SLOTS])
    }

    /// Tokens of a piece; `count` is asked where that is not remembered.
    pub(super) fn tokens(&mut self, piece: &[u8], count: impl FnOnce(&[u8]) -> usize) -> usize {
        let Ok(length @ 1..) = u8::try_from(piece.len()) else {
            return count(piece);
        };
        if piece.len() > LONGEST {
            return count(piece);
        }
        let packed = pack(piece);
        let slot = &mut self.0[place(packed, length)];
        if slot.piece == packed && slot.length == length {
            return usize::from(slot.tokens);
        }
        let tokens = count(piece);
        if let Ok(tokens) = u8::try_from(tokens) {
            *slot = Slot {
                piece: packed,
                length,
                tokens,
            };
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

/// The slot of a piece: the upper bits of a product mix all of its bytes.
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
        let table = [
            ("word", 1),
            (" fifteen bytes!", 1),
            ("sixteen bytes ok", 2),
            ("", 2),
        ];
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
