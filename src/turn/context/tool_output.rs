//! Truncates tool results to their limits, and keeps the full output as a blob.

use std::collections::BTreeSet;

use crate::{
    context::truncate::{join, truncate_texts},
    model::{BlobId, OutputLimits, OutputPart, SessionKey, ToolResult, Truncation, derive},
    store::Store,
    turn::Error,
};

/// The media type of full outputs that are stored as blobs.
const OUTPUT_TYPE: &str = "text/plain; charset=utf-8";

/// Truncates the texts of a result to its limits; media stay complete. The full text is stored
/// first, so that no row refers to a missing blob.
pub(in crate::turn) async fn cut(
    store: &Store,
    key: &SessionKey,
    result: &mut ToolResult,
    limits: &OutputLimits,
) -> Result<(), Error> {
    let texts: Vec<String> = result.texts().map(str::to_owned).collect();
    let cut = truncate_texts(&texts, limits);
    if !cut.truncated {
        return Ok(());
    }
    let whole = join(&texts);
    let id: BlobId = derive::blob(whole.as_bytes());
    store.put_blob(&key.tenant, &id, OUTPUT_TYPE, whole.as_bytes()).await?;
    let full_bytes = u64::try_from(whole.len()).unwrap_or(u64::MAX);
    result.truncation = Some(Truncation {
        original_chars: cut.original_chars,
        kept_chars: cut.kept_chars,
        full_output: id,
        full_bytes,
        for_room: false,
    });
    replace_texts(result, cut.texts);
    Ok(())
}

/// The distinct blobs that a result refers to: its full output, if it was truncated, and its media.
pub(in crate::turn) fn blobs_of(result: &ToolResult) -> Vec<BlobId> {
    let whole = result.truncation.as_ref().map(|truncation| &truncation.full_output);
    let media = result.media().filter_map(|media| media.blob()).map(|kept| &kept.id);
    let all: BTreeSet<&BlobId> = whole.into_iter().chain(media).collect();
    all.into_iter().cloned().collect()
}

/// Replaces the texts of a result, at the position of the first text. Media keep their order.
fn replace_texts(result: &mut ToolResult, texts: Vec<String>) {
    let first = result.parts.iter().position(|given| given.text().is_some()).unwrap_or(0);
    result.parts.retain(|given| given.media().is_some());
    result.parts.splice(first..first, texts.into_iter().map(OutputPart::Text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::testing::picture;
    use crate::model::{CallId, ToolOutcome};

    fn result(parts: Vec<OutputPart>) -> ToolResult {
        let call = CallId::new("c");
        let name = "look".to_owned();
        ToolResult { call, name, parts, outcome: ToolOutcome::Success, truncation: None, display_text: String::new() }
    }

    /// Row D4
    #[test]
    fn result_texts_are_truncated_and_media_kept_in_place() {
        let table = [
            (
                vec![picture("a"), "long".into(), picture("b"), "longer".into()],
                vec![picture("a"), "cut".into(), picture("b")],
            ),
            (vec!["long".into(), "longer".into()], vec!["cut".into()]),
            (vec!["long".into(), picture("a")], vec!["cut".into(), picture("a")]),
        ];
        for (parts, expected) in table {
            let mut result = result(parts);
            replace_texts(&mut result, vec!["cut".to_owned()]);
            assert_eq!(result.parts, expected);
        }
    }

    #[test]
    fn a_result_refers_to_each_of_its_blobs_once() {
        let shown = result(vec![picture("b"), "text".into(), picture("a"), picture("b")]);
        assert_eq!(blobs_of(&shown), [BlobId::new("a"), BlobId::new("b")]);
        assert_eq!(blobs_of(&result(vec!["text".into()])), [] as [BlobId; 0]);
    }
}
