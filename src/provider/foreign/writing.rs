//! A stored message that is being written in another API's shape.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::model::{
    Contents, Media, Message, PromptNote, PromptNoteKind, Role, ToolOutcome, json::sound,
    media::Source, message::StoredPart,
};

/// A message that is being written.
#[derive(Debug)]
pub(in crate::provider) struct Writing<'a> {
    message: &'a Message,
    contents: &'a Contents,
    notes: Vec<PromptNote>,
}

/// Where the content of a medium is.
#[derive(Debug)]
pub(in crate::provider) enum Place<'a> {
    /// Here, in base64.
    Here(String),
    /// At this address.
    At(&'a str),
}

impl<'a> Writing<'a> {
    pub(super) fn new(message: &'a Message, contents: &'a Contents) -> Self {
        Self {
            message,
            contents,
            notes: Vec::new(),
        }
    }

    /// Who speaks.
    pub(in crate::provider) fn role(&self) -> Role {
        self.message.role
    }

    /// The message.
    pub(in crate::provider) fn message(&self) -> &'a Message {
        self.message
    }

    /// The content of media.
    pub(in crate::provider) fn contents(&self) -> &'a Contents {
        self.contents
    }

    /// The parts with their positions.
    pub(in crate::provider) fn parts(
        &self,
    ) -> impl Iterator<Item = (usize, &'a StoredPart)> + use<'a> {
        self.message.parts.iter().enumerate()
    }

    /// The content of a medium. `None`, with a note, where it is not to be written.
    pub(in crate::provider) fn place(
        &mut self,
        part: usize,
        media: &'a Media,
    ) -> Option<Place<'a>> {
        self.check_content(part, media);
        match &media.source {
            Source::Url(url) => Some(Place::At(url)),
            Source::Blob(kept) => {
                let content = self.contents.get(&kept.id)?;
                Some(Place::Here(STANDARD.encode(content)))
            }
        }
    }

    /// Notes a medium whose content is not to be written.
    pub(in crate::provider) fn check_content(&mut self, part: usize, media: &Media) {
        let kept = media.kept();
        if let Some(kept) = kept.filter(|kept| self.contents.get(&kept.id).is_none()) {
            let why = format!(
                "The content of {} is not written here: read the blob {} with GetBlob.",
                media.title(),
                kept.id
            );
            self.note(PromptNoteKind::Unsupported, part, why);
        }
    }

    /// The address of a medium, which holds its content where that is stored.
    pub(in crate::provider) fn address(&mut self, part: usize, media: &'a Media) -> Option<String> {
        Some(match self.place(part, media)? {
            Place::Here(data) => format!("data:{};base64,{data}", media.essence()),
            Place::At(url) => url.to_owned(),
        })
    }

    /// Notes a medium that the model shows, in a shape in which answers have none.
    pub(in crate::provider) fn no_medium(&mut self, part: usize, media: &Media) {
        let place = match &media.source {
            Source::Url(url) => url.clone(),
            Source::Blob(kept) => format!("the blob {}", kept.id),
        };
        let why = format!(
            "The shape has no form for {} in an answer: see {place}.",
            media.title()
        );
        self.note(PromptNoteKind::Unsupported, part, why);
    }

    /// Notes an item that only another service reads.
    pub(in crate::provider) fn no_item(&mut self, part: usize) {
        self.note(
            PromptNoteKind::Dropped,
            part,
            "The shape has no form for the item.",
        );
    }

    /// Notes reasoning of which nothing is written.
    pub(in crate::provider) fn no_reasoning(&mut self, part: usize) {
        self.note(
            PromptNoteKind::Dropped,
            part,
            "The shape has no form for the hidden reasoning.",
        );
    }

    /// Notes reasoning whose proof is another service's, and is not written.
    pub(in crate::provider) fn no_proof(&mut self, part: usize) {
        self.note(
            PromptNoteKind::Dropped,
            part,
            "The shape has no form for the signature of the reasoning.",
        );
    }

    /// Notes arguments that are no JSON object, where the shape has a form for those only.
    pub(in crate::provider) fn no_arguments(&mut self, part: usize) {
        self.note(
            PromptNoteKind::Unsupported,
            part,
            "The arguments are no JSON object: {} is written in their place.",
        );
    }

    /// Notes how a call ended, where the shape has no field for that.
    pub(in crate::provider) fn no_outcome(&mut self, part: usize, outcome: ToolOutcome) {
        let ended = match outcome {
            ToolOutcome::Success => return,
            ToolOutcome::Error => "with an error",
            ToolOutcome::Denied => "denied",
            ToolOutcome::TimedOut => "without a result in time",
            ToolOutcome::Cancelled => "cancelled",
        };
        let why = format!("The shape has no field for it: the call ended {ended}.");
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

/// JSON as it is kept, halves of characters replaced. `None` if it is none.
pub(in crate::provider) fn raw(json: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(sound(json).into_owned()).ok()
}

/// A value as JSON.
pub(in crate::provider) fn plain(value: &Value) -> Box<RawValue> {
    to_raw_value(value).expect("a value is JSON")
}
