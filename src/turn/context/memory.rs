//! Memory of calls and turns that read whole sessions: how much one session may come to, and how much
//! all of them may hold together.

use std::time::Duration;

use tokio::time::timeout;

use crate::{
    fair::FairPlace,
    model::{PromptShape, SessionKey, TenantId},
    turn::{Error, engine::Engine},
};

/// How many times as much as its messages such a call holds at most: as they are read, as a prompt, as the
/// body of a request and as an answer.
const COPIES: u64 = 5;
/// How long a call waits for others before it is refused as OVERLOADED.
const PATIENCE: Duration = Duration::from_secs(20);
/// Messages from this size on are large.
const SMALL: usize = 64 << 10;

impl Engine {
    /// Waits until there is memory for what a call reads of a session, together with this many bytes of
    /// other content. The place is held for as long as the call has any of it.
    pub(in crate::turn) async fn memory_for(
        &self,
        key: &SessionKey,
        content: u64,
    ) -> Result<FairPlace, Error> {
        let bytes = self.store.live_bytes(key).await?;
        self.memory(&key.tenant, bytes.saturating_add(content))
            .await
    }

    /// The same for this many bytes in all.
    pub(in crate::turn) async fn memory(
        &self,
        tenant: &TenantId,
        bytes: u64,
    ) -> Result<FairPlace, Error> {
        let entered = timeout(PATIENCE, self.patient_memory(tenant, bytes)).await;
        entered.map_err(|_| Error::Overloaded)
    }

    /// The same for a turn, which waits for as long as it has time.
    pub(in crate::turn) async fn patient_memory(&self, tenant: &TenantId, bytes: u64) -> FairPlace {
        let wanted = bytes.saturating_mul(COPIES);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        self.prompt_memory.enter_with(tenant, wanted).await
    }

    /// The bytes of media that a prompt of a session may have.
    pub(in crate::turn) async fn most_media(
        &self,
        key: &SessionKey,
        shape: PromptShape,
    ) -> Result<u64, Error> {
        match shape {
            PromptShape::Neutral => return Ok(0),
            PromptShape::Native
            | PromptShape::OpenAiChat
            | PromptShape::OpenAiResponses
            | PromptShape::Anthropic
            | PromptShape::Gemini
            | PromptShape::AiSdk
            | PromptShape::AiSdk7 => {}
        }
        let session = self.store.session(key).await?;
        let has_media = session.is_some_and(|session| session.holds.media);
        Ok(if has_media {
            self.rules.max_prompt_media_bytes
        } else {
            0
        })
    }

    /// Refuses more messages for a session whose messages are as large as they may be.
    pub(in crate::turn) async fn check_session_size(&self, key: &SessionKey) -> Result<(), Error> {
        let limit = self.rules.max_session_bytes;
        if self.store.live_bytes(key).await? >= limit {
            return Err(Error::SessionTooLarge { limit });
        }
        Ok(())
    }
}

/// Whether a message is so large that the size of its session is looked at first. What small ones come to
/// is bounded by the turns that answer them.
pub(in crate::turn) fn is_large(bytes: usize) -> bool {
    bytes >= SMALL
}
