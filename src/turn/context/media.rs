//! Media of a turn: content is stored before a row refers to it, and read when a prompt contains
//! it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    context::{
        media::{Replaced, leave_out},
        picture_size,
    },
    model::{
        BlobId, ClosedTranscript, Content, Contents, Media, Message, NewContent, Part, Payload, PromptNote,
        PromptNoteKind, Role, TenantId, Transcript,
        event::UnsupportedPart,
        media::{BlobRef, Kind, OmittedMedia, Source},
    },
    provider::{media_limits, registry::ResolvedModel},
    store::blob::FirstChunk,
    turn::{
        Error,
        engine::{Prompts, SessionCommands},
    },
};

/// Note for a medium that exceeds the prompt's limit of media bytes.
const NO_ROOM: &str = "With it, the media in the prompt would exceed their maximum size.";

/// Note for a picture that exceeds the service's limits on pictures per request.
const TOO_MANY: &str = "The request is at the service's limit of pictures without it.";

/// The media of a prompt: the content that is sent, and what was replaced by notes.
#[derive(Debug, Default)]
pub(in crate::turn) struct PromptMedia {
    contents: Contents,
    replaced: Vec<Replaced>,
}

impl PromptMedia {
    /// The content of the last prompt's media.
    pub(in crate::turn) fn contents(&self) -> Contents {
        self.contents.clone()
    }

    /// Frees the content. The next prompt reads it again.
    pub(in crate::turn) fn release_contents(&mut self) {
        self.contents = Contents::default();
    }

    /// The events for media that the last prompt left out and the ones before did not.
    pub(in crate::turn) fn take_events(&mut self, model: &ResolvedModel) -> Vec<Payload> {
        let event = |Replaced { left_out, is_new: _ }| {
            Payload::UnsupportedPart(UnsupportedPart {
                left_out,
                provider: model.provider_name.clone(),
                model: model.reference.clone(),
            })
        };
        std::mem::take(&mut self.replaced).into_iter().filter(|it| it.is_new).map(event).collect()
    }

    /// The notes of the last prompt.
    pub(in crate::turn) fn notes(&self) -> Vec<PromptNote> {
        self.replaced.iter().map(|it| note(&it.left_out)).collect()
    }
}

/// The media that a prompt contains, with their bytes, and those that exceed the service's limits.
#[derive(Debug, Default)]
struct Wanted {
    contents: BTreeMap<BlobId, u64>,
    too_many: BTreeSet<BlobId>,
}

impl Wanted {
    /// Why a medium is left out. Returns `None` if it is sent.
    fn leaves_out(&self, media: &Media) -> Option<String> {
        let id = &media.blob()?.id;
        let why = if self.too_many.contains(id) {
            TOO_MANY
        } else if self.contents.contains_key(id) {
            return None;
        } else {
            NO_ROOM
        };
        Some(why.to_owned())
    }
}

impl Prompts {
    /// The stored metadata of these blobs, without those that do not exist. Blobs are not swept
    /// while a request is in progress.
    pub async fn stored(&self, tenant: &TenantId, named: &[BlobId]) -> Result<BTreeMap<BlobId, BlobRef>, Error> {
        let known = |FirstChunk { id, bytes, chunk: beginning }| {
            let pixels = picture_size::pixels(&beginning);
            (BlobId::clone(&id), BlobRef { id, bytes, pixels })
        };
        Ok(self.store.first_chunks(tenant, named).await?.into_iter().map(known).collect())
    }

    /// Prepares a transcript for the model: reads the content of the media that it accepts, and
    /// replaces the others by notes. Content that is already `carried` is not read again.
    pub(in crate::turn) async fn load_media(
        &self,
        tenant: &TenantId,
        model: &ResolvedModel,
        transcript: ClosedTranscript,
        carried: &mut PromptMedia,
    ) -> Result<ClosedTranscript, Error> {
        if transcript.messages().iter().all(|message| message.media().next().is_none()) {
            return Ok(transcript);
        }
        let mut messages = transcript.into_messages();
        let wanted = newest(&messages, model, self.rules.blobs.max_prompt_bytes);
        carried.contents.retain(|id| wanted.contents.contains_key(id));
        let mut lost = Vec::new();
        for (id, bytes) in &wanted.contents {
            if carried.contents.get(id).is_some() {
                continue;
            }
            match self.content(tenant, id, *bytes).await? {
                Some(content) => carried.contents.insert(id.clone(), content),
                None => lost.push(id),
            }
        }
        let refused = |media: &Media, role| {
            let kept = media.blob();
            let is_lost = kept.is_some_and(|kept| lost.contains(&&kept.id));
            cannot_read(model, media, role)
                .or_else(|| wanted.leaves_out(media))
                .or_else(|| is_lost.then(|| "Its content is lost.".to_owned()))
        };
        carried.replaced = leave_out(&mut messages, &model.reference, refused);
        closed(messages)
    }

    /// Bytes of the media that a prompt of these messages contains.
    pub(in crate::turn) fn media_bytes(&self, messages: &[Message], model: &ResolvedModel) -> u64 {
        let wanted = newest(messages, model, self.rules.blobs.max_prompt_bytes);
        wanted.contents.values().sum()
    }

    /// The transcript with the content of the media that the model accepts.
    pub(in crate::turn) async fn contents(
        &self,
        tenant: &TenantId,
        model: &ResolvedModel,
        transcript: ClosedTranscript,
        own: &[NewContent],
    ) -> Result<(ClosedTranscript, PromptMedia), Error> {
        let mut carried = PromptMedia::default();
        for content in own {
            carried.contents.insert(content.id().clone(), content.bytes().into());
        }
        let transcript = self.load_media(tenant, model, transcript, &mut carried).await?;
        Ok((transcript, carried))
    }

