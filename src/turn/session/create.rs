//! CreateSession. Fields that the client leaves empty get the server's defaults.

use std::{future::Future, sync::Arc};

use uuid::Uuid;

use crate::{
    context::estimate,
    model::{
        RequestId, SessionConfig, SessionId, SessionKey, TenantId, ToolSet,
        command::{CreateSession, Idempotency, SessionDraft},
        derive,
    },
    session::config_rows::NewConfig,
    store::session::Session,
    turn::{
        Error,
        engine::{Prompts, SessionCommands, supervised},
        settings::DEFAULT_POLICY,
    },
};

/// How many sessions may be created with one request_id that expires between uses, while all of
/// them are kept. At one use a week this lasts for two years.
const MAX_USES: u32 = 100;

impl SessionCommands {
    /// Creates a session, or returns the one that the same request created before.
    pub async fn create_session(self: &Arc<Self>, tenant: TenantId, command: CreateSession) -> Result<Session, Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let CreateSession { session, draft, idempotency } = command;
            let mut config = sessions.prompts.complete(draft)?;
            sessions.prompts.mcp.resolve(&tenant, &mut config.tools).await?;
            let (new, idempotency, sessions) = (sized(&config), &idempotency, &sessions);
            let request = idempotency.request.as_ref();
            in_unused_session(&tenant, session.as_ref(), request, |key| async move {
                if let Err(exceeded) = sessions.capacity.quotas.check_storage(&key.tenant) {
                    // A session that the same request created before must be found even over the
                    // quota.
                    sessions.store.session(&key).await?.ok_or(exceeded)?;
                    sessions.prompts.made_by(&key, idempotency).await?;
                } else if !sessions.store.create_session(&key, new, idempotency).await? {
                    sessions.prompts.made_by(&key, idempotency).await?;
                }
                sessions.prompts.session(&key).await
            })
            .await
        })
        .await
    }
}

impl Prompts {
    /// A draft with the server's defaults filled in. Checks that its models and its policy exist.
    pub(in crate::turn) fn complete(&self, draft: SessionDraft) -> Result<SessionConfig, Error> {
        let config = self.filled(draft);
        self.model(&config.model)?;
        self.policy(&config)?;
        self.check_models(&config.overrides.fallback_models)?;
        Ok(config)
    }

    /// Like [`Prompts::complete`], without the checks.
    pub(in crate::turn) fn filled(&self, draft: SessionDraft) -> SessionConfig {
        let mut config = draft.config;
        if config.model.is_empty() {
            config.model.clone_from(&self.rules.models.default_model);
        }
        if config.policy.is_empty() {
            DEFAULT_POLICY.clone_into(&mut config.policy);
        }
        config
    }

    /// Checks that an existing session was created by this request.
    pub(in crate::turn) async fn made_by(&self, key: &SessionKey, idempotency: &Idempotency) -> Result<(), Error> {
        let stored = self.stored_result(key, idempotency).await?;
        stored.map(drop).ok_or_else(|| Error::SessionExists(key.session.clone()))
    }
}

/// Creates a session under the id that the client named, or under an id derived from its
/// request_id. If an expired request used the same request_id and its session still exists
/// (`SessionExists`), the next id is tried.
pub(in crate::turn) async fn in_unused_session<T, F>(
    tenant: &TenantId,
    named: Option<&SessionId>,
    request: Option<&RequestId>,
    make: impl Fn(SessionKey) -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let key = |id| SessionKey::new(tenant.clone(), id);
    let (None, Some(request)) = (named, request) else {
        let id = named.cloned();
        let id = id.unwrap_or_else(|| SessionId::new(Uuid::now_v7().to_string()));
        return make(key(id)).await;
    };
    let mut use_number = 0;
    loop {
        match make(key(derive::session(tenant, request, use_number))).await {
            Err(Error::SessionExists(_)) if use_number < MAX_USES => use_number += 1,
            made => return made,
        }
    }
}

/// A configuration with the size of its tools.
pub(in crate::turn) fn sized(config: &SessionConfig) -> NewConfig<'_> {
    NewConfig { config, tools_tokens: tools_tokens(&config.tools), estimator: estimate::ESTIMATOR }
}

/// Tokens of the tool definitions that are sent to the model.
fn tools_tokens(tools: &ToolSet) -> u32 {
    tools.visible().map(estimate::tool).sum()
}
