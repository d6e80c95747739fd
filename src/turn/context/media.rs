//! Media of a turn: content is stored before anything refers to it, and read when a prompt is made
//! of it.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    context::{
        media::{Replaced, leave_out},
        picture_size,
    },
    model::{
        BlobId, Closed, Contents, Media, Message, NewContent, Payload, PromptNote, PromptNoteKind,
        Role, TenantId, Transcript,
        event::UnsupportedPart,
        media::{Kept, LeftOut, Source},
    },
    provider::registry::Resolved,
    store::blob::Beginning,
    turn::{Error, engine::Engine},
};

/// Why a medium is left out that the model could take.
const NO_ROOM: &str = "The prompt holds as many bytes of media as it may without it.";

/// What a prompt's media came to: their content, and what the model does not get.
#[derive(Debug, Default)]
pub(in crate::turn) struct Carried {
    contents: Contents,
    replaced: Vec<Replaced>,
}

impl Carried {
    /// The content of the last prompt's media.
    pub(in crate::turn) fn contents(&self) -> Contents {
        self.contents.clone()
    }

    /// The events that tell what the last prompt left out that those before had not.
    pub(in crate::turn) fn told(&mut self, model: &Resolved) -> Vec<Payload> {
        let event = |Replaced {
                         left_out,
                         is_new: _,
                     }| {
            Payload::UnsupportedPart(UnsupportedPart {
                left_out,
                provider: model.provider_name.clone(),
                model: model.reference.clone(),
            })
        };
        std::mem::take(&mut self.replaced)
            .into_iter()
            .filter(|it| it.is_new)
            .map(event)
            .collect()
    }

    /// Everything that words stand for in the last prompt.
    pub(in crate::turn) fn notes(&self) -> Vec<PromptNote> {
        self.replaced.iter().map(|it| note(&it.left_out)).collect()
    }
}

impl Engine {
    /// What is stored of these blobs; those that do not exist are missing. They are not swept while
    /// a request is on its way.
    pub async fn stored(
        &self,
        tenant: &TenantId,
        named: &[BlobId],
    ) -> Result<BTreeMap<BlobId, Kept>, Error> {
        let known = |Beginning {
                         id,
                         bytes,
                         beginning,
                     }| {
            let pixels = picture_size::pixels(&beginning);
            (BlobId::clone(&id), Kept { id, bytes, pixels })
        };
        Ok(self
            .store
            .beginnings(tenant, named)
            .await?
            .into_iter()
            .map(known)
            .collect())
    }

    /// Stores what came with a request. What it is for may still be refused: content that nothing
    /// refers to is swept.
    pub(in crate::turn) async fn keep(
        &self,
        tenant: &TenantId,
        contents: &[NewContent],
    ) -> Result<(), Error> {
        if !contents.is_empty() {
            self.quotas.check_storage(tenant)?;
        }
        for content in contents {
            self.store
                .put_blob(tenant, content.id(), content.media_type(), content.bytes())
                .await?;
        }
        Ok(())
    }

    /// The transcript as the model gets it, with the content of the media that it takes. Content
    /// that is `carried` already is not read again.
    pub(in crate::turn) async fn carry(
        &self,
        tenant: &TenantId,
        model: &Resolved,
        transcript: Closed,
        carried: &mut Carried,
    ) -> Result<Closed, Error> {
        if transcript
            .messages()
            .iter()
            .all(|message| message.media().next().is_none())
        {
            return Ok(transcript);
        }
        let mut messages = transcript.into_messages();
        let wanted = newest(&messages, model, self.rules.max_prompt_media_bytes);
        carried.contents.retain(|id| wanted.contains_key(id));
        let mut lost = Vec::new();
        for (id, bytes) in &wanted {
            if carried.contents.get(id).is_some() {
                continue;
            }
            match self.content(tenant, id, *bytes).await? {
                Some(content) => carried.contents.insert(id.clone(), content),
                None => lost.push(id),
            }
        }
        let refused = |media: &Media, role| {
            let kept = media.kept();
            let is_lost = kept.is_some_and(|kept| lost.contains(&&kept.id));
            let over = || kept.is_some_and(|kept| !wanted.contains_key(&kept.id));
            cannot_read(model, media, role)
                .or_else(|| over().then(|| NO_ROOM.to_owned()))
                .or_else(|| is_lost.then(|| "Its content is lost.".to_owned()))
        };
        carried.replaced = leave_out(&mut messages, &model.reference, refused);
        closed(messages)
    }