    /// Like [`Prompts::contents`], without the content.
    pub(in crate::turn) fn references(
        &self,
        model: &ResolvedModel,
        transcript: ClosedTranscript,
    ) -> Result<(ClosedTranscript, PromptMedia), Error> {
        let mut messages = transcript.into_messages();
        let wanted = newest(&messages, model, self.rules.blobs.max_prompt_bytes);
        let refused = |media: &Media, role| cannot_read(model, media, role).or_else(|| wanted.leaves_out(media));
        let replaced = leave_out(&mut messages, &model.reference, refused);
        Ok((closed(messages)?, PromptMedia { contents: Contents::default(), replaced }))
    }

    /// The content of a blob. Returns `None` if it does not exist, or does not have the expected
    /// length.
    pub(in crate::turn) async fn content(
        &self,
        tenant: &TenantId,
        id: &BlobId,
        bytes: u64,
    ) -> Result<Option<Arc<[u8]>>, Error> {
        let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
        while (content.len() as u64) < bytes {
            let piece = self.store.blob_piece(tenant, id, content.len() as u64).await?;
            if piece.is_empty() {
                tracing::error!(blob.id = %id, "a message refers to a missing blob");
                return Ok(None);
            }
            content.extend(piece);
        }
        Ok(Some(content.into()))
    }
}

impl SessionCommands {
    /// Stores the content of a request. If the request is refused later, its content stays
    /// unreferenced and is swept.
    pub(in crate::turn) async fn keep(&self, tenant: &TenantId, contents: &[NewContent]) -> Result<(), Error> {
        if !contents.is_empty() {
            self.capacity.quotas.check_storage(tenant)?;
        }
        for content in contents {
            self.store.put_blob(tenant, content.id(), content.media_type(), content.bytes()).await?;
        }
        Ok(())
    }

    /// Stores the pictures that a model generated, and records their size in the parts. If the
    /// tenant may store no more, notes replace them: a response that was paid for must not be lost.
    pub(in crate::turn) async fn keep_made(
        &self,
        tenant: &TenantId,
        parts: &mut [Part],
        made: &[NewContent],
    ) -> Result<(), Error> {
        let kept = match self.keep(tenant, made).await {
            Ok(()) => true,
            Err(error @ Error::Store(_)) => return Err(error),
            Err(error) => {
                tracing::warn!(%tenant, %error, "failed to store pictures of a response");
                false
            }
        };
        for part in parts {
            let Content::Media(media) = &mut part.content else {
                continue;
            };
            let Source::Blob(blob) = &mut media.source else {
                continue;
            };
            if kept {
                let content = made.iter().find(|content| *content.id() == blob.id);
                blob.pixels = content.and_then(|it| picture_size::pixels(it.bytes()));
            } else {
                let words = format!("[{} left out: no room to store it]", media.media_type);
                *part = Part::text(words);
            }
        }
        Ok(())
    }
}

/// Why a medium is not sent to a model. Returns `None` if it is sent.
pub(in crate::turn) fn cannot_read(model: &ResolvedModel, media: &Media, role: Role) -> Option<String> {
    model
        .provider
        .unsupported_media(&model.info, media, role)
        .or_else(|| media_limits::of(model.provider.service()).rejection_reason(media))
}

/// Closes the transcript again. Only media were replaced, so that calls and results still match.
fn closed(messages: Vec<Message>) -> Result<ClosedTranscript, Error> {
    Transcript::new(messages).close().map_err(|error| Error::Internal(error.to_string()))
}

fn note(left_out: &OmittedMedia) -> PromptNote {
    let OmittedMedia { message, part, media_type, filename, why } = left_out;
    let name = if filename.is_empty() { "A part".to_owned() } else { filename.clone() };
    PromptNote {
        kind: PromptNoteKind::Unsupported,
        message: Some(message.clone()),
        part: Some(*part),
        text: format!("{name} ({media_type}) is not sent. {why}"),
    }
}

/// The stored content that the model accepts, newest first until a limit is reached, with lengths.
fn newest(messages: &[Message], model: &ResolvedModel, most: u64) -> Wanted {
    let limits = media_limits::of(model.provider.service());
    let window = model.info.context_window.map(|limit| limit.tokens);
    let mut left = limits.bytes().map_or(most, |bytes| bytes.min(most));
    let mut wanted = Wanted::default();
    let mut pictures: Vec<&BlobRef> = Vec::new();
    let media = messages.iter().rev().flat_map(|message| {
        let media: Vec<&Media> = message.media().collect();
        media.into_iter().rev().map(|media| (message.role, media))
    });
    for (role, media) in media {
        let Source::Blob(kept) = &media.source else {
            continue;
        };
        let known = wanted.contents.contains_key(&kept.id) || wanted.too_many.contains(&kept.id);
        if known || cannot_read(model, media, role).is_some() {
            continue;
        }
        let is_picture = media.kind() == Kind::Image;
        if is_picture && pictures.len() == limits.pictures(window) {
            wanted.too_many.insert(kept.id.clone());
            continue;
        }
        let Some(rest) = left.checked_sub(kept.bytes) else {
            break;
        };
        left = rest;
        wanted.contents.insert(kept.id.clone(), kept.bytes);
        pictures.extend(is_picture.then_some(kept));
    }
    if let Some(most) = limits.side_of(pictures.len()) {
        let is_wide = |kept: &&BlobRef| kept.pixels.is_some_and(|pixels| pixels.width.max(pixels.height).get() > most);
        for kept in pictures.into_iter().filter(is_wide) {
            wanted.contents.remove(&kept.id);
            wanted.too_many.insert(kept.id.clone());
        }
    }
    wanted
}
