//! SubmitToolResults: writes results and decisions in one statement. The last answer makes this
//! replica the turn's owner.

use std::sync::Arc;

use uuid::Uuid;

use crate::{
    model::{
        CallId, Role, SessionKey, TenantId,
        command::{AnswerStatus, Idempotency, SubmitToolResults},
    },
    session::{answers::Approval, change::Answer},
    store::answers::{Submission, SubmissionOutcome},
    turn::{
        Error,
        engine::{Engine, supervised},
        idempotency::check_same,
        run::cause::Cause,
        tools::{
            answers::AnsweredCalls,
            receipts::{AnswerContent, status},
        },
    },
};

/// The outcome of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipts {
    /// One per answer, in order.
    pub answers: Vec<(CallId, AnswerStatus)>,
    /// Calls that are still open.
    pub pending: Vec<CallId>,
}

impl Engine {
    /// Stores results and decisions for tool calls.
    pub async fn submit(self: &Arc<Self>, tenant: TenantId, command: SubmitToolResults) -> Result<Receipts, Error> {
        supervised(&self.capacity, self, async move |engine| {
            let key = SessionKey::new(tenant, command.session.clone());
            engine.sessions.keep(&key.tenant, &command.contents).await?;
            engine.answer(&key, command).await
        })
        .await
    }

    async fn answer(self: &Arc<Self>, key: &SessionKey, command: SubmitToolResults) -> Result<Receipts, Error> {
        let (turn, known) = match self.prompts.remembered_answered_turn(key, &command) {
            Some((turn, known)) => (Some(turn), known),
            None => self.prompts.read_answered_turn(key, &command).await?,
        };
        let open = known.values().find(|call| call.state.is_open());
        let context = match turn.as_ref().zip(open) {
            Some((turn, call)) => Some(self.prompts.answer_context(key, turn, call.step, call.batch).await?),
            None => None,
        };
        let SubmitToolResults { session: _, idempotency, results, decisions, contents: _ } = command;
        let asked = AnsweredCalls { store: &self.store, key, known: &known, context };
        let mut answers = asked.results(results).await?;
        let result = |answer: &Answer| (answer.call.clone(), AnswerContent::Result(answer.hash.clone()));
        let mut sent: Vec<(CallId, AnswerContent)> = answers.iter().map(result).collect();
        let (approvals, denials) = asked.decide(decisions, &mut sent).await?;
        answers.extend(denials);
        let ids: Vec<CallId> = sent.iter().map(|(call, _)| call.clone()).collect();
        let submitted = self.write(&asked, &answers, &approvals, &ids, &idempotency).await?;
        if submitted.calls.is_empty() {
            return Err(Error::SessionNotFound(key.session.clone())); // the session existed only in this replica's memory
        }
        let receipts = sent.into_iter().map(|(call, sent)| {
            let status = known.get(&call).map(|seen| status(&call, &sent, seen, &submitted));
            (call, status.unwrap_or(AnswerStatus::Stale))
        });
        Ok(Receipts { answers: receipts.collect(), pending: submitted.pending.clone() })
    }

    /// Writes the answers, and continues the turn if they were the last ones.
    pub(super) async fn write(
        self: &Arc<Self>,
        asked: &AnsweredCalls<'_>,
        answers: &[Answer],
        approvals: &[Approval],
        named: &[CallId],
        idempotency: &Idempotency,
    ) -> Result<SubmissionOutcome, Error> {
        let (key, estimator) = (asked.key, asked.estimator());
        let id = Uuid::now_v7().to_string();
        let submission = Submission {
            id: &id,
            answers,
            approvals,
            named,
            idempotency,
            estimator: &estimator.name(),
            overhead: estimator.overhead(Role::Tool, []),
            next: &asked.next(answers),
        };
        let mut request = self.capacity.leases.request(key);
        let submitted = request
            .answered(self.store.submit(key, &submission).await)
            .inspect_err(|error| self.resolve_submission(key, id.clone(), error))?;
        if let Some(first) = &submitted.first {
            check_same(&first.hash, idempotency)?;
        }
        self.run_mcp_calls(key, &submitted.requested);
        match &submitted.grant {
            Some(grant) => self.start(key.clone(), grant.clone(), request.sent(), Cause::Answered),
            None => self.live.notify_readers(key, submitted.last_seq),
        }
        Ok(submitted)
    }
}
