//! PruneToolOutputs and RestoreToolOutputs, and the automatic prune after a turn.

use std::sync::Arc;

use crate::{
    codec,
    context::prune::{Output, Pruning, choose, choose_all, placeholder_tokens},
    model::{
        PruneReport, Restored, Seq, SessionKey, TenantId,
        command::{Idempotency, PruneToolOutputs, RestoreToolOutputs},
        event::{Payload, StoredEvent},
        policy::Changeable as _,
    },
    session::{mark_rows::PartPosition, marks::Marking},
    store,
    turn::{
        Error,
        context::{prompt_call::own_size, size::CalledModel, window::budget},
        engine::{Prompts, SessionCommands, supervised},
        optimistic::retry_on_change,
    },
};

impl SessionCommands {
    /// Prunes old tool results, or returns what a prune would clear in a dry run.
    pub async fn prune_tool_outputs(
        self: &Arc<Self>,
        tenant: TenantId,
        command: PruneToolOutputs,
    ) -> Result<PruneReport, Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let key = SessionKey::new(tenant, command.session.clone());
            let _memory = sessions.prompts.reserve_session_memory(&key, 0).await?;
            retry_on_change(|| sessions.try_prune(&key, &command)).await
        })
        .await
    }

    /// One attempt. Returns `None` if the context changed between the read and the write.
    async fn try_prune(&self, key: &SessionKey, command: &PruneToolOutputs) -> Result<Option<PruneReport>, Error> {
        let PruneToolOutputs { session: _, overrides, dry_run, idempotency } = command;
        let session = self.prompts.session(key).await?;
        if let Some(told) = self.prompts.remembered_outcome(key, idempotency).await? {
            return told.map_or(Ok(Some(PruneReport::default())), |event| pruned(&event).map(Some));
        }
        let policy = self.prompts.policy(&session.config)?.context.prune.with(overrides);
        let seen = self.store.transcript(key).await?;
        let is_protected = policy.protect_tokens > 0 || policy.protect_turns > 0;
        let chosen = if is_protected || session.current_turn.is_some() {
            choose(&seen.messages, &policy)
        } else {
            choose_all(&seen.messages, &policy)
        };
        let (Some(pruning), Some(version)) = (chosen, seen.context_version) else {
            let nothing = *dry_run || self.prompts.remember_no_effect(key, idempotency).await?;
            return Ok(nothing.then(PruneReport::default));
        };
        let model = self.prompts.model(&session.config.model).ok();
        let size =
            own_size(&session.config, CalledModel::named(&session.config.model, model.as_ref()), (&session).into());
        let report = report(&pruning, pruning.rebilled(size.cached_tokens(), size.non_transcript_tokens()));
        if *dry_run {
            return Ok(Some(report));
        }
        self.clear(key, &pruning, report, version, Some((idempotency, ""))).await
    }

    /// Clears the chosen outputs if the context still has this version, and stores the outcome for
    /// the request. Returns `None` if the version changed, or the request is already known.
    pub(in crate::turn) async fn clear(
        &self,
        key: &SessionKey,
        pruning: &Pruning,
        report: PruneReport,
        version: i64,
        request: Option<(&Idempotency, &str)>,
    ) -> Result<Option<PruneReport>, Error> {
        let places: Vec<PartPosition> =
            pruning.outputs.iter().map(|output| (output.message.clone(), output.position)).collect();
        let saved = |output: &Output| i64::from(output.tokens) - i64::from(placeholder_tokens());
        let pruned = Payload::ContextPruned { report: report.clone() };
        let marking =
            Marking { seen: version, places: &places, tokens: pruning.outputs.iter().map(saved).sum(), event: &pruned };
        let unkeyed = Idempotency::none();
        let request = request.unwrap_or((&unkeyed, ""));
        let pruned = self.store.prune(key, &marking, placeholder_tokens(), request);
        let Some(moved) = pruned.await? else {
            return Ok(None);
        };
        tracing::info!(
            session.id = %key.session, outputs = report.calls.len(), tokens.saved = report.saved,
            tokens.rebilled = report.rebilled, "pruned old tool results"
        );
        self.metrics.pruned(report.saved);
        self.live.notify_readers(key, moved.last_seq);
        Ok(Some(PruneReport { at: Some(moved.last_seq), ..report }))
    }

    /// Prunes after the end of a turn, whatever its outcome, so that the next prompt is smaller
    /// (feature row S17). If the session changes concurrently, the prune is left to the next turn.
    pub(in crate::turn) async fn prune_after_turn(&self, key: &SessionKey) {
        if let Err(error) = self.try_prune_after_turn(key).await {
            tracing::warn!(session.id = %key.session, %error, "pruning after a turn failed");
        }
    }

    async fn try_prune_after_turn(&self, key: &SessionKey) -> Result<(), Error> {
        let looked = self.prompts.session_view(key).await?;
        let policy = self.prompts.policy(&looked.session.config)?.context;
        let model = self.prompts.model(looked.model(None))?;
        if looked.session.current_turn.is_some() {
            return Ok(());
        }
        let Ok(budget) = budget(&policy, &model) else {
            return Ok(());
        };
        if let Some((pruning, planned)) = looked.due(&policy, &model, budget)
            && let Some(report) = planned.prune
        {
            let version = looked.session.context_version;
            self.clear(key, &pruning, report, version, None).await?;
        }
        Ok(())
    }

    /// Reverts a prune.
    pub async fn restore_tool_outputs(
        self: &Arc<Self>,
        tenant: TenantId,
        command: RestoreToolOutputs,
    ) -> Result<Restored, Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let key = SessionKey::new(tenant, command.session.clone());
            retry_on_change(|| sessions.try_restore(&key, &command)).await
        })
        .await
    }

    async fn try_restore(&self, key: &SessionKey, command: &RestoreToolOutputs) -> Result<Option<Restored>, Error> {
        let RestoreToolOutputs { session: _, pruned_at, idempotency } = command;
        let found = self.store.cleared_by(key, *pruned_at).await?;
        let found = found.ok_or_else(|| Error::SessionNotFound(key.session.clone()))?;
        let nothing = Restored { pruned_at: *pruned_at, ..Restored::default() };
        if let Some(told) = self.prompts.remembered_outcome(key, idempotency).await? {
            return told.map_or(Ok(Some(nothing)), |event| {
                codec::ledger::decode_restored(&event.payload)
                    .map(Some)
                    .map_err(|error| store::Error::from(error).into())
            });
        }
        if !found.known {
            return Err(Error::PruneNotFound(*pruned_at));
        }
        if found.results.is_empty() {
            return Ok(self.prompts.remember_no_effect(key, idempotency).await?.then_some(nothing));
        }
        let restored = Restored {
            pruned_at: *pruned_at,
            calls: found.results.iter().map(|result| result.call.clone()).collect(),
            tokens: found.results.iter().map(|result| result.saved).fold(0, u32::saturating_add),
        };
        let tokens = found.results.iter().map(|result| i64::from(result.saved));
        let tokens = tokens.sum();
        let places: Vec<PartPosition> = found.results.into_iter().map(|result| result.place).collect();
        let event = Payload::ContextRestored { restored: restored.clone() };
        let marking = Marking { seen: found.version, places: &places, tokens, event: &event };
        let returned = self.store.restore(key, &marking, *pruned_at, idempotency).await?;
        let Some(moved) = returned else {
            return Ok(None);
        };
        self.live.notify_readers(key, moved.last_seq);
        Ok(Some(restored))
    }
}

