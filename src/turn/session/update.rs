//! UpdateSession: stores a new revision of the configuration. It applies from the next step on,
//! also to a running turn.

use std::sync::Arc;

use crate::{
    codec::mask,
    model::{
        Payload, SessionConfig, SessionKey, TenantId,
        command::{ConfigChange, SessionDraft, UpdateSession},
        event::ModelSwitched,
    },
    session::revision::NewRevision,
    store::{self, session::Session, update::Updated},
    turn::{
        Error,
        engine::{Prompts, SessionCommands, supervised},
        optimistic::retry_on_change,
        session::create::sized,
    },
};

impl SessionCommands {
    /// Changes a session's configuration, and returns the session as of this change. A change
    /// without effect creates no revision.
    pub async fn update_session(self: &Arc<Self>, tenant: TenantId, command: UpdateSession) -> Result<Session, Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let mut command = command;
            let key = SessionKey::new(tenant, command.session.clone());
            sessions.prompts.mcp.resolve(&key.tenant, &mut command.change.values.tools).await?;
            let revision = retry_on_change(|| sessions.try_update(&key, &command)).await?;
            let session = sessions.store.session_at(&key, revision).await?;
            session.ok_or(Error::SessionNotFound(key.session))
        })
        .await
    }

    /// One attempt. Returns the revision that the change created or found, or `None` if the session
    /// changed between the read and the write.
    async fn try_update(&self, key: &SessionKey, command: &UpdateSession) -> Result<Option<i64>, Error> {
        let UpdateSession { session: _, etag, change, idempotency } = command;
        // Looked up after the session was read: a concurrent write of the same request is then
        // recognized, and not taken for another client's change.
        let session = self.prompts.session(key).await?;
        if let Some(stored) = self.prompts.stored_result(key, idempotency).await? {
            return revision_of(&stored).map(Some);
        }
        check_etag(key, etag.as_deref(), session.revision)?;
        self.capacity.quotas.check_storage(&key.tenant)?;
        let Some((config, events)) = self.prompts.changed(&session, change)? else {
            let revision = session.revision;
            let first = self.prompts.store_result(key, idempotency, &revision.to_string()).await?;
            return first.map_or(Ok(revision), |first| revision_of(&first)).map(Some);
        };
        let revision = NewRevision { new: sized(&config), from: session.revision, events: &events };
        let updated = self.store.update(key, &revision, idempotency).await?;
        let Some(Updated { revision, last_seq }) = updated else {
            return Ok(None);
        };
        self.live.notify_readers(key, last_seq);
        // A queued message whose model was not configured may have one now.
        self.capacity.postponed_starts.forget(key);
        Ok(Some(revision))
    }
}

impl Prompts {
    /// The new configuration and its events. Returns `None` if it equals the one in force.
    fn changed(
        &self,
        session: &Session,
        change: &ConfigChange,
    ) -> Result<Option<(SessionConfig, Vec<Payload>)>, Error> {
        let before = &session.config;
        let applied = mask::apply(change, before).map_err(store::Error::from)?;
        let config = self.filled(SessionDraft { config: applied });
        if config == *before {
            return Ok(None);
        }
        // Unchanged fields are not checked: a model that this server no longer has must not prevent
        // other changes.
        if config.model != before.model {
            self.model(&config.model)?;
        }
        if config.policy != before.policy {
            self.policy(&config)?;
        }
        let fallbacks = &config.overrides.fallback_models;
        if *fallbacks != before.overrides.fallback_models {
            self.check_models(fallbacks)?;
        }
        let revision = session.revision + 1;
        let paths = mask::differing(&change.paths, before, &config);
        let mut events = vec![Payload::SessionUpdated { revision, paths: paths.map_err(store::Error::from)? }];
        if config.model != before.model {
            let from = before.model.clone();
            let to = config.model.clone();
            events.push(Payload::ModelSwitched(ModelSwitched {
                from,
                to,
                revision,
                generation: config.generation.clone(),
            }));
        }
        Ok(Some((config, events)))
    }
}

/// Refuses an etag that does not match the revision.
pub(in crate::turn) fn check_etag(key: &SessionKey, etag: Option<&str>, revision: i64) -> Result<(), Error> {
    let current = revision.to_string();
    match etag {
        Some(etag) if etag != current => Err(Error::EtagMismatch { session: key.session.clone(), current }),
        Some(_) | None => Ok(()),
    }
}

/// The revision that the same request created or found before.
fn revision_of(stored: &str) -> Result<i64, Error> {
    stored.parse().map_err(|_| Error::Internal(format!("invalid stored result of an update: {stored:?}")))
}
