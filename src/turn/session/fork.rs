//! ForkSession: copies a session up to a seq into a new one.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::{
    model::{
        Seq, SessionKey, TenantId,
        command::{ForkSession, Idempotency},
    },
    store::{
        self,
        fork::{ClaimedFork, Copied, CopyInProgress, NewFork, PieceLimits, Source},
        session::Session,
    },
    turn::{
        Error,
        engine::{SessionCommands, supervised},
        session::create::{in_unused_session, sized},
    },
};

/// Most messages and bytes that are copied in one transaction.
const MAX_COPY_PIECE: PieceLimits = PieceLimits { messages: 500, bytes: 8 << 20 };
/// How long a repeated request waits for the copy made by the first one, in addition to the time
/// after which the copy of a dead replica counts as abandoned; and how often it checks.
const COPY_TIMEOUT: Duration = Duration::from_secs(10);
const COPY_POLL_INTERVAL: Duration = Duration::from_millis(100);

impl SessionCommands {
    /// Forks a session, or returns the fork that the same request made before. Rows up to a seq
    /// never change, so that neither the reads nor the copy need a lock, and a running turn
    /// continues.
    pub async fn fork(self: &Arc<Self>, tenant: TenantId, command: ForkSession) -> Result<Session, Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let request = command.idempotency.request.as_ref();
            let source = SessionKey::new(tenant.clone(), command.session.clone());
            in_unused_session(&tenant, command.new.as_ref(), request, |fork| sessions.try_fork(&source, fork, &command))
                .await
        })
        .await
    }

    async fn try_fork(&self, source: &SessionKey, fork: SessionKey, command: &ForkSession) -> Result<Session, Error> {
        let ForkSession { session: _, at, new, idempotency } = command;
        let begun = Instant::now();
        loop {
            if self.store.session(&fork).await?.is_some() {
                // Made by this request, even if its source has changed since.
                self.prompts.made_by(&fork, idempotency).await?;
                return self.prompts.session(&fork).await;
            }
            match self.store.claimed_fork(&fork, idempotency.request.as_ref()).await? {
                None => {}
                Some(ClaimedFork { abandoned: true, .. }) => self.store.purge(&fork).await?,
                Some(ClaimedFork { hash, .. }) if hash.as_ref() != Some(&idempotency.hash) => {
                    return Err(match (new, &idempotency.request) {
                        (None, Some(request)) => Error::IdempotencyMismatch(request.clone()),
                        (Some(_), _) | (None, None) => Error::SessionExists(fork.session),
                    });
                }
                Some(_) if begun.elapsed() > self.store.fork_lease() + COPY_TIMEOUT => {
                    return Err(Error::ForkInProgress(fork.session));
                }
                Some(_) => {
                    sleep(COPY_POLL_INTERVAL).await;
                    continue;
                }
            }
            if self.copy(source, *at, &fork, idempotency).await? {
                return self.prompts.session(&fork).await;
            }
            // The id was taken concurrently: by this request, as the next iteration will show, or
            // for another session.
            self.prompts.session(source).await?;
            if self.store.claimed_fork(&fork, None).await?.is_none() {
                self.prompts.made_by(&fork, idempotency).await?;
            }
        }
    }

    /// Copies the session. Returns `false` if the source no longer exists, or the id is taken.
    async fn copy(
        &self,
        source: &SessionKey,
        at: Option<Seq>,
        fork: &SessionKey,
        idempotency: &Idempotency,
    ) -> Result<bool, Error> {
        let bytes = self.bytes_of_fork(source, &fork.tenant).await?;
        let seen = self.prompts.session(source).await?;
        let last = seen.last_seq;
        let at = at.unwrap_or(last);
        if at > last {
            return Err(Error::AtSeqAhead { last });
        }
        let open = self.store.open_calls_at(source, at).await?;
        if !open.is_empty() {
            return Err(Error::TranscriptOpen(open));
        }
        // All reads so far were of the session created at this time.
        let source = Source { key: source, created: seen.created_at, at };
        let new = NewFork {
            id: &fork.session,
            config: sized(&seen.config),
            claim: &Uuid::now_v7().to_string(),
            lease: self.store.fork_lease(),
            most: MAX_COPY_PIECE,
        };
        let claimed = self.store.claim_fork(source, &new, idempotency).await?;
        let Some(mut copying) = claimed else {
            return Ok(false);
        };
        let copied = self.copy_rest(&mut copying).await;
        if matches!(copied, Ok(true)) {
            self.capacity.quotas.copied(&fork.tenant, bytes);
        } else {
            self.clear_fork(fork, &copying).await;
        }
        Ok(copied?)
    }

    /// Most bytes that the fork may take. Checks that the tenant has that many left. Returns 0 if
    /// the tenant has no storage limit.
    async fn bytes_of_fork(&self, source: &SessionKey, tenant: &TenantId) -> Result<u64, Error> {
        self.capacity.quotas.check_storage(tenant)?;
        if self.capacity.quotas.limits(tenant).stored_bytes.is_none() {
            return Ok(0);
        }
        let bytes = self.store.session_bytes(source).await?;
        let bytes = u64::try_from(bytes).unwrap_or_default();
        self.capacity.quotas.check_storage_for(tenant, bytes)?;
        Ok(bytes)
    }

    /// Copies the remaining messages, and opens the fork. Returns `false` if the source no longer
    /// exists.
    async fn copy_rest(&self, copying: &mut CopyInProgress) -> Result<bool, store::Error> {
        loop {
            match self.store.copy_piece(copying).await? {
                Copied::Part => {}
                Copied::Whole => return self.store.open_fork(copying).await,
                Copied::SourceGone => return Ok(false),
            }
        }
    }

    /// Removes the rows of a failed fork, so that its id is free for the next attempt. If that
    /// fails, they are purged when the fork's lease has expired.
    async fn clear_fork(&self, fork: &SessionKey, copying: &CopyInProgress) {
        let cleared = match self.store.give_up_fork(copying).await {
            Ok(()) => self.store.purge(fork).await,
            Err(error) => Err(error),
        };
        if let Err(error) = cleared {
            tracing::warn!(session.id = %fork.session, %error, "failed to remove an incomplete fork; it will be removed later");
        }
    }
}