impl Prompts {
    /// The stored outcome of the same request: its event, or that there was nothing to do. Returns
    /// `None` if the request is new.
    async fn remembered_outcome(
        &self,
        key: &SessionKey,
        idempotency: &Idempotency,
    ) -> Result<Option<Option<StoredEvent>>, Error> {
        let Some(result) = self.stored_result(key, idempotency).await? else {
            return Ok(None);
        };
        if result.is_empty() {
            return Ok(Some(None));
        }
        let missing = || Error::Internal(format!("no event matches the stored result {result:?} of a prune"));
        let seq = result.parse().map(Seq).map_err(|_| missing())?;
        self.store.event(key, seq).await?.ok_or_else(missing).map(|event| Some(Some(event)))
    }

    /// Remembers that there was nothing to do. Returns `false` if the same request pruned
    /// concurrently; then that outcome is the response.
    async fn remember_no_effect(&self, key: &SessionKey, idempotency: &Idempotency) -> Result<bool, Error> {
        Ok(self.store_result(key, idempotency, "").await?.is_none_or(|first| first.is_empty()))
    }
}

/// The report of a prune.
pub(in crate::turn) fn report(pruning: &Pruning, rebilled: u32) -> PruneReport {
    PruneReport {
        calls: pruning.outputs.iter().map(|output| output.call.clone()).collect(),
        tools: pruning.tools(),
        saved: pruning.saved,
        rebilled,
        at: None,
    }
}

fn pruned(event: &StoredEvent) -> Result<PruneReport, Error> {
    codec::ledger::decode_prune_report(&event.payload, event.seq).map_err(|error| store::Error::from(error).into())
}
