//! RevertCompaction: reverts the newest compaction.

use std::sync::Arc;

use crate::{
    model::{Compaction, CompactionState, Payload, SessionKey, TenantId, TokenCount, command::RevertCompaction},
    store,
    turn::{
        Error,
        engine::{SessionCommands, supervised},
        optimistic::retry_on_change,
    },
};

impl SessionCommands {
    /// Reverts the newest compaction. Returns it with the size of the next prompt.
    pub async fn revert_compaction(
        self: &Arc<Self>,
        tenant: TenantId,
        command: RevertCompaction,
    ) -> Result<(Compaction, TokenCount), Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let key = SessionKey::new(tenant, command.session.clone());
            let reverted = retry_on_change(|| sessions.try_revert(&key, &command)).await?;
            let _memory = sessions.prompts.reserve_session_memory(&key, 0).await?;
            let looked = sessions.prompts.session_view(&key).await?;
            let model = sessions.prompts.model(looked.model(None))?;
            Ok((reverted, looked.size(&model).size().count))
        })
        .await
    }

    async fn try_revert(&self, key: &SessionKey, command: &RevertCompaction) -> Result<Option<Compaction>, Error> {
        let RevertCompaction { session: _, compaction: id, idempotency } = command;
        let session = self.prompts.session(key).await?;
        if let Some(known) = self.prompts.compacted_before(key, idempotency).await? {
            return self.await_compaction(key, &known, false).await.map(Some);
        }
        let found = self.store.compaction(key, id).await?;
        let found = found.ok_or_else(|| Error::CompactionNotFound(id.clone()))?;
        match found.state {
            CompactionState::Reverted => return Ok(Some(found)),
            CompactionState::Applied => {}
            CompactionState::Planned | CompactionState::Running | CompactionState::Failed => {
                return Err(Error::CompactionNotFound(id.clone()));
            }
        }
        let newest = self.store.compaction_in_force(key).await?.and_then(|(newest, _)| newest.id);
        if let Some(newest) = newest.filter(|newest| newest != id) {
            return Err(Error::CompactionSuperseded { newest });
        }
        let told = Compaction { state: CompactionState::Reverted, reverted_at: Some(self.prompts.now()), ..found };
        let reverted = Payload::CompactionReverted(Box::new(told));
        let seen = session.context_version;
        let answer = match self.store.revert_compaction(key, id, seen, &reverted, idempotency).await {
            Ok(answer) => answer,
            Err(store::Error::Duplicate(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(moved) = answer.update else {
            return Ok(None);
        };
        self.live.notify_readers(key, moved.last_seq);
        Ok(self.store.compaction(key, id).await?)
    }
}
