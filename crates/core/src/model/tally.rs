//! Estimates the number of tokens of a text from the number of its characters.

/// Twentieths of a token per ASCII character: 0.25 tokens (feature row A11).
const ASCII_UNITS: u64 = 5;

/// Twentieths of a token per other character: 1.3 tokens (feature row A11).
const OTHER_UNITS: u64 = 26;

/// Units per token.
const TOKEN_UNITS: u64 = 20;

/// A running count over pieces of text. Only the sum is rounded up, so the result does not depend on how the text is
/// split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    units: u64,
}

impl Tally {
    /// The count with another piece of text added.
    #[must_use]
    pub fn plus(self, text: &str) -> Self {
        let (ascii, other) =
            text.chars().fold(
                (0u64, 0u64),
                |(ascii, other), char| {
                    if char.is_ascii() { (ascii + 1, other) } else { (ascii, other + 1) }
                },
            );
        Self { units: self.units.saturating_add(ascii * ASCII_UNITS).saturating_add(other * OTHER_UNITS) }
    }

    /// The estimate in tokens, rounded up.
    pub fn tokens(self) -> u32 {
        u32::try_from(self.units.div_ceil(TOKEN_UNITS)).unwrap_or(u32::MAX)
    }
}
