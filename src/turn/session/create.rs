//! Sessions: what a client leaves open is filled in by the server's defaults.

use std::sync::Arc;

use uuid::Uuid;

use crate::{
    context::estimate,
    model::{
        RequestId, SessionConfig, SessionId, SessionKey, TenantId, ToolSet,
        command::{CreateSession, Idempotency, SessionDraft},
        derive,
    },
    store::session::{NewConfig, Session},
    turn::{Error, engine::Engine, settings::DEFAULT_POLICY},
};

impl Engine {
    /// Creates a session, or returns the one that the same request made before.
    pub async fn create_session(
        self: &Arc<Self>,
        tenant: TenantId,
        command: CreateSession,
    ) -> Result<Session, Error> {
        self.supervised(async move |engine| {
            let CreateSession {
                session,
                draft,
                idempotency,
            } = command;
            let mut config = engine.complete(draft)?;
            engine.resolve_tools(&mut config.tools).await?;
            let id =
                session.unwrap_or_else(|| new_session_id(&tenant, idempotency.request.as_ref()));
            let key = SessionKey::new(tenant, id);
            if !engine
                .store
                .create_session(&key, &sized(&config), &idempotency)
                .await?
            {
                engine.made_by(&key, &idempotency).await?;
            }
            engine.session(&key).await
        })
        .await
    }

    /// The session; an error when there is none.
    pub async fn session(&self, key: &SessionKey) -> Result<Session, Error> {
        self.store
            .session(key)
            .await?
            .ok_or_else(|| Error::SessionNotFound(key.session.clone()))
    }

    /// A draft with the server's defaults filled in.
    pub(in crate::turn) fn complete(&self, draft: SessionDraft) -> Result<SessionConfig, Error> {
        let config = self.filled(draft);
        self.model(&config.model)?;
        self.policy(&config)?;
        self.check_models(&config.overrides.fallback_models)?;
        Ok(config)
    }

    /// The same without a look at whether there is such a model and policy.
    pub(in crate::turn) fn filled(&self, draft: SessionDraft) -> SessionConfig {
        let mut config = draft.config;
        if config.model.is_empty() {
            config.model.clone_from(&self.rules.default_model);
        }
        if config.policy.is_empty() {
            DEFAULT_POLICY.clone_into(&mut config.policy);
        }
        config
    }

    /// Whether an existing session was made by this very request.
    pub(in crate::turn) async fn made_by(
        &self,
        key: &SessionKey,
        idempotency: &Idempotency,
    ) -> Result<(), Error> {
        let Some(request) = &idempotency.request else {
            return Err(Error::SessionExists(key.session.clone()));
        };
        match self.store.remembered(key, request).await? {
            Some(remembered) if remembered.hash == idempotency.hash => Ok(()),
            Some(_) => Err(Error::IdempotencyMismatch(request.clone())),
            None => Err(Error::SessionExists(key.session.clone())),
        }
    }
}

/// An id for a session that the client did not name.
pub(in crate::turn) fn new_session_id(tenant: &TenantId, request: Option<&RequestId>) -> SessionId {
    match request {
        Some(request) => derive::session(tenant, request),
        None => SessionId::new(Uuid::now_v7().to_string()),
    }
}

/// A configuration with the size of its tools.
pub(in crate::turn) fn sized(config: &SessionConfig) -> NewConfig<'_> {
    NewConfig {
        config,
        tools_tokens: tools_tokens(&config.tools),
        estimator: estimate::ESTIMATOR,
    }
}

/// Tokens of the definitions that the model is sent.
fn tools_tokens(tools: &ToolSet) -> u32 {
    tools.visible().map(estimate::tool).sum()
}
