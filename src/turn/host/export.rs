//! ExportMessages: stored messages in the format of another API, with the content of their media.

use std::collections::BTreeMap;

use crate::{
    fair::FairPermit,
    model::{Contents, Media, Message, PromptFormat, Role, Seq, SessionKey},
    provider::{
        foreign::{self, WrittenMessage},
        responses::CustomCalls,
    },
    store::message::{Page, PlacedMessage, View},
    turn::{Error, engine::Prompts},
};

/// A message in the format of another API.
#[derive(Debug)]
pub struct Exported {
    pub written: WrittenMessage,
    /// The memory held for its media.
    pub memory: Option<FairPermit>,
}

/// Messages read by one query while looking for the response that made the calls.
const READ: u32 = 16;
/// Most bytes read by one query.
const READ_BYTES: i64 = 8 << 20;

impl Prompts {
    /// Of the calls that results after `place` may answer, those whose arguments are text.
    pub async fn text_calls_before(&self, key: &SessionKey, at: Option<Seq>, place: Seq) -> Result<CustomCalls, Error> {
        let mut calls = CustomCalls::default();
        let page = Page::Before(Seq(place.0.saturating_add(1)));
        let read = self.store.messages_within(key, View::All, at, page, (READ, READ_BYTES)).await?;
        for PlacedMessage { message, .. } in read.items {
            calls.add(&message);
            if message.role != Role::Tool {
                break;
            }
        }
        Ok(calls)
    }

    /// Converts a message to `shape`. `text_calls` are those of the messages before it. Media that
    /// exceed the prompt's limit of media bytes are replaced by notes. Waits until memory for the
    /// other media is available.
    pub async fn exported(
        &self,
        key: &SessionKey,
        shape: PromptFormat,
        message: &Message,
        text_calls: &CustomCalls,
    ) -> Result<Exported, Error> {
        let most = self.rules.blobs.max_prompt_bytes;
        let mut wanted = BTreeMap::new();
        let mut bytes: u64 = 0;
        for kept in message.media().filter_map(Media::blob) {
            let with = bytes.saturating_add(kept.bytes);
            if with <= most && wanted.insert(&kept.id, kept.bytes).is_none() {
                bytes = with;
            }
        }
        let memory = if bytes > 0 { Some(self.reserve_memory(&key.tenant, bytes).await?) } else { None };
        let mut contents = Contents::default();
        for (id, bytes) in wanted {
            if let Some(content) = self.content(&key.tenant, id, bytes).await? {
                contents.insert(id.clone(), content);
            }
        }
        let written = foreign::write(shape, message, &contents, text_calls);
        Ok(Exported { written, memory })
    }
}
