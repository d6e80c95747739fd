//! Media, to and from their proto form.

use crate::{
    model::{
        BlobId, Media,
        media::{BlobRef, Pixels, Source},
    },
    pb,
};

use super::{
    DecodeError,
    number::{signed, unsigned},
};

/// Converts media for the wire. The same form is stored in queued messages and tool results.
pub fn to_pb(media: &Media) -> pb::Media {
    let Media {
        media_type,
        source,
        filename,
    } = media;
    let kept = media.blob();
    let pixels = kept.and_then(|kept| kept.pixels);
    pb::Media {
        media_type: media_type.clone(),
        source: Some(match source {
            Source::Blob(kept) => pb::media::Source::BlobId(kept.id.to_string()),
            Source::Url(url) => pb::media::Source::Url(url.clone()),
        }),
        filename: filename.clone(),
        size_bytes: kept.map_or(0, |kept| i64::try_from(kept.bytes).unwrap_or(i64::MAX)),
        width: pixels.map_or(0, |pixels| signed(pixels.width.get())),
        height: pixels.map_or(0, |pixels| signed(pixels.height.get())),
    }
}

/// Reads stored media.
pub fn from_pb(media: pb::Media) -> Result<Media, DecodeError> {
    let pb::Media {
        media_type,
        source,
        filename,
        size_bytes,
        width,
        height,
    } = media;
    let source = match source {
        Some(pb::media::Source::BlobId(id)) => Source::Blob(BlobRef {
            id: BlobId::new(id),
            bytes: u64::try_from(size_bytes)
                .map_err(|error| DecodeError::new("media part", error))?,
            pixels: Pixels::new(unsigned("width", width)?, unsigned("height", height)?),
        }),
        Some(pb::media::Source::Url(url)) => Source::Url(url),
        Some(pb::media::Source::Data(_)) | None => {
            return Err(DecodeError::new("media part", "its source is missing"));
        }
    };
    Ok(Media {
        media_type,
        source,
        filename,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::arbitrary;

    proptest! {
        #[test]
        fn media_round_trip(media in arbitrary::media()) {
            prop_assert_eq!(from_pb(to_pb(&media)), Ok(media));
        }
    }

    #[test]
    fn media_content_is_never_stored_in_a_part() {
        let data = pb::Media {
            source: Some(pb::media::Source::Data(vec![1])),
            ..pb::Media::default()
        };
        for media in [data, pb::Media::default()] {
            assert!(from_pb(media).is_err());
        }
    }
}
