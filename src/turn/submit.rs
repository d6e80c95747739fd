//! SubmitToolResults: answers are cut to the tool's limits and written; the last one makes this replica the turn's owner.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use super::{
    Engine, Error,
    execute::{step_started, total},
    next::after_step,
    sessions::outside_tokens,
};
use crate::{
    context::{
        estimate,
        truncate::{cut_texts, join},
    },
    model::{
        BlobId, CallId, Content, Part, SessionKey, TenantId, ToolOutcome, ToolResult, Truncation, TurnId,
        command::{AnswerStatus, Idempotency, SubmitToolResults, SubmittedResult},
        config::Policy,
        derive,
    },
    store::{
        import::NO_TURN,
        tool_call::{Answer, KnownCall, NextStep, Submission, Submitted},
        turn_read::Turn,
    },
};

/// The media type of outputs that are kept as blobs.
const OUTPUT_TYPE: &str = "text/plain; charset=utf-8";

/// What the model reads when no result came in time.
const OVERDUE_WORDS: &str = "[No result came in time.]";

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipts {
    /// One for each answer, in order.
    pub answers: Vec<(CallId, AnswerStatus)>,
    /// Calls that still wait.
    pub pending: Vec<CallId>,
}

/// The turn whose calls are answered, and what goes on with it after the last answer.
struct Addressee {
    turn: Turn,
    policy: Policy,
    next: NextStep,
}

impl Engine {
    /// Takes answers to tool calls.
    pub async fn submit(self: &Arc<Self>, tenant: TenantId, command: SubmitToolResults) -> Result<Receipts, Error> {
        let engine = Arc::clone(self);
        self.supervised(async move {
            let key = SessionKey::new(tenant, command.session.clone());
            engine.answer(&key, command).await
        })
        .await
    }

    async fn answer(self: &Arc<Self>, key: &SessionKey, command: SubmitToolResults) -> Result<Receipts, Error> {
        let request = command.idempotency.request.as_ref();
        let standing = self.store.standing(key, request).await?;
        let standing = standing.ok_or_else(|| Error::SessionNotFound(key.session.clone()))?;
        if let (Some(remembered), Some(request)) = (&standing.remembered, request)
            && remembered.hash != command.idempotency.hash
        {
            return Err(Error::IdempotencyMismatch(request.clone()));
        }
        let ids: Vec<CallId> = command.results.iter().map(|result| result.call.clone()).collect();
        let known = self.store.calls(key, &ids).await?;
        let unknown: Vec<_> = ids.iter().cloned().enumerate().filter(|(_, id)| !known.contains_key(id)).collect();
        if !unknown.is_empty() {
            return Err(Error::UnknownCalls(unknown));
        }
        // Calls that the host appended belong to no turn.
        let appended = |id: &CallId| known.get(id).is_some_and(|call| call.turn.as_str() == NO_TURN);
        let appended: Vec<_> = ids.iter().cloned().enumerate().filter(|(_, id)| appended(id)).collect();
        if !appended.is_empty() {
            return Err(Error::AppendedCalls(appended));
        }
        let open = known.values().find(|call| call.open).map(|call| (call.turn.clone(), call.step));
        let addressee = match open {
            Some((turn, step)) => Some(self.addressee(key, &turn, step).await?),
            None => None,
        };
        let mut answers = Vec::with_capacity(command.results.len());
        for result in command.results {
            answers.push(self.prepare(key, result, &known, addressee.as_ref()).await?);
        }
        let next = addressee.map_or(NextStep { started: None, outside: 0 }, |addressee| addressee.next);
        let submitted = self.write(key, &answers, false, &command.idempotency, &next).await?;
        let receipts =
            answers.iter().map(|answer| (answer.call.clone(), status(answer, &submitted, &command.idempotency)));
        Ok(Receipts { answers: receipts.collect(), pending: submitted.pending.clone() })
    }

    /// Closes the calls whose time is up with an error result, as nobody's answer. False: there was nothing to close.
    pub(super) async fn close_overdue(self: &Arc<Self>, key: &SessionKey) -> Result<bool, Error> {
        let overdue: Vec<CallId> = self
            .store
            .open_calls(key)
            .await?
            .into_iter()
            .filter_map(|(pending, late)| late.then_some(pending.call.id))
            .collect();
        let known = self.store.calls(key, &overdue).await?;
        let Some(call) = known.values().find(|call| call.overdue) else { return Ok(false) };
        let addressee = self.addressee(key, &call.turn, call.step).await?;
        let mut answers = Vec::with_capacity(overdue.len());
        for call in overdue {
            let texts = vec![OVERDUE_WORDS.to_owned()];
            let result = SubmittedResult { call, texts, outcome: ToolOutcome::TimedOut, sanitized: false };
            answers.push(self.prepare(key, result, &known, None).await?);
        }
        let nobody = Idempotency { request: None, hash: String::new() };
        let submitted = self.write(key, &answers, true, &nobody, &addressee.next).await?;
        Ok(!submitted.accepted.is_empty())
    }

