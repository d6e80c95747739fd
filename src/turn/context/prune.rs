//! PruneToolOutputs and RestoreToolOutputs, and the automatic prune after a turn.

use std::sync::Arc;

use crate::{
    codec,
    context::{
        compact,
        prune::{Output, Pruning, choose, choose_all, placeholder_tokens},
    },
    model::{
        PruneReport, RequestId, Restored, Seq, SessionKey, TenantId,
        command::{Idempotency, PruneToolOutputs, RestoreToolOutputs},
        event::{Payload, StoredEvent},
        policy::Changeable as _,
    },
    session::{mark_rows::PartPosition, marks::Marking},
    store,
    turn::{
        Error,
        context::{prompt_call::own_size, size::CalledModel, window::budget},
        engine::Engine,
        optimistic::retry_on_change,
    },
};

impl Engine {
    /// Prunes old tool results, or returns what a prune would clear in a dry run.
    pub async fn prune_tool_outputs(
        self: &Arc<Self>,
        tenant: TenantId,
        command: PruneToolOutputs,
    ) -> Result<PruneReport, Error> {
        self.supervised(async move |engine| {
            let key = SessionKey::new(tenant, command.session.clone());
            let _memory = engine.reserve_session_memory(&key, 0).await?;
            retry_on_change(|| engine.try_prune(&key, &command)).await
        })
        .await
    }

    /// One attempt. Returns `None` if the context changed between the read and the write.
    async fn try_prune(&self, key: &SessionKey, command: &PruneToolOutputs) -> Result<Option<PruneReport>, Error> {
        let PruneToolOutputs { session: _, overrides, dry_run, idempotency } = command;
        let session = self.session(key).await?;
        if let Some(told) = self.remembered_outcome(key, idempotency).await? {
            return told.map_or(Ok(Some(PruneReport::default())), |event| pruned(&event).map(Some));
        }
        let policy = self.policy(&session.config)?.context.prune.with(overrides);
        let seen = self.store().transcript(key).await?;
        let is_protected = policy.protect_tokens > 0 || policy.protect_turns > 0;
        let chosen = if is_protected || session.current_turn.is_some() {
            choose(&seen.messages, &policy)
        } else {
            choose_all(&seen.messages, &policy)
        };
        let (Some(pruning), Some(version)) = (chosen, seen.context_version) else {
            let nothing = *dry_run || self.remember_no_effect(key, idempotency).await?;
            return Ok(nothing.then(PruneReport::default));
        };
        let model = self.model(&session.config.model).ok();
        let size =
            own_size(&session.config, CalledModel::named(&session.config.model, model.as_ref()), (&session).into());
        let report = report(&pruning, pruning.rebilled(size.cached_tokens(), size.non_transcript_tokens()));
        if *dry_run {
            return Ok(Some(report));
        }
        self.clear(key, &pruning, report, version, (idempotency, "")).await
    }

    /// Clears the chosen outputs if the context still has this version, and stores the outcome for
    /// the request. Returns `None` if the version changed, or the request is already known.
    pub(in crate::turn) async fn clear(
        &self,
        key: &SessionKey,
        pruning: &Pruning,
        report: PruneReport,
        version: i64,
        (idempotency, led): (&Idempotency, &str),
    ) -> Result<Option<PruneReport>, Error> {
        let places: Vec<PartPosition> =
            pruning.outputs.iter().map(|output| (output.message.clone(), output.position)).collect();
        let saved = |output: &Output| i64::from(output.tokens) - i64::from(placeholder_tokens());
        let pruned = Payload::ContextPruned { report: report.clone() };
        let marking =
            Marking { seen: version, places: &places, tokens: pruning.outputs.iter().map(saved).sum(), event: &pruned };
        let request = (idempotency, led);
        let pruned = self.store().prune(key, &marking, placeholder_tokens(), request);
        let Some(moved) = pruned.await? else {
            return Ok(None);
        };
        tracing::info!(
            session.id = %key.session, outputs = report.calls.len(), tokens.saved = report.saved,
            tokens.rebilled = report.rebilled, "pruned old tool results"
        );
        self.metrics.pruned(report.saved);
        self.notify_readers(key, moved.last_seq);
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
        let looked = self.session_view(key).await?;
        let policy = self.policy(&looked.session.config)?.context;
        let model = self.model(looked.model(None))?;
        if looked.session.current_turn.is_some() {
            return Ok(());
        }
        let Ok(budget) = budget(&policy, &model) else {
            return Ok(());
        };
        let size = looked.size(&model).size().at_most();
        let compacts = compact::trigger::due(&policy.compaction, budget, size, model.provider.is_local()).is_some();
        if let Some((pruning, planned)) = looked.due(&policy.prune, &model, budget, compacts)
            && let Some(report) = planned.prune
        {
            let version = looked.session.context_version;
            self.clear(key, &pruning, report, version, (&unkeyed(), "")).await?;
        }
        Ok(())
    }

