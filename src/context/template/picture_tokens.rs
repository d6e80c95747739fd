//! What pictures cost, by family. Published measurements; where a family's are not known, a picture
//! costs what one costs most of them.

use super::Template;
use crate::model::media::Pixels;

/// What a picture costs where nothing is known of it, or of the model.
const UNKNOWN: u32 = 1_600;

/// What a picture costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pictures {
    /// By squares of so many pixels, begun ones too, after it was made as small as the model sees
    /// it.
    Patches {
        /// Pixels of a square's side.
        side: u32,
        /// Most pixels of the longer side.
        edge: u32,
        /// Least and most squares.
        squares: (u32, u32),
        /// Tokens of a hundred squares.
        price: u32,
    },
    /// By large squares, begun ones too, and something for the picture itself.
    Tiles {
        /// Tokens of a square.
        each: u32,
        /// Tokens of any picture.
        base: u32,
        /// Pixels of a square's side.
        side: u32,
        /// To how many pixels the longer side is made smaller; 0: it is not.
        longer: u32,
        /// To how many pixels the shorter side is made smaller; 0: it is not.
        shorter: u32,
    },
    /// The same, however large.
    Each(u32),
}

/// Which family's pictures cost what.
static TABLE: &[(&[&str], Pictures)] = &[
    (
        &["claude-4", "claude-4.5"],
        patches(28, 1_568, (1, 1_568), 100),
    ),
    (&["claude-4.7"], patches(28, 2_000, (1, 4_000), 100)),
    (
        &["gpt-4-chat", "gpt-4-responses"],
        Pictures::Tiles {
            each: 170,
            base: 85,
            side: 512,
            longer: 2_048,
            shorter: 768,
        },
    ),
    (
        &["gpt-5-chat", "gpt-5-responses"],
        patches(32, u32::MAX, (1, u32::MAX), 120),
    ),
    (&["gemini-3", "vertex-gemini-3"], Pictures::Each(1_100)),
    (
        &["gemini-2.0", "gemini-2.5", "vertex-gemini-2.5"],
        Pictures::Tiles {
            each: 258,
            base: 0,
            side: 768,
            longer: 0,
            shorter: 0,
        },
    ),
    (
        &["qwen-3", "qwen-3.5", "mistralrs-qwen-3", "venice-qwen-3.5"],
        patches(28, u32::MAX, (4, 16_384), 100),
    ),
];

const fn patches(side: u32, edge: u32, squares: (u32, u32), price: u32) -> Pictures {
    Pictures::Patches {
        side,
        edge,
        squares,
        price,
    }
}

impl Default for Pictures {
    /// A model that is not known.
    fn default() -> Self {
        patches(28, u32::MAX, (258, 4_000), 100)
    }
}

impl Template {
    /// What the family's pictures cost.
    pub fn pictures(&self) -> Pictures {
        let known = TABLE
            .iter()
            .find(|(families, _)| families.contains(&self.name));
        known.map_or_else(Pictures::default, |(_, pictures)| *pictures)
    }
}

impl Pictures {
    /// Tokens of a picture; of one whose size is not known, those of a usual one.
    pub fn tokens(self, pixels: Option<Pixels>) -> u32 {
        let sides = pixels.map(|pixels| (pixels.width.get(), pixels.height.get()));
        match (self, sides) {
            (Self::Each(tokens), _) => tokens,
            (Self::Patches { .. } | Self::Tiles { .. }, None) => UNKNOWN,
            (
                Self::Patches {
                    side,
                    edge,
                    squares: (least, most),
                    price,
                },
                Some(sides),
            ) => {
                let squares = fewest(at_most(sides, edge), side, most)
                    .clamp(u64::from(least), u64::from(most));
                narrow((squares * u64::from(price)).div_ceil(100))
            }
            (
                Self::Tiles {
                    each,
                    base,
                    side,
                    longer,
                    shorter,
                },
                Some(sides),
            ) => {
                let (width, height) = shrunk(
                    at_most(sides, if longer == 0 { u32::MAX } else { longer }),
                    shorter,
                );
                narrow(u64::from(base) + u64::from(each) * squares((width, height), side))
            }
        }
    }
}

