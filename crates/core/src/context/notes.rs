//! Notes for users on how a prompt differs from the stored messages.

use crate::model::{Content, Message, PromptNote, PromptNoteKind, message::StoredPart};

/// Notes on the pruned, truncated and summarized content of these messages, given as they are in the prompt.
pub fn notes(messages: &[Message]) -> Vec<PromptNote> {
    messages.iter().flat_map(of_message).collect()
}

fn of_message(message: &Message) -> impl Iterator<Item = PromptNote> {
    let note = |kind, part, text| PromptNote { kind, message: Some(message.id.clone()), part, text };
    let summary = message.is_summary.then(|| {
        note(PromptNoteKind::Compacted, None, "The message is a summary of the earlier conversation.".to_owned())
    });
    let parts = message.parts.iter().enumerate();
    let parts = parts.filter_map(move |(at, part)| of_part(part).map(|(kind, text)| note(kind, Some(at), text)));
    summary.into_iter().chain(parts)
}

/// A pruned result has no note on an earlier truncation.
fn of_part(StoredPart { part, size: _, estimator: _, pruned }: &StoredPart) -> Option<(PromptNoteKind, String)> {
    let Content::ToolResult(result) = &part.content else {
        return None;
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::testing,
        model::{BlobId, Seq, Truncation, message::Pruned},
    };

    #[test]
    fn render_notes_name_the_place_of_cleared_cut_and_summarised_parts() {
        let plain = testing::results(&[("look", "short")]);
        let mut cut = testing::results(&[("look", "short"), ("dig", "long ...")]);
        let truncation = Truncation {
            original_chars: 900,
            kept_chars: 8,
            full_output: BlobId::new("b"),
            full_bytes: 900,
            for_room: false,
        };
        if let Content::ToolResult(result) = &mut cut.parts[1].part.content {
            result.truncation = Some(truncation);
        }
        let mut cleared = cut.clone();
        cleared.parts[1].pruned = Some(Pruned { at: Seq(7), time: None, original_tokens: 90 });
        let summary = Message { is_summary: true, ..testing::user("So far: nothing.") };
        let table = [
            (plain, vec![]),
            (
                cut,
                vec![(
                    PromptNoteKind::Truncated,
                    Some(1),
                    "The result of dig had 900 characters, of which 8 were kept.",
                )],
            ),
            (cleared, vec![(PromptNoteKind::Pruned, Some(1), "The result of dig had 90 tokens and was cleared.")]),
            (summary, vec![(PromptNoteKind::Compacted, None, "The message is a summary of the earlier conversation.")]),
        ];
        for (message, expected) in table {
            let noted = notes(std::slice::from_ref(&message));
            let short: Vec<_> = noted.iter().map(|note| (note.kind, note.part, note.text.as_str())).collect();
            assert_eq!(short, expected);
            assert!(noted.iter().all(|note| note.message.as_ref() == Some(&message.id)));
        }
    }
}
