//! Reads the token list of a vocabulary in the format of the crates `splintr-vocab-*`: `SPLNTRV1`, the number of tokens
//! (four bytes, little-endian), and for each token its rank and length (LEB128) and its bytes.

/// The tokens in the order of their ranks, which have no gaps.
pub(super) fn tokens(packed: &'static [u8]) -> impl Iterator<Item = &'static [u8]> {
    const HEADER: usize = b"SPLNTRV1".len() + size_of::<u32>();
    let mut rest = packed.get(HEADER..).unwrap_or_default();
    let mut ranks = 0..;
    std::iter::from_fn(move || {
        let rank = number(&mut rest)?;
        debug_assert_eq!(Some(rank), ranks.next(), "ranks have no gaps");
        let length = number(&mut rest)?;
        let (token, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(token)
    })
}

/// Reads a number of seven bits per byte, lowest bits first (LEB128).
fn number(bytes: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in (0..usize::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