    /// The content of these messages' media, as far as the model takes them.
    pub(in crate::turn) async fn contents(
        &self,
        tenant: &TenantId,
        model: &Resolved,
        transcript: Closed,
        own: &[NewContent],
    ) -> Result<(Closed, Carried), Error> {
        let mut carried = Carried::default();
        for content in own {
            carried
                .contents
                .insert(content.id().clone(), content.bytes().into());
        }
        let transcript = self.carry(tenant, model, transcript, &mut carried).await?;
        Ok((transcript, carried))
    }

    /// The same without the content itself.
    pub(in crate::turn) fn references(
        &self,
        model: &Resolved,
        transcript: Closed,
    ) -> Result<(Closed, Carried), Error> {
        let mut messages = transcript.into_messages();
        let wanted = newest(&messages, model, self.rules.max_prompt_media_bytes);
        let refused = |media: &Media, role| {
            let over = || {
                media
                    .kept()
                    .is_some_and(|kept| !wanted.contains_key(&kept.id))
            };
            cannot_read(model, media, role).or_else(|| over().then(|| NO_ROOM.to_owned()))
        };
        let replaced = leave_out(&mut messages, &model.reference, refused);
        Ok((
            closed(messages)?,
            Carried {
                contents: Contents::default(),
                replaced,
            },
        ))
    }

    /// The whole content of a blob. `None` means it is not there, or not as long as it should be.
    async fn content(
        &self,
        tenant: &TenantId,
        id: &BlobId,
        bytes: u64,
    ) -> Result<Option<Arc<[u8]>>, Error> {
        let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
        while (content.len() as u64) < bytes {
            let piece = self
                .store
                .blob_piece(tenant, id, content.len() as u64)
                .await?;
            if piece.is_empty() {
                tracing::error!(blob.id = %id, "a message refers to a missing blob");
                return Ok(None);
            }
            content.extend(piece);
        }
        Ok(Some(content.into()))
    }
}

/// Why a model does not get a medium. `None` means it does.
pub(in crate::turn) fn cannot_read(model: &Resolved, media: &Media, role: Role) -> Option<String> {
    model.provider.cannot_read(&model.info, media, role)
}

/// Only words took the place of media: calls and results are as they were.
fn closed(messages: Vec<Message>) -> Result<Closed, Error> {
    Transcript::new(messages)
        .close()
        .map_err(|error| Error::Internal(error.to_string()))
}

fn note(left_out: &LeftOut) -> PromptNote {
    let LeftOut {
        message,
        part,
        media_type,
        filename,
        why,
    } = left_out;
    let name = if filename.is_empty() {
        "A part".to_owned()
    } else {
        filename.clone()
    };
    PromptNote {
        kind: PromptNoteKind::Unsupported,
        message: Some(message.clone()),
        part: Some(*part),
        text: format!("{name} ({media_type}) is not sent. {why}"),
    }
}

/// The stored content that the model takes, newest first until there is no room for more, each with
/// its length.
fn newest(messages: &[Message], model: &Resolved, most: u64) -> BTreeMap<BlobId, u64> {
    let mut wanted = BTreeMap::new();
    let mut left = most;
    let media = messages.iter().rev().flat_map(|message| {
        let media: Vec<&Media> = message.media().collect();
        media.into_iter().rev().map(|media| (message.role, media))
    });
    for (role, media) in media {
        let Source::Blob(kept) = &media.source else {
            continue;
        };
        if wanted.contains_key(&kept.id) || cannot_read(model, media, role).is_some() {
            continue;
        }
        let Some(rest) = left.checked_sub(kept.bytes) else {
            break;
        };
        left = rest;
        wanted.insert(kept.id.clone(), kept.bytes);
    }
    wanted
}
