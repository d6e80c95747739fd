//! Citations of a text, to and from their proto form.

use crate::{model::Citation, pb};

use super::{DecodeError, number};

/// Converts a citation for the wire.
pub(crate) fn to_pb(citation: &Citation) -> pb::Citation {
    let Citation {
        url,
        title,
        cited_text,
        start_byte,
        end_byte,
        provider_metadata,
    } = citation;
    pb::Citation {
        url: url.clone(),
        title: title.clone(),
        cited_text: cited_text.clone(),
        start_byte: number::signed(*start_byte),
        end_byte: number::signed(*end_byte),
        provider_metadata_json: provider_metadata.clone().unwrap_or_default(),
    }
}

/// Reads a citation that was sent or stored.
pub(crate) fn from_pb(citation: pb::Citation) -> Result<Citation, DecodeError> {
    let pb::Citation {
        url,
        title,
        cited_text,
        start_byte,
        end_byte,
        provider_metadata_json,
    } = citation;
    Ok(Citation {
        url,
        title,
        cited_text,
        start_byte: number::unsigned("start_byte", start_byte)?,
        end_byte: number::unsigned("end_byte", end_byte)?,
        provider_metadata: Some(provider_metadata_json).filter(|json| !json.is_empty()),
    })
}
