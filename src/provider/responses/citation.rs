//! Converts annotations of a text to citations.

use serde_json::value::RawValue;

use super::wire::Annotation;
use crate::{
    model::Citation,
    provider::http::lenient::{self, LenientString, Number},
};

/// The citation for an annotation. `text` is the text at its position; the part that it belongs to
/// starts at byte `part_begins` of it.
pub(super) fn citation(raw: &RawValue, text: &str, part_begins: usize) -> Citation {
    let annotation: Annotation = lenient::read(raw);
    let word = |word: Option<LenientString>| word.unwrap_or_default().0;
    // A text is stored without NUL.
    let text = text.replace('\0', "\u{fffd}");
    let byte = |index: Option<Number>| {
        let chars = usize::try_from(index.and_then(|index| index.0)?).ok()?;
        let byte = text.char_indices().nth(chars).map_or(text.len(), |it| it.0);
        u32::try_from(byte.saturating_sub(part_begins)).ok()
    };
    let range = byte(annotation.start_index).zip(byte(annotation.end_index));
    let point = || byte(annotation.index).map(|byte| (byte, byte));
    let range = range.or_else(point).filter(|(start, end)| start <= end);
    let (start_byte, end_byte) = range.unwrap_or_default();
    Citation {
        url: word(annotation.url),
        title: word(annotation.title.or(annotation.filename)),
        start_byte,
        end_byte,
        provider_metadata: Some(raw.get().to_owned()),
        ..Citation::default()
    }
}
