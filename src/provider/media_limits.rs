//! Limits of services on the media in one request, as documented by them: data, each row with its
//! source and the month in which it was read. Unknown limits are left for the service to enforce.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

use crate::model::{Media, media::Kind};

/// Anthropic accepts fewer images for models whose context window is at most this many tokens.
const SMALL_WINDOW: u32 = 200_000;

/// Fraction of a request that is reserved for everything other than media: 1/16.
const FOR_TEXT: u64 = 16;

/// The limits, by service.
static LIMITS: LazyLock<BTreeMap<&'static str, MediaLimits>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("model_facts/media_limits.json"))
        .expect("the shipped table is valid; a test reads it")
});

/// The limits of one service. `None` if unknown. Byte counts are those of base64.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MediaLimits {
    picture_bytes: Option<u64>,
    /// Limit on the width and on the height of an image, in pixels.
    picture_side: Option<u32>,
    picture_pixels: Option<u64>,
    /// Limit on images in one request.
    pictures: Option<usize>,
    /// Limit on images in one request for models whose window is at most [`SMALL_WINDOW`].
    pictures_of_small_windows: Option<usize>,
    /// If a request has more images than this, `side_of_many_pictures` applies to each of them.
    many_pictures: Option<usize>,
    side_of_many_pictures: Option<u32>,
    /// Limit on the bytes of a request.
    request_bytes: Option<u64>,
    /// Where the service documents the limits.
    source: String,
    /// The month in which the source was read.
    read: String,
}

/// The limits of a service. All limits are unknown if the service is.
pub fn of(service: Option<&str>) -> MediaLimits {
    let known = service.and_then(|service| LIMITS.get(service));
    known.cloned().unwrap_or_default()
}

/// Size in base64 of this many bytes.
const fn encoded(bytes: u64) -> u64 {
    bytes.div_ceil(3).saturating_mul(4)
}

impl MediaLimits {
    /// Why the service rejects a media part regardless of the number of media parts in the request.
    /// Returns `None` if it accepts it.
    pub fn rejection_reason(&self, media: &Media) -> Option<String> {
        let kept = media.blob().filter(|_| media.kind() == Kind::Image)?;
        if let Some(most) = self.picture_bytes.filter(|most| encoded(kept.bytes) > *most) {
            let most = most >> 20;
            return Some(format!("The service accepts images of at most {most} MiB in base64."));
        }
        let pixels = kept.pixels?;
        let (width, height) = (pixels.width.get(), pixels.height.get());
        if let Some(most) = self.picture_side.filter(|most| width.max(height) > *most) {
            return Some(format!("The service accepts images of at most {most} pixels per side."));
        }
        let area = u64::from(width) * u64::from(height);
        let most = self.picture_pixels.filter(|most| area > *most)?;
        Some(format!("The service accepts images of at most {most} pixels."))
    }

    /// Limit on images in one request to a model with this context window, in tokens.
    pub fn pictures(&self, window: Option<u32>) -> usize {
        let is_small = window.is_some_and(|window| window <= SMALL_WINDOW);
        let of_small = self.pictures_of_small_windows.filter(|_| is_small);
        of_small.or(self.pictures).unwrap_or(usize::MAX)
    }

    /// Limit on the side of each image, in pixels, in a request with this many images. Returns
    /// `None` if there is none.
    pub fn side_of(&self, pictures: usize) -> Option<u32> {
        self.side_of_many_pictures.filter(|_| self.many_pictures.is_some_and(|many| pictures > many))
    }

    /// Limit on the bytes of media in one request, before base64 encoding.
    pub fn bytes(&self) -> Option<u64> {
        self.request_bytes.map(|bytes| (bytes - bytes / FOR_TEXT) / 4 * 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        BlobId,
        media::{BlobRef, Pixels, Source},
    };

    fn picture(bytes: u64, width: u32, height: u32) -> Media {
        Media {
            media_type: "image/png".to_owned(),
            source: Source::Blob(BlobRef { id: BlobId::new("b"), bytes, pixels: Pixels::new(width, height) }),
            filename: String::new(),
        }
    }

    #[test]
    fn each_limit_of_a_service_names_its_source() {
        for (service, limits) in &*LIMITS {
            assert!(limits.source.contains('/'), "{service}");
            assert!(limits.read.starts_with("20"), "{service}");
        }
    }

    #[test]
    fn a_picture_is_held_against_what_its_service_takes() {
        let table = [
            ("anthropic", picture(3_932_160, 8_000, 10), true),
            ("anthropic", picture(3_932_161, 10, 10), false),
            ("anthropic", picture(10, 8_001, 10), false),
            ("groq", picture(10, 7_680, 4_320), true),
            ("groq", picture(10, 7_681, 4_320), false),
            ("somebody", picture(99 << 20, 99_999, 99_999), true),
        ];
        for (service, picture, taken) in table {
            let why = of(Some(service)).rejection_reason(&picture);
            assert_eq!(why.is_none(), taken, "{service}: {why:?}");
        }
    }

    #[test]
    fn a_request_holds_as_many_pictures_as_its_service_takes() {
        let claude = of(Some("anthropic"));
        assert_eq!(claude.pictures(Some(200_000)), 100);
        assert_eq!(claude.pictures(Some(1_000_000)), 600);
        assert_eq!((claude.side_of(20), claude.side_of(21)), (None, Some(2_000)));
        assert_eq!(of(Some("groq")).pictures(None), 5);
        assert_eq!(of(None).pictures(None), usize::MAX);
        assert_eq!(of(Some("groq")).bytes(), Some(2_949_120));
    }
}