    /// The turn that made the calls of a step, and the step that follows it.
    async fn addressee(&self, key: &SessionKey, turn: &TurnId, step: u32) -> Result<Addressee, Error> {
        let turn = self.store.turn(key, turn).await?.ok_or_else(|| Error::TurnNotFound(turn.clone()))?;
        let session = self.session(key).await?;
        let policy = self.policy(&turn.config)?;
        let model = self.model(turn.request.model.as_ref().unwrap_or(&turn.config.model))?;
        let limits = self.limits(&turn.config, &turn.request);
        let tools = turn.request.tools.as_ref().unwrap_or(&turn.config.tools);
        let outside = outside_tokens(&turn.config, tools, model.info.supports_tools);
        let started = after_step(step, &turn.so_far.total_usage, &limits).is_none().then(|| {
            let expected = total(session.context_tokens, outside);
            crate::codec::event::encode(&step_started(&model, session.revision, expected)).payload
        });
        Ok(Addressee { policy, next: NextStep { started, outside }, turn })
    }

    /// An answer as it is written: cut to the tool's limits, the whole output kept as a blob.
    async fn prepare(
        &self,
        key: &SessionKey,
        result: SubmittedResult,
        known: &BTreeMap<CallId, KnownCall>,
        addressee: Option<&Addressee>,
    ) -> Result<Answer, Error> {
        let SubmittedResult { call, texts, outcome, sanitized } = result;
        let hash = fingerprint(&texts, outcome);
        let name = known.get(&call).map(|call| call.name.clone()).unwrap_or_default();
        let mut result = ToolResult { call: call.clone(), name, texts, outcome, truncation: None };
        if let Some(Addressee { turn, policy, .. }) = addressee {
            let tools = turn.request.tools.as_ref().unwrap_or(&turn.config.tools);
            let limits = policy.limits_for(&result.name, tools.get(&result.name).and_then(|tool| tool.output_limits));
            self.cut(key, &mut result, &limits).await?;
        }
        let full_output = result.truncation.as_ref().map(|truncation| truncation.full_output.clone());
        let mut part = Part::new(Content::ToolResult(result));
        part.sanitized = sanitized;
        let tokens = estimate::part(&part, crate::model::Role::Tool).tokens;
        Ok(Answer { call, part, tokens, hash, full_output })
    }

    /// Cuts a result to its limits. What is cut is kept whole first, so that nothing ever refers to a blob that is not there.
    pub(super) async fn cut(
        &self,
        key: &SessionKey,
        result: &mut ToolResult,
        limits: &crate::model::OutputLimits,
    ) -> Result<(), Error> {
        let cut = cut_texts(&result.texts, limits);
        if !cut.truncated {
            return Ok(());
        }
        let whole = join(&result.texts);
        let id: BlobId = derive::blob(whole.as_bytes());
        self.store.put_blob(&key.tenant, &id, OUTPUT_TYPE, whole.as_bytes()).await?;
        let full_bytes = u64::try_from(whole.len()).unwrap_or(u64::MAX);
        result.truncation = Some(Truncation {
            original_chars: cut.original_chars,
            kept_chars: cut.kept_chars,
            full_output: id,
            full_bytes,
        });
        result.texts = cut.texts;
        Ok(())
    }

    /// Writes answers, and goes on with the turn if they were the last ones.
    async fn write(
        self: &Arc<Self>,
        key: &SessionKey,
        answers: &[Answer],
        overdue_only: bool,
        idempotency: &Idempotency,
        next: &NextStep,
    ) -> Result<Submitted, Error> {
        let submission = Submission {
            answers,
            overdue_only,
            idempotency,
            estimator: estimate::ESTIMATOR,
            overhead: estimate::MESSAGE_OVERHEAD,
            next,
        };
        let sent = Instant::now();
        let submitted = self.store.submit(key, &submission).await?;
        if let (Some(first), Some(request)) = (&submitted.hash, &idempotency.request)
            && *first != idempotency.hash
        {
            return Err(Error::IdempotencyMismatch(request.clone()));
        }
        match &submitted.grant {
            Some(grant) => self.start(key.clone(), grant.clone(), sent),
            None => self.nudge(key, submitted.last_seq),
        }
        Ok(submitted)
    }

    /// Tells followers on this replica about events that it wrote.
    pub(super) fn nudge(&self, key: &SessionKey, seq: crate::model::Seq) {
        if let Some(channel) = self.hub.get(key) {
            channel.advance(seq);
        }
    }
}

fn status(answer: &Answer, submitted: &Submitted, idempotency: &Idempotency) -> AnswerStatus {
    if submitted.accepted.contains(&answer.call) {
        return AnswerStatus::Accepted;
    }
    match submitted.calls.get(&answer.call) {
        Some(call) if idempotency.request.is_some() && call.closed_by == idempotency.request => AnswerStatus::Accepted,
        Some(call) if call.answer.as_ref() == Some(&answer.hash) => AnswerStatus::Duplicate,
        Some(_) | None => AnswerStatus::Stale,
    }
}

/// What makes two answers the same.
fn fingerprint(texts: &[String], outcome: ToolOutcome) -> String {
    let outcome = format!("{outcome:?}");
    derive::fingerprint(std::iter::once(outcome.as_str()).chain(texts.iter().map(String::as_str)))
}
