//! ForkSession: a session of its own from what another one said up to a point.

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
        fork::{Claimed, Copying, Piece},
        session::Session,
    },
    turn::{Error, engine::Engine, session::create::new_session_id},
};

/// What is copied in one statement. A longer session is copied in batches of this size.
const PIECE: Piece = Piece {
    messages: 500,
    bytes: 8 << 20,
};
/// Calls that are copied in one statement.
const CALLS: u32 = 2_000;
/// How long a batch may take before the copy counts as abandoned; far longer than a statement may.
const LEASE: Duration = Duration::from_mins(2);
/// How long a repeated request waits for the copy that the first one makes, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

impl Engine {
    /// Forks a session, or returns the fork that the same request made before. What is stored up to
    /// a seq never changes, so that neither the reads nor the copy need a lock: a running turn
    /// goes on meanwhile.
    pub async fn fork(
        self: &Arc<Self>,
        tenant: TenantId,
        command: ForkSession,
    ) -> Result<Session, Error> {
        self.supervised(async move |engine| engine.try_fork(tenant, command).await)
            .await
    }

    async fn try_fork(&self, tenant: TenantId, command: ForkSession) -> Result<Session, Error> {
        let ForkSession {
            session,
            at,
            new,
            idempotency,
        } = command;
        let id = new.unwrap_or_else(|| new_session_id(&tenant, idempotency.request.as_ref()));
        let source = SessionKey::new(tenant.clone(), session);
        let fork = SessionKey::new(tenant, id);
        let begun = Instant::now();
        loop {
            if self.store.session(&fork).await?.is_some() {
                // Made by this request, whatever happened to its source since.
                self.made_by(&fork, &idempotency).await?;
                return self.session(&fork).await;
            }
            match self
                .store
                .claimed_fork(&fork, idempotency.request.as_ref())
                .await?
            {
                None => {}
                Some(Claimed {
                    abandoned: true, ..
                }) => self.store.purge(&fork).await?,
                Some(Claimed { hash, .. }) if hash.as_ref() != Some(&idempotency.hash) => {
                    return Err(Error::SessionExists(fork.session));
                }
                Some(_) if begun.elapsed() > PATIENCE => {
                    return Err(Error::Store(store::Error::Conflict(
                        "the fork is still being copied".to_owned(),
                    )));
                }
                Some(_) => {
                    sleep(LOOK).await;
                    continue;
                }
            }
            if self.copy(&source, at, &fork, &idempotency).await? {
                return self.session(&fork).await;
            }
            // The id was taken in the meantime: by this request, as the next look shows, or for
            // another session.
            self.session(&source).await?;
            if self.store.claimed_fork(&fork, None).await?.is_none() {
                self.made_by(&fork, &idempotency).await?;
            }
        }
    }

    /// Copies the session. False: the source is gone, or the id is taken.
    async fn copy(
        &self,
        source: &SessionKey,
        at: Option<Seq>,
        fork: &SessionKey,
        idempotency: &Idempotency,
    ) -> Result<bool, Error> {
        self.quotas.check_storage(&fork.tenant)?;
        let last = self.session(source).await?.last_seq;
        let at = at.unwrap_or(last);
        if at > last {
            return Err(Error::AtSeqAhead { last });
        }
        let open = self.store.open_calls_at(source, at).await?;
        if !open.is_empty() {
            return Err(Error::TranscriptOpen(open));
        }
        if !self.store.is_longer(source, at, PIECE).await? {
            return Ok(self
                .store
                .fork(source, at, &fork.session, idempotency)
                .await?);
        }
        let claim = Uuid::now_v7().to_string();
        let claimed = self
            .store
            .claim_fork(source, at, &fork.session, &claim, LEASE, idempotency)
            .await?;
        let Some(mut copying) = claimed else {
            return Ok(false);
        };
        let copied = self.copy_in_batches(&mut copying).await;
        if !matches!(copied, Ok(true)) {
            self.clear_fork(fork, &copying).await;
        }
        Ok(copied?)
    }

    async fn copy_in_batches(&self, copying: &mut Copying) -> Result<bool, store::Error> {
        let mut copied = Seq(0);
        while let Some(last) = self.store.copy_messages(copying, copied, PIECE).await? {
            copied = last;
        }
        let mut call = String::new();
        while let Some(last) = self.store.copy_calls(copying, &call, CALLS).await? {
            call = last;
        }
        self.store.open_fork(copying).await
    }

    /// Removes what was copied of a fork that failed, so that its id is free for the next try. What
    /// cannot be removed now is purged when its lease has run out.
    async fn clear_fork(&self, fork: &SessionKey, copying: &Copying) {
        let cleared = match self.store.give_up_fork(copying).await {
            Ok(()) => self.store.purge(fork).await,
            Err(error) => Err(error),
        };
        if let Err(error) = cleared {
            tracing::warn!(session.id = %fork.session, %error, "failed fork will be removed later");
        }
    }
}
