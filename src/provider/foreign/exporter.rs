//! The state of writing a stored message in another API's format.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json, value::RawValue};

use crate::{
    model::{
        Contents, Media, Message, Part, PromptNote, PromptNoteKind, ProviderItem, ToolCall, ToolOutcome, ToolResult,
        json::replace_lone_surrogates, media::Source, message::StoredPart,
    },
    provider::{
        body::{Body, plain},
        inputs::{self, Input},
    },
};

/// A message that is being written.
#[derive(Debug)]
pub(crate) struct Exporter<'a> {
    pub(crate) message: &'a Message,
    /// The content of media parts.
    pub(crate) contents: &'a Contents,
    notes: Vec<PromptNote>,
}

/// Where the content of a media part is.
#[derive(Debug)]
pub(crate) enum MediaLocation<'a> {
    /// Inline, in base64.
    Inline(String),
    Url(&'a str),
}

impl MediaLocation<'_> {
    /// The URL: a `data:` URL if the content is inline.
    pub(crate) fn url(self, media: &Media) -> String {
        match self {
            Self::Inline(data) => format!("data:{};base64,{data}", media.essence()),
            Self::Url(url) => url.to_owned(),
        }
    }
}

impl<'a> Exporter<'a> {
    pub(super) fn new(message: &'a Message, contents: &'a Contents) -> Self {
        Self { message, contents, notes: Vec::new() }
    }

    /// The parts with their positions.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, &'a StoredPart)> + use<'a> {
        self.message.parts.iter().enumerate()
    }

    /// The texts that are not empty and the media of a user or system message, with the positions of
    /// their parts.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (usize, Input<'a>)> + use<'a> {
        let parts = self.parts();
        parts.filter_map(|(position, it)| Some((position, inputs::of(&it.part.content)?)))
    }

    /// The tool results with the positions of their parts.
    pub(crate) fn results(&self) -> impl Iterator<Item = (usize, &'a ToolResult)> + use<'a> {
        let parts = self.parts();
        parts.filter_map(|(position, it)| Some((position, it.part.content.as_result()?)))
    }

    /// The JSON of an item that this format can express. Returns `None`, with a note, for others.
    pub(crate) fn item(&mut self, part: usize, item: &ProviderItem, is_known: bool) -> Option<Box<RawValue>> {
        let json = is_known.then(|| raw(&item.json)).flatten();
        if json.is_none() {
            self.note(PromptNoteKind::Dropped, part, "The format does not support the item.");
        }
        json
    }

    /// The arguments of a call, for a format that accepts only objects. Others are noted.
    pub(crate) fn object_arguments(&mut self, part: usize, call: &ToolCall) -> Box<RawValue> {
        if !call.has_object() {
            let why = "The arguments are not a JSON object and are replaced with {}.";
            self.note(PromptNoteKind::Unsupported, part, why);
        }
        let arguments = raw(&call.arguments).filter(|_| call.has_object());
        arguments.unwrap_or_else(|| plain(&json!({})))
    }

    /// Whether there is anything to write of reasoning, which `is_signed` in this format. Notes what
    /// is not written.
    pub(crate) fn has_reasoning(&mut self, position: usize, part: &Part, text: &str, is_signed: bool) -> bool {
        if !is_signed && text.is_empty() {
            self.note_hidden_reasoning(position);
            return false;
        }
        if !is_signed && part.provider_metadata.is_some() {
            self.note_unsupported_signature(position);
        }
        true
    }

    /// Where the content of a media part is. Returns `None`, with a note, if the content is not
    /// available.
    pub(crate) fn media_location(&mut self, part: usize, media: &'a Media) -> Option<MediaLocation<'a>> {
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
    pub(crate) fn check_content(&mut self, part: usize, media: &Media) {
        let kept = media.blob();
        if let Some(kept) = kept.filter(|kept| self.contents.get(&kept.id).is_none()) {
            let why =
                format!("The content of {} is not included: read the blob {} with GetBlob.", media.title(), kept.id);
            self.note(PromptNoteKind::Unsupported, part, why);
        }
    }

    /// The URL of a media part: a `data:` URL if the content is stored. Returns `None`, with a
    /// note, if the content is not available.
    pub(crate) fn media_url(&mut self, part: usize, media: &'a Media) -> Option<String> {
        Some(self.media_location(part, media)?.url(media))
    }

    /// Notes a media part in an assistant message, for a format whose assistant messages have none.
    pub(crate) fn note_unsupported_media(&mut self, part: usize, media: &Media) {
        let place = match &media.source {
            Source::Url(url) => url.clone(),
            Source::Blob(kept) => format!("blob {}", kept.id),
        };
        let why = format!("The format does not support {} in a response: see {place}.", media.title());
        self.note(PromptNoteKind::Unsupported, part, why);
    }

    /// Notes reasoning of which nothing is written.
    pub(crate) fn note_hidden_reasoning(&mut self, part: usize) {
        let why = "The format does not support hidden reasoning.";
        self.note(PromptNoteKind::Dropped, part, why);
    }

    /// Notes reasoning whose signature belongs to another service and is not written.
    pub(crate) fn note_unsupported_signature(&mut self, part: usize) {
        let why = "The format does not support the signature of the reasoning.";
        self.note(PromptNoteKind::Dropped, part, why);
    }

    /// Whether a call failed, for a format that states only this. Other outcomes are noted.
    pub(crate) fn has_failed(&mut self, part: usize, outcome: ToolOutcome) -> bool {
        match outcome {
            ToolOutcome::Success => false,
            ToolOutcome::Error => true,
            ToolOutcome::Denied | ToolOutcome::TimedOut | ToolOutcome::Cancelled => {
                self.note_unsupported_outcome(part, outcome);
                outcome == ToolOutcome::Denied
            }
        }
    }

    /// Notes the outcome of a call, for a format without a field for it.
    pub(crate) fn note_unsupported_outcome(&mut self, part: usize, outcome: ToolOutcome) {
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

/// A message with a role and the elements of its content under `name`. Empty if it has none.
pub(crate) fn message(role: &str, name: &str, content: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
    if content.is_empty() {
        return Vec::new();
    }
    let mut message = Body::default();
    message.set("role", role);
    message.set(name, content);
    vec![message.raw()]
}

/// A media part with the name of its file under `key`, if it has one.
pub(crate) fn named(mut part: Value, key: &str, media: &Media) -> Value {
    if !media.filename.is_empty() {
        part[key] = json!(media.filename);
    }
    part
}

/// The sources of a text that a service wrote, of the types for which `is_known` returns true.
pub(crate) fn sources(part: &Part, is_known: impl Fn(&str) -> bool) -> Vec<Box<RawValue>> {
    let written = part.citations.iter().filter_map(|citation| {
        let json = citation.provider_metadata.as_deref()?;
        let value: Value = serde_json::from_str(json).ok()?;
        is_known(value.get("type")?.as_str()?).then(|| raw(json))?
    });
    written.collect()
}

/// Stored JSON with unpaired surrogates replaced. Returns `None` if it is invalid.
pub(crate) fn raw(json: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(replace_lone_surrogates(json).into_owned()).ok()
}
