//! Memory of calls and turns that read whole sessions: the limit per session, and the limit for all
//! of them together.

use std::time::Duration;

use tokio::time::timeout;

use crate::{
    fair::FairPermit,
    model::{PromptFormat, SessionKey, TenantId},
    turn::{Error, engine::Prompts},
};

/// Copies of its messages that such a call holds at most: the read rows, the prompt, the request
/// body and the response.
const COPIES: u64 = 5;
/// How long a call waits for memory before it is refused with OVERLOADED.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(20);
/// Messages of at least this many bytes are large.
const LARGE_BYTES: usize = 64 << 10;

impl Prompts {
    /// Waits until memory is available for what a call reads of a session, plus this many bytes of
    /// other content. The caller holds the place for as long as it holds any of that.
    pub(in crate::turn) async fn reserve_session_memory(
        &self,
        key: &SessionKey,
        content: u64,
    ) -> Result<FairPermit, Error> {
        let bytes = self.store.live_bytes(key).await?;
        self.reserve_memory(&key.tenant, bytes.saturating_add(content)).await
    }

    /// Like [`Prompts::reserve_session_memory`], for this many bytes in total.
    pub(in crate::turn) async fn reserve_memory(&self, tenant: &TenantId, bytes: u64) -> Result<FairPermit, Error> {
        let entered = timeout(MEMORY_TIMEOUT, self.reserve_memory_without_timeout(tenant, bytes)).await;
        entered.map_err(|_| Error::Overloaded)
    }

    /// Like [`Prompts::reserve_memory`], without a timeout, for a turn, which has its own.
    pub(in crate::turn) async fn reserve_memory_without_timeout(&self, tenant: &TenantId, bytes: u64) -> FairPermit {
        let wanted = bytes.saturating_mul(COPIES);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        self.prompt_memory.acquire_many(tenant, wanted).await
    }

    /// The limit of media bytes in a prompt of a session.
    pub(in crate::turn) async fn max_media_bytes(&self, key: &SessionKey, shape: PromptFormat) -> Result<u64, Error> {
        if !shape.is_body() {
            return Ok(0);
        }
        let session = self.store.session(key).await?;
        let has_media = session.is_some_and(|session| session.model_dependent.media);
        Ok(if has_media { self.rules.blobs.max_prompt_bytes } else { 0 })
    }

    /// Refuses messages if the messages of the session are at the size limit.
    pub(in crate::turn) async fn check_session_size(&self, key: &SessionKey) -> Result<(), Error> {
        let limit = self.rules.turn.max_session_bytes;
        if self.store.live_bytes(key).await? >= limit {
            return Err(Error::SessionTooLarge { limit });
        }
        Ok(())
    }
}

/// Whether a message is large enough to check the size of its session first. The total of small
/// ones is bounded by the turns that answer them.
pub(in crate::turn) fn is_large(bytes: usize) -> bool {
    bytes >= LARGE_BYTES
}
