//! The state of writing a stored message in another API's format.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::model::{
    Contents, Media, Message, PromptNote, PromptNoteKind, Role, ToolOutcome,
    json::replace_lone_surrogates, media::Source, message::StoredPart,
};

/// A message that is being written.
#[derive(Debug)]
pub(in crate::provider) struct Exporter<'a> {
    message: &'a Message,
    contents: &'a Contents,
    notes: Vec<PromptNote>,
}

/// Where the content of a media part is.
#[derive(Debug)]
pub(in crate::provider) enum MediaLocation<'a> {
    /// Inline, in base64.
    Inline(String),
    Url(&'a str),
}

impl<'a> Exporter<'a> {
    pub(super) fn new(message: &'a Message, contents: &'a Contents) -> Self {
        Self {
            message,
            contents,
            notes: Vec::new(),
        }
    }

    /// The role of the message.
    pub(in crate::provider) fn role(&self) -> Role {
        self.message.role
    }

    /// The message.
    pub(in crate::provider) fn message(&self) -> &'a Message {
        self.message
    }

    /// The content of media parts.
    pub(in crate::provider) fn contents(&self) -> &'a Contents {
        self.contents
    }

    /// The parts with their positions.
    pub(in crate::provider) fn parts(
        &self,
    ) -> impl Iterator<Item = (usize, &'a StoredPart)> + use<'a> {
        self.message.parts.iter().enumerate()
    }

    /// Where the content of a media part is. Returns `None`, with a note, if the content is not
    /// available.
    pub(in crate::provider) fn media_location(
        &mut self,
        part: usize,
        media: &'a Media,
    ) -> Option<MediaLocation<'a>> {
        self.check_content(part, media);
        match &media.source {
            Source::Url(url) => Some(MediaLocation::Url(url)),
            Source::Blob(kept) => {
                let content = self.contents.get(&kept.id)?;
                Some(MediaLocation::Inline(STANDARD.encode(content)))
            }
        }
    }

    /// Notes a media part whose content is not available.
    pub(in crate::provider) fn check_content(&mut self, part: usize, media: &Media) {
        let kept = media.blob();
        if let Some(kept) = kept.filter(|kept| self.contents.get(&kept.id).is_none()) {
            let why = format!(
                "The content of {} is not included: read the blob {} with GetBlob.",
                media.title(),
                kept.id
            );
            self.note(PromptNoteKind::Unsupported, part, why);
        }
    }

    /// The URL of a media part: a `data:` URL if the content is stored. Returns `None`, with a
    /// note, if the content is not available.
    pub(in crate::provider) fn media_url(
        &mut self,
        part: usize,
        media: &'a Media,
    ) -> Option<String> {
        Some(match self.media_location(part, media)? {
            MediaLocation::Inline(data) => format!("data:{};base64,{data}", media.essence()),
            MediaLocation::Url(url) => url.to_owned(),
        })
    }

    /// Notes a media part in an assistant message, for a format whose assistant messages have none.
    pub(in crate::provider) fn note_unsupported_media(&mut self, part: usize, media: &Media) {
        let place = match &media.source {
            Source::Url(url) => url.clone(),
            Source::Blob(kept) => format!("blob {}", kept.id),
        };
        let why = format!(
            "The format does not support {} in a response: see {place}.",
            media.title()
        );
        self.note(PromptNoteKind::Unsupported, part, why);
    }

    /// Notes an item that only another service can read.
    pub(in crate::provider) fn note_unsupported_item(&mut self, part: usize) {
        self.note(
            PromptNoteKind::Dropped,
            part,
            "The format does not support the item.",
        );
    }

    /// Notes reasoning of which nothing is written.
    pub(in crate::provider) fn note_hidden_reasoning(&mut self, part: usize) {
        self.note(
            PromptNoteKind::Dropped,
            part,
            "The format does not support hidden reasoning.",
        );
    }

    /// Notes reasoning whose signature belongs to another service and is not written.
    pub(in crate::provider) fn note_unsupported_signature(&mut self, part: usize) {
        self.note(
            PromptNoteKind::Dropped,
            part,
            "The format does not support the signature of the reasoning.",
        );
    }

    /// Notes arguments that are not a JSON object, for a format that accepts only objects.
    pub(in crate::provider) fn note_invalid_arguments(&mut self, part: usize) {
        self.note(
            PromptNoteKind::Unsupported,
            part,
            "The arguments are not a JSON object and are replaced with {}.",
        );
    }

    /// Notes the outcome of a call, for a format without a field for it.
    pub(in crate::provider) fn note_unsupported_outcome(
        &mut self,
        part: usize,
        outcome: ToolOutcome,
    ) {
        let ended = match outcome {
            ToolOutcome::Success => return,
            ToolOutcome::Error => "with an error",
            ToolOutcome::Denied => "denied",
            ToolOutcome::TimedOut => "with a timeout",
            ToolOutcome::Cancelled => "cancelled",
        };
        let why = format!("The format has no field for the outcome of the call: it ended {ended}.");
        self.note(PromptNoteKind::Unsupported, part, why);
    }

    fn note(&mut self, kind: PromptNoteKind, part: usize, text: impl Into<String>) {
        self.notes.push(PromptNote {
            kind,
            message: Some(self.message.id.clone()),
            part: Some(part),
            text: text.into(),
        });
    }

    pub(super) fn finish(self) -> Vec<PromptNote> {
        self.notes
    }
}

/// Stored JSON with unpaired surrogates replaced. Returns `None` if it is invalid.
pub(in crate::provider) fn raw(json: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(replace_lone_surrogates(json).into_owned()).ok()
}

pub(in crate::provider) fn plain(value: &Value) -> Box<RawValue> {
    to_raw_value(value).expect("a value is JSON")
}
