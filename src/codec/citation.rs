//! Citations of a text, to and from their proto form.

use crate::model::Citation;

use super::field::messages;

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