    /// Reverts a prune.
    pub async fn restore_tool_outputs(
        self: &Arc<Self>,
        tenant: TenantId,
        command: RestoreToolOutputs,
    ) -> Result<Restored, Error> {
        self.supervised(async move |engine| {
            let key = SessionKey::new(tenant, command.session.clone());
            retry_on_change(|| engine.try_restore(&key, &command)).await
        })
        .await
    }

    async fn try_restore(&self, key: &SessionKey, command: &RestoreToolOutputs) -> Result<Option<Restored>, Error> {
        let RestoreToolOutputs { session: _, pruned_at, idempotency } = command;
        let found = self.store().cleared_by(key, *pruned_at).await?;
        let found = found.ok_or_else(|| Error::SessionNotFound(key.session.clone()))?;
        let nothing = Restored { pruned_at: *pruned_at, ..Restored::default() };
        if let Some(told) = self.remembered_outcome(key, idempotency).await? {
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
            return Ok(self.remember_no_effect(key, idempotency).await?.then_some(nothing));
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
        let returned = self.store().restore(key, &marking, *pruned_at, idempotency).await?;
        let Some(moved) = returned else {
            return Ok(None);
        };
        self.notify_readers(key, moved.last_seq);
        Ok(Some(restored))
    }

    /// The stored outcome of the same request: its event, or that there was nothing to do. Returns
    /// `None` if the request is new.
    async fn remembered_outcome(
        &self,
        key: &SessionKey,
        idempotency: &Idempotency,
    ) -> Result<Option<Option<StoredEvent>>, Error> {
        let Some(request) = &idempotency.request else {
            return Ok(None);
        };
        let Some(remembered) = self.store().stored_request(key, request).await? else {
            return Ok(None);
        };
        if remembered.hash != idempotency.hash {
            return Err(Error::IdempotencyMismatch(request.clone()));
        }
        if remembered.result.is_empty() {
            return Ok(Some(None));
        }
        let missing =
            || Error::Internal(format!("no event matches the stored result {:?} of a prune", remembered.result));
        let seq = remembered.result.parse().map(Seq).map_err(|_| missing())?;
        self.store().event(key, seq).await?.ok_or_else(missing).map(|event| Some(Some(event)))
    }

    /// Remembers that there was nothing to do. Returns `false` if the same request pruned
    /// concurrently; then that outcome is the response.
    async fn remember_no_effect(&self, key: &SessionKey, idempotency: &Idempotency) -> Result<bool, Error> {
        let Some(request) = &idempotency.request else {
            return Ok(true);
        };
        match self.store().store_request_result(key, idempotency, "").await? {
            Some(first) if first.hash != idempotency.hash => Err(Error::IdempotencyMismatch(request.clone())),
            Some(first) => Ok(first.result.is_empty()),
            None => Ok(true),
        }
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

/// The idempotency of an automatic prune or compaction: no key.
pub(in crate::turn) fn unkeyed() -> Idempotency {
    Idempotency { request: None::<RequestId>, hash: String::new() }
}

fn pruned(event: &StoredEvent) -> Result<PruneReport, Error> {
    codec::ledger::decode_prune_report(&event.payload, event.seq).map_err(|error| store::Error::from(error).into())
}
