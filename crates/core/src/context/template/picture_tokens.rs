//! Cost of pictures in tokens by family, from published measurements. For families without one, a picture has the cost
//! that is most common.

use super::Template;
use crate::model::media::Pixels;

/// Cost of a picture if its size is not known.
const UNKNOWN: u32 = 1_600;

/// The cost of a picture in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageCost {
    /// By patches: the picture is scaled down to the model's limits, and divided into squares; partial squares count.
    Patches {
        /// Side of a square in pixels.
        side: u32,
        /// Maximum length of the longer side in pixels.
        edge: u32,
        /// Minimum and maximum number of squares.
        squares: (u32, u32),
        /// Tokens per hundred squares.
        price: u32,
    },
    /// By large tiles, partial ones included, plus a base cost.
    Tiles {
        /// Tokens per tile.
        each: u32,
        /// Base cost of any picture.
        base: u32,
        /// Side of a tile in pixels.
        side: u32,
        /// Length in pixels that the longer side is scaled down to; 0 means it is not scaled.
        longer: u32,
        /// Length in pixels that the shorter side is scaled down to; 0 means it is not scaled.
        shorter: u32,
    },
    /// The same for every picture.
    Each(u32),
}

/// The cost of pictures by family.
static TABLE: &[(&[&str], ImageCost)] = &[
    (&["claude-4", "claude-4.5"], patches(28, 1_568, (1, 1_568), 100)),
    (&["claude-4.7"], patches(28, 2_000, (1, 4_000), 100)),
    (
        &["gpt-4-chat", "gpt-4-responses"],
        ImageCost::Tiles { each: 170, base: 85, side: 512, longer: 2_048, shorter: 768 },
    ),
    (&["gpt-5-chat", "gpt-5-responses"], patches(32, u32::MAX, (1, u32::MAX), 120)),
    (&["gemini-3", "vertex-gemini-3"], ImageCost::Each(1_100)),
    (
        &["gemini-2.0", "gemini-2.5", "vertex-gemini-2.5"],
        ImageCost::Tiles { each: 258, base: 0, side: 768, longer: 0, shorter: 0 },
    ),
    (&["qwen-3", "qwen-3.5", "mistralrs-qwen-3", "venice-qwen-3.5"], patches(28, u32::MAX, (4, 16_384), 100)),
];

const fn patches(side: u32, edge: u32, squares: (u32, u32), price: u32) -> ImageCost {
    ImageCost::Patches { side, edge, squares, price }
}

impl Default for ImageCost {
    /// The cost for models that are not known.
    fn default() -> Self {
        patches(28, u32::MAX, (258, 4_000), 100)
    }
}

impl Template {
    /// The cost of pictures for this family.
    pub fn image_cost(&self) -> ImageCost {
        let known = TABLE.iter().find(|(families, _)| families.contains(&self.name));
        known.map_or_else(ImageCost::default, |(_, pictures)| *pictures)
    }
}

impl ImageCost {
    /// Tokens of a picture. A picture whose size is not known gets a typical number.
    pub fn tokens(self, pixels: Option<Pixels>) -> u32 {
        let sides = pixels.map(|pixels| (pixels.width.get(), pixels.height.get()));
        match (self, sides) {
            (Self::Each(tokens), _) => tokens,
            (Self::Patches { .. } | Self::Tiles { .. }, None) => UNKNOWN,
            (Self::Patches { side, edge, squares: (least, most), price }, Some(sides)) => {
                let squares = fewest(at_most(sides, edge), side, most).clamp(u64::from(least), u64::from(most));
                narrow((squares * u64::from(price)).div_ceil(100))
            }
            (Self::Tiles { each, base, side, longer, shorter }, Some(sides)) => {
                let (width, height) = shrunk(at_most(sides, if longer == 0 { u32::MAX } else { longer }), shorter);
                narrow(u64::from(base) + u64::from(each) * squares((width, height), side))
            }
        }
    }
}

/// Both sides, scaled down so that the longer one is at most `edge`.
fn at_most((width, height): (u32, u32), edge: u32) -> (u32, u32) {
    scaled((width, height), f64::from(edge) / f64::from(width.max(height)))
}

/// Both sides, scaled down so that the shorter one is at most `shorter`; 0 means they are not scaled.
fn shrunk((width, height): (u32, u32), shorter: u32) -> (u32, u32) {
    if shorter == 0 {
        (width, height)
    } else {
        scaled((width, height), f64::from(shorter) / f64::from(width.min(height)))
    }
}

fn scaled((width, height): (u32, u32), by: f64) -> (u32, u32) {
    if by >= 1.0 {
        return (width, height);
    }
    // Only scales down, and never to 0.
    let side = |side: u32| ((f64::from(side) * by).round() as u32).max(1);
    (side(width), side(height))
}

/// The number of squares that cover the picture.
fn squares((width, height): (u32, u32), side: u32) -> u64 {
    u64::from(width.div_ceil(side)) * u64::from(height.div_ceil(side))
}

/// The number of squares after scaling the picture down as far as necessary to have at most `most`.
fn fewest(sides: (u32, u32), side: u32, most: u32) -> u64 {
    if squares(sides, side) <= u64::from(most) {
        return squares(sides, side);
    }
    // Binary search for the largest number of columns that fits; the picture is scaled to exactly that width.
    let columns = sides.0.div_ceil(side);
    let mut least = 1;
    let mut more = columns;
    let of = |columns: u32| {
        let by = f64::from(columns) * f64::from(side) / f64::from(sides.0);
        squares(scaled(sides, by), side)
    };
    while more - least > 1 {
        let middle = least + (more - least) / 2;
        if of(middle) <= u64::from(most) { least = middle } else { more = middle }
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
            let pictures = Template::named(template).unwrap().image_cost();
            assert_eq!(pictures.tokens(Pixels::new(width, height)), expected, "{template}: {width} x {height}");
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
            assert!((1_100..=1_600).contains(&template.image_cost().tokens(None)), "{}", template.name);
        }
    }

    proptest! {
        #[test]
        fn every_image_price_is_within_its_bounds(width in 1_u32..=u32::MAX, height in 1_u32..=u32::MAX) {
            for template in Template::all() {
                let pictures = template.image_cost();
                let tokens = pictures.tokens(Pixels::new(width, height));
                prop_assert!(tokens >= 1);
                if let ImageCost::Patches { squares: (_, most), price, .. } = pictures {
                    prop_assert!(u64::from(tokens) <= (u64::from(most) * u64::from(price)).div_ceil(100));
                }
            }
        }
    }
}
