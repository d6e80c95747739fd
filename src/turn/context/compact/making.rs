//! Makes a compaction that has begun: drafts it while its lease is renewed, and puts it in force or gives it up.

use std::{future::Future, time::Duration};

use crate::{
    codec,
    context::compact::{self, gain::gained_enough},
    model::{
        Compaction, CompactionId, CompactionState, Failure, FailureReason, Payload, SessionKey, UsagePurpose,
        event::{StepPosition, UsageRecorded},
    },
    session::{
        compaction::FailedCompaction,
        compaction_rows::{Cost, Replacement},
        rows::{NewMessage, Rows},
    },
    store::{self, Store, compaction::CompactionOutcome},
    telemetry::Trace,
    turn::{
        Error,
        context::{
            compact::draft::{CompactionRequest, Draft},
            measured::message_tokens,
        },
        engine::SessionCommands,
    },
};

/// Attempts to write the end of a compaction while the database does not respond.
const WRITES: u32 = 10;
/// Pause between these attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Renewals per lease duration.
const RENEWALS: u32 = 3;

/// A compaction that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Making<'a> {
    pub(super) sessions: &'a SessionCommands,
    pub(super) key: &'a SessionKey,
    pub(super) request: &'a CompactionRequest,
}

impl Making<'_> {
    /// Makes the compaction, and puts it in force or gives it up. `cut` stops it early and resolves
    /// with the reason.
    pub(super) async fn make(
        self,
        begun: Compaction,
        cut: impl Future<Output = &'static str> + Send,
    ) -> Result<Compaction, Error> {
        let Some(id) = begun.id.clone() else {
            return Err(Error::Internal("a compaction has no id".to_owned()));
        };
        let (key, store) = (self.key, &self.sessions.store);
        let span = Trace::current().compaction(key);
        let mut cost = Cost::default();
        let drafted = tokio::select! {
            biased;
            drafted = span.trace().clone().scope(self.draft(&begun, &mut cost)) => drafted,
            why = cut => Err(given_up(why)),
            () = keep_lease(store, key, &id) => Err(given_up("its lease expired")),
        };
        match drafted {
            Ok(draft) => self.put_in_force(&id, draft, &cost).await?,
            Err(failure) => self.give_up(&id, begun, failure, &cost).await?,
        }
        let made = store.compaction(key, &id).await?;
        if let Some(made) = &made {
            span.compacted(made);
        }
        made.ok_or_else(|| Error::SessionNotFound(key.session.clone()))
    }

    /// Tries one way after the other.
    async fn draft(self, begun: &Compaction, cost: &mut Cost) -> Result<Draft, Failure> {
        let request = self.request;
        let situation = request.situation();
        let mut failure = None;
        for way in request.ways() {
            let Some(plan) = compact::plan(way, &situation).filter(|plan| request.helps(plan)) else {
                continue;
            };
            let strategy = way.strategy();
            let written = if strategy.summarises() {
                match self.summarise(&plan, cost).await {
                    Ok(written) => Some(written),
                    Err(reason) => {
                        tracing::warn!(?strategy, reason = reason.message, "failed to write a summary");
                        failure = Some(*reason);
                        continue;
                    }
                }
            } else {
                request.substitute(&plan).map(|text| (text, String::new()))
            };
            let draft = request.draft(begun, plan, written);
            let after = draft.plan.size_after(&situation, draft.summary.as_ref().map_or(0, message_tokens));
            let told = draft.compaction.tokens_after.as_ref().map_or(after, |after| after.tokens);
            let bound = request.bound().filter(|bound| told > *bound);
            let exceeds = way.replaces_unanswered() && request.input.exceeds(told);
            if bound.is_none() && !exceeds && gained_enough(situation.size, after) {
                return Ok(draft);
            }
            tracing::warn!(
                ?strategy,
                tokens.before = situation.size,
                tokens.after = after,
                "a compaction would save too little"
            );
            failure = Some(match bound {
                Some(bound) => no_gain(&format!("it would leave {told} tokens, more than the requested {bound}")),
                None if exceeds => {
                    no_gain(&format!("it would leave {told} tokens, which still exceed the context window"))
                }
                None => no_gain("it would hardly reduce the context"),
            });
        }
        Err(failure.unwrap_or_else(|| no_gain("nothing can be compacted")))
    }

    /// Puts a compaction in force. Gives it up if the context has changed.
    async fn put_in_force(self, id: &CompactionId, draft: Draft, cost: &Cost) -> Result<(), Error> {
        let Self { sessions, key, request: _ } = self;
        let Draft { compaction, shift, summary, estimator, plan } = draft;
        let compaction = Compaction {
            state: CompactionState::Applied,
            usage: cost.totals(),
            ended_at: Some(sessions.prompts.now()),
            ..compaction
        };
        let completed = Payload::CompactionCompleted(Box::new(compaction.clone()));
        let accounts = self.accounts(cost, id, summary.as_ref()).await;
        let mut rows = Rows::new(&estimator.name(), 0);
        match summary {
            Some(summary) => rows.summary(completed, summary),
            None => rows.event(completed, StepPosition::default()),
        }
        for account in accounts {
            rows.event(account, StepPosition::default());
        }
        let replacement = Replacement {
            from: plan.from,
            to: plan.to,
            kept: &plan.kept,
            hides_pinned: plan.hides_pinned,
            shift,
            rows: &rows,
            info: &codec::compaction::encode(&compaction),
            cost,
        };
        let swapped = insist(|| sessions.store.swap_compaction(key, id, &replacement)).await?;
        if let Some(moved) = swapped.update {
            tracing::info!(
                session.id = %key.session, compaction.id = %id, tokens.before = compaction.tokens_before.tokens,
                tokens.after = compaction.tokens_after.as_ref().map_or(0, |after| after.tokens),
                messages = compaction.messages_compacted, strategy = ?compaction.strategy, "context compacted"
            );
            sessions.metrics.compacted(&compaction);
            sessions.live.notify_readers(key, moved.last_seq);
        } else if swapped.status == Some(CompactionState::Running) {
            let failure = given_up("the context changed during the compaction");
            self.give_up(id, compaction, failure, cost).await?;
        }
        Ok(())
    }

    async fn give_up(
        self,
        id: &CompactionId,
        compaction: Compaction,
        failure: Failure,
        cost: &Cost,
    ) -> Result<(), Error> {
        let Self { sessions, key, request: _ } = self;
        tracing::warn!(session.id = %key.session, compaction.id = %id, reason = failure.message, "compaction failed");
        let compaction = Compaction {
            state: CompactionState::Failed,
            tokens_after: None,
            usage: cost.totals(),
            failure: Some(failure),
            ended_at: Some(sessions.prompts.now()),
            ..compaction
        };
        sessions.metrics.compacted(&compaction);
        let info = codec::compaction::encode(&compaction);
        let mut rows = Rows::default();
        let failed = Payload::CompactionFailed(Box::new(compaction));
        for payload in std::iter::once(failed).chain(self.accounts(cost, id, None).await) {
            rows.event(payload, StepPosition::default());
        }
        let failed = FailedCompaction { rows: &rows, info: &info, cost };
        let failed = insist(|| sessions.store.fail_compaction(key, id, &failed)).await?;
        if let Some(moved) = failed.update {
            sessions.live.notify_readers(key, moved.last_seq);
        }
        Ok(())
    }

    /// One usage record per model call of the compaction. The last call wrote the summary.
    async fn accounts(self, cost: &Cost, id: &CompactionId, summary: Option<&NewMessage>) -> Vec<Payload> {
        let ratio = self.sessions.prompts.ratio(&self.key.tenant, &cost.model).await;
        let last = cost.calls.len().saturating_sub(1);
        let call = |(at, usage): (usize, &Option<crate::model::Usage>)| {
            Payload::UsageRecorded(UsageRecorded {
                purpose: UsagePurpose::Compaction,
                model: cost.model.clone(),
                usage: usage.clone(),
                estimate: None,
                ratio,
                message: summary.filter(|_| at == last).map(|message| message.id.clone()),
                compaction: Some(id.clone()),
            })
        };
        cost.calls.iter().enumerate().map(call).collect()
    }
}

/// Repeats a write until the database responds. A repetition returns what the first one wrote.
async fn insist<F>(write: impl Fn() -> F + Send + Sync) -> Result<CompactionOutcome, Error>
where
    F: Future<Output = Result<CompactionOutcome, store::Error>> + Send,
{
    for _ in 1..WRITES {
        match write().await {
            Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
            answer => return Ok(answer?),
        }
    }
    Ok(write().await?)
}

/// Renews the lease of a compaction. Returns when the lease is lost.
async fn keep_lease(store: &Store, key: &SessionKey, id: &CompactionId) {
    loop {
        tokio::time::sleep(store.lease_ttl() / RENEWALS).await;
        if matches!(store.renew_compaction(key, id).await, Ok(false)) {
            return;
        }
    }
}

/// A failure that would recur with the same context.
fn no_gain(why: &str) -> Failure {
    Failure::local(FailureReason::ContextOverflow, why, false)
}

fn given_up(why: &str) -> Failure {
    Failure::local(FailureReason::Internal, why, true)
}