/// Both sides, made smaller until the longer one is no longer than that.
fn at_most((width, height): (u32, u32), edge: u32) -> (u32, u32) {
    scaled(
        (width, height),
        f64::from(edge) / f64::from(width.max(height)),
    )
}

/// Both sides, made smaller until the shorter one is no longer than that; 0: they stay.
fn shrunk((width, height): (u32, u32), shorter: u32) -> (u32, u32) {
    if shorter == 0 {
        (width, height)
    } else {
        scaled(
            (width, height),
            f64::from(shorter) / f64::from(width.min(height)),
        )
    }
}

fn scaled((width, height): (u32, u32), by: f64) -> (u32, u32) {
    if by >= 1.0 {
        return (width, height);
    }
    // Smaller than before, and never nothing.
    let side = |side: u32| ((f64::from(side) * by).round() as u32).max(1);
    (side(width), side(height))
}

/// How many squares cover it.
fn squares((width, height): (u32, u32), side: u32) -> u64 {
    u64::from(width.div_ceil(side)) * u64::from(height.div_ceil(side))
}

/// The same of the picture made as small as it takes to have no more than `most`.
fn fewest(sides: (u32, u32), side: u32, most: u32) -> u64 {
    if squares(sides, side) <= u64::from(most) {
        return squares(sides, side);
    }
    // With each column less the picture is so much smaller; the first that fits is the largest.
    let columns = sides.0.div_ceil(side);
    let mut least = 1;
    let mut more = columns;
    let of = |columns: u32| {
        let by = f64::from(columns) * f64::from(side) / f64::from(sides.0);
        squares(scaled(sides, by), side)
    };
    while more - least > 1 {
        let middle = least + (more - least) / 2;
        if of(middle) <= u64::from(most) {
            least = middle
        } else {
            more = middle
        }
    }
    of(least)
}

fn narrow(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Row D5
    #[test]
    fn image_prices_equal_the_measured_ones() {
        let check = |template: &str, (width, height): (u32, u32), expected: u32| {
            let pictures = Template::named(template).unwrap().pictures();
            assert_eq!(
                pictures.tokens(Pixels::new(width, height)),
                expected,
                "{template}: {width} x {height}"
            );
        };
        check("claude-4.5", (1_920, 1_080), 1_560);
        check("claude-4.7", (1_920, 1_080), 2_691);
        check("gpt-5-chat", (4_032, 3_024), 14_364);
        check("gpt-4-chat", (1_024, 1_024), 85 + 4 * 170);
        check("gpt-4-chat", (4_096, 1_024), 85 + 4 * 170);
        check("gpt-4-chat", (2_048, 4_096), 1_105); // OpenAI's own example
        check("gpt-4-chat", (100, 100), 85 + 170);
        check("gemini-3", (1_920, 1_080), 1_100);
        check("gemini-2.5", (384, 384), 258);
        check("gemini-2.5", (1_536, 800), 4 * 258);
        check("qwen-3", (28, 28), 4);
        check("mistral", (10, 10), 258);
    }

    #[test]
    fn every_family_in_the_table_is_one() {
        for name in TABLE.iter().flat_map(|(families, _)| *families) {
            assert!(Template::named(name).is_some(), "{name}");
        }
    }

    #[test]
    fn an_image_of_unknown_size_is_priced_as_an_average_one() {
        for template in Template::all() {
            assert!(
                (1_100..=1_600).contains(&template.pictures().tokens(None)),
                "{}",
                template.name
            );
        }
    }

    proptest! {
        #[test]
        fn every_image_price_is_within_its_bounds(width in 1_u32..=u32::MAX, height in 1_u32..=u32::MAX) {
            for template in Template::all() {
                let pictures = template.pictures();
                let tokens = pictures.tokens(Pixels::new(width, height));
                prop_assert!(tokens >= 1);
                if let Pictures::Patches { squares: (_, most), price, .. } = pictures {
                    prop_assert!(u64::from(tokens) <= (u64::from(most) * u64::from(price)).div_ceil(100));
                }
            }
        }
    }
}
