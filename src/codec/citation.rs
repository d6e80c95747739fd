//! Citations of a text, to and from their proto form.

use crate::{model::Citation, pb};

use super::{
    DecodeError,
    field::{Field as _, messages},
};

messages! {
    Citation = Citation {
        url,
        title,
        cited_text,
        start_byte,
        end_byte,
        provider_metadata = provider_metadata_json,
    }
}

/// Converts a citation for the wire.
pub(crate) fn to_pb(citation: &Citation) -> pb::Citation {
    citation.to_field()
}

/// Reads a citation that was sent or stored.
pub(crate) fn from_pb(citation: pb::Citation) -> Result<Citation, DecodeError> {
    Citation::from_field("citation", citation)
}
