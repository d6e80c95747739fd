//! What a prompt does not show as it is stored, in words.

use crate::model::{Content, Message, PromptNote, PromptNoteKind, message::StoredPart};

/// What was cleared, cut or summarised of these messages, as the model sees them.
pub fn notes(messages: &[Message]) -> Vec<PromptNote> {
    messages.iter().flat_map(of_message).collect()
}

fn of_message(message: &Message) -> impl Iterator<Item = PromptNote> {
    let note = |kind, part, text| PromptNote { kind, message: Some(message.id.clone()), part, text };
    let summary = message.is_summary.then(|| {
        note(
            PromptNoteKind::Compacted,
            None,
            "The message is a summary that stands for what was said before.".to_owned(),
        )
    });
    let parts = message.parts.iter().enumerate();
    let parts = parts.filter_map(move |(at, part)| of_part(part).map(|(kind, text)| note(kind, Some(at), text)));
    summary.into_iter().chain(parts)
}

/// A result that was cleared shows nothing of how it was cut before.
fn of_part(StoredPart { part, size: _, estimator: _, pruned }: &StoredPart) -> Option<(PromptNoteKind, String)> {
    let Content::ToolResult(result) = &part.content else { return None };
    match (pruned, &result.truncation) {
        (Some(pruned), _) => Some((
            PromptNoteKind::Pruned,
            format!("The result of {} had {} tokens and was cleared.", result.name, pruned.original_tokens),
        )),
        (None, Some(cut)) => Some((
            PromptNoteKind::Truncated,
            format!(
                "The result of {} had {} characters, of which {} were kept.",
                result.name, cut.original_chars, cut.kept_chars
            ),
        )),
        (None, None) => None,
    }
}
