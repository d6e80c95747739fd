//! Media, to and from their proto form.

use crate::{
    model::{
        Media,
        media::{BlobRef, Pixels, Source},
    },
    pb,
};

use super::{
    DecodeError,
    field::Field,
    number::{signed, unsigned},
};

/// The same form is sent, and stored in queued messages and tool results.
impl Field<pb::Media> for Media {
    fn to_field(&self) -> pb::Media {
        let Self { media_type, source, filename } = self;
        let kept = self.blob();
        let pixels = kept.and_then(|kept| kept.pixels);
        pb::Media {
            media_type: media_type.clone(),
            source: Some(match source {
                Source::Blob(kept) => pb::media::Source::BlobId(kept.id.to_string()),
                Source::Url(url) => pb::media::Source::Url(url.clone()),
            }),
            filename: filename.clone(),
            size_bytes: kept.map_or(0, |kept| kept.bytes.to_field()),
            width: pixels.map_or(0, |pixels| signed(pixels.width.get())),
            height: pixels.map_or(0, |pixels| signed(pixels.height.get())),
        }
    }

    fn from_field(name: &'static str, media: pb::Media) -> Result<Self, DecodeError> {
        let pb::Media { media_type, source, filename, size_bytes, width, height } = media;
        let source = match source {
            Some(pb::media::Source::BlobId(id)) => Source::Blob(BlobRef {
                id: Field::from_field("blob_id", id)?,
                bytes: Field::from_field("size_bytes", size_bytes)?,
                pixels: Pixels::new(unsigned("width", width)?, unsigned("height", height)?),
            }),
            Some(pb::media::Source::Url(url)) => Source::Url(url),
            Some(pb::media::Source::Data(_)) | None => {
                return Err(DecodeError::new(name, "its source is missing"));
            }
        };
        Ok(Self { media_type, source, filename })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{arbitrary, field::round_trip};

    proptest! {
        #[test]
        fn media_round_trip(media in arbitrary::media()) {
            prop_assert_eq!(round_trip::<_, pb::Media>(&media), Ok(media));
        }
    }

    #[test]
    fn media_content_is_never_stored_in_a_part() {
        let data = pb::Media { source: Some(pb::media::Source::Data(vec![1])), ..pb::Media::default() };
        for media in [data, pb::Media::default()] {
            assert!(Media::from_field("media", media).is_err());
        }
    }
}
