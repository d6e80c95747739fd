//! The model call of a step, and how it ends: committed, failed and retried, or cut short.

use std::{sync::Arc, time::Duration};

use crate::{
    context::sent_prompt::SentPrompt,
    model::{
        CancelOutcome, ClosedTranscript, CompletionReason, Ending, Failure, FailurePhase, FinishReason, MessageId,
        Part, Payload, Prompt, Tally, Usage, UsagePurpose, derive,
        event::{Estimate, TurnRetrying},
    },
    provider::{self, Finish, assemble::AssembledResponse, error::Kind},
    session::{cost::StepCost, rows::Rows},
    store::written::WriteOutcome,
    telemetry::Trace,
    turn::{
        Error,
        context::{
            measured::{assistant, call_ids, compared, usage_recorded},
            reasoning,
        },
        retry::{self, RetryInput},
        run::{
            answer::{self, CallEnd, CutReason, FailedCall, Publisher, Timing, response},
            batch::BatchBuilder,
            decide::{TurnAction, ending_of},
            fallback::Fallback,
            spans,
            state::{Flow, Run, StepContext},
            watch::model_call,
            window,
        },
    },
};

/// What the provider reported of a call.
struct Reported {
    /// The model's calibration ratio before the call.
    ratio: f64,
    /// The reported usage, if its prompt size is plausible.
    size_report: Option<Usage>,
    /// The estimated and the reported size of the prompt that was sent.
    estimate: Option<Estimate>,
}

impl Run<'_> {
    /// Calls the model and commits its response.
    pub(super) async fn call(&mut self, step: &StepContext<'_>, transcript: ClosedTranscript) -> Result<Flow, Error> {
        let predicted = step.size.count.tokens;
        let quotas = &self.engine.capacity.quotas;
        let Ok(mut tokens) = quotas.reserve(&self.key.tenant, predicted, step.most_output()) else {
            return Ok(Flow::Continue); // another call of the tenant took the tokens concurrently
        };
        let message = derive::answer(self.turn, step.at);
        self.writing = Some(message.clone());
        let (last_step, calls) = self.calls;
        let before = if last_step == step.at.step { calls } else { 0 };
        self.calls = (step.at.step, before + 1);
        let mut taken = call_ids(transcript.messages());
        if step.hides {
            taken.extend(self.engine.store.call_ids(self.key).await?);
        }
        let prompt = self.prompt(step, transcript).await?;
        let of_loop = reasoning::tool_loop(step.model, prompt.transcript.messages());
        let sent = window::sent(step, &prompt);
        // A large prompt is not kept while the response arrives: it would not be used for
        // calibration.
        let teaches = self.memory.is_none().then(|| Arc::clone(&prompt));
        if self.memory.is_some() {
            self.prompt_media.release_contents();
            self.media = 0;
        }
        let call = answer::Call {
            tenant: &self.key.tenant,
            model: step.model,
            prompt,
            message: message.clone(),
            taken,
            max_bytes: self.engine.prompts.rules.turn.max_answer_bytes,
            time_left: step.time_left(),
            room: Self::room_for_answer(step),
            flush: self.engine.prompts.rules.turn.delta_flush,
            publisher: Publisher { channel: self.channel, turn: self.turn, after: self.seq, at: step.at },
            memory: &mut self.memory,
        };
        self.watch.call(&self.engine.metrics);
        let span = Trace::current().model_call(model_call(step.model));
        let called = answer::call(call, self.lease, &self.engine.capacity.aborting);
        let (end, timing, written) = span.trace().clone().scope(called).await;
        tokens.charge(tokens_used(&end, predicted, written));
        drop(tokens);
        spans::answered(&span, &end, timing);
        drop(span);
        let metrics = &self.engine.metrics;
        self.watch.answered(metrics, model_call(step.model), &end, timing);
        // A prompt that was too long is read again immediately.
        if !matches!(&end, CallEnd::Failed(broken) if broken.error.kind == Kind::TooLong) {
            self.memory = None;
        }
        match end {
            CallEnd::Complete(assembled) => {
                self.answered(step, teaches, &message, assembled, (of_loop, sent, timing)).await
            }
            CallEnd::Failed(broken) => self.failed(step, &message, broken).await,
            CallEnd::Cut(cut, partial) => self.cut(step, &message, cut, partial, timing).await,
        }
    }

    /// Handles a complete response: commits it, or calls the model again if it is empty.
    async fn answered(
        &mut self,
        step: &StepContext<'_>,
        prompt: Option<Arc<Prompt>>,
        message: &MessageId,
        answer: AssembledResponse,
        (of_loop, sent, timing): (reasoning::SentLoop, SentPrompt, Timing),
    ) -> Result<Flow, Error> {
        // Read before the calibration: the report is compared with the ratio at the time of the
        // call.
        let ratio = self.engine.prompts.ratio(&self.key.tenant, &step.model.reference).await;
        let size_report = window::size_report(step, sent, &answer.finish).cloned();
        // The report may not apply to the prompt that was sent.
        let usage = size_report.as_ref().filter(|_| !answer.finish.ran_provider_tools());
        let predicted = &step.size.count;
        if let Some(usage) = usage {
            if let Some(prompt) = prompt {
                self.engine.prompts.learn(&self.key.tenant, step.model, prompt, usage.input);
            }
            self.engine.metrics.prompt_estimated(&step.model.reference, predicted.tokens, usage.input);
        }
        let estimate = usage.map(|usage| compared(predicted, usage));
        let reported = Reported { ratio, size_report, estimate };
        if self.must_retry_empty(step, &answer) {
            return self.retry_empty(step, message, &answer, &reported).await;
        }
        self.commit(step, message, answer, timing, (of_loop, &reported)).await
    }

    /// Commits a response. With calls, the turn waits for their results or continues; without
    /// calls, it ends.
    async fn commit(
        &mut self,
        step: &StepContext<'_>,
        message: &MessageId,
        answer: AssembledResponse,
        timing: Timing,
        (of_loop, reported): (reasoning::SentLoop, &Reported),
    ) -> Result<Flow, Error> {
        let AssembledResponse { mut parts, calls, pictures, finish } = answer;
        self.engine.sessions.keep_made(&self.key.tenant, &mut parts, &pictures).await?;
        let mut rows = self.rows_with_media_events(step);
        let response = response(step.model, &finish, timing);
        let answer = assistant(message, parts.clone(), response, step.estimator);
        let measured = reported.size_report.as_ref().map(|usage| {
            let usage = (usage, finish.ran_provider_tools());
            window::measured(step, usage, &answer, of_loop)
        });
        if !parts.is_empty() {
            rows.message(answer, step.at);
        }
        let written = (!parts.is_empty()).then_some(message);
        let usage = (finish.usage.as_ref(), reported.estimate);
        rows.event(usage_recorded(UsagePurpose::Turn, &step.model.reference, usage, reported.ratio, written), step.at);
        self.last_usage.clone_from(&finish.usage);
        let cost =
            StepCost { model: &step.model.reference, call: Some(finish.usage.as_ref()), message: written, measured };
        // The provider's own tools are still running: the next step continues the paused response.
        let paused = finish.reason == FinishReason::Paused && written.is_some();
        if paused && calls.is_empty() && !step.owned.late {
            let written = self.engine.store.append(self.key, self.turn_fence(), &rows, &cost, None).await?;
            return self.apply_written(written);
        }
        if calls.is_empty() {
            let is_silent = parts.iter().all(Part::is_silent);
            let reason = if is_silent { CompletionReason::Empty } else { CompletionReason::Stop };
            let ending = match ending_of(finish.reason) {
                TurnAction::Stop(ending) => Some(ending),
                TurnAction::Finish if step.is_over() => Some(Ending::Completed(CompletionReason::Deadline)),
                TurnAction::Call | TurnAction::Begin | TurnAction::Take { .. } | TurnAction::Finish => None,
            };
            return match ending {
                Some(ending) => self.stop(step, rows, cost, ending, Some(finish.reason)).await,
                None => self.finish(step, rows, cost, (reason, Some(finish.reason))).await,
            };
        }
        let handing = BatchBuilder {
            tools: step.call.tools,
            execution: step.policy.execution,
            timeout: step.limits.tool_timeout,
            results: derive::results(self.turn, step.owned.step),
            over: step.is_over(),
            at: step.at,
            estimator: step.estimator,
        };
        let batch = handing.batch(message, &parts, finish.reason, &mut rows);
        let written = self.engine.store.append(self.key, self.turn_fence(), &rows, &cost, Some(&batch)).await?;
        // A turn that is being cancelled closes its calls, and runs none.
        if matches!(written, WriteOutcome::Applied(ack) if !ack.cancelled) {
            self.engine.run_mcp_calls(self.key, &batch.requested());
        }
        self.apply_written(written)
    }

    /// Whether to call the model again because it stopped with an empty response. This happens once
    /// per step, if another attempt is allowed and there is time.
    fn must_retry_empty(&self, step: &StepContext<'_>, answer: &AssembledResponse) -> bool {
        let stopped = matches!(answer.finish.reason, FinishReason::Stop | FinishReason::ToolCalls);
        let tried = self.called_again == Some(step.at.step);
        stopped && !tried && answer.parts.iter().all(Part::is_silent) && self.retry_delay(step, &empty(step)).is_some()
    }

    /// Begins the next attempt at a step with an empty response. Reasoning that readers were sent
    /// is void, but its tokens count.
    async fn retry_empty(
        &mut self,
        step: &StepContext<'_>,
        message: &MessageId,
        answer: &AssembledResponse,
        Reported { ratio, estimate, .. }: &Reported,
    ) -> Result<Flow, Error> {
        self.called_again = Some(step.at.step);
        let error = empty(step);
        tracing::warn!(
            session.id = %self.key.session, turn.id = %self.turn, step = step.at.step, attempt = step.at.attempt,
            "retrying after an empty model response"
        );
        self.engine.metrics.call_retried(error.kind.name());
        let mut rows = Self::no_rows(step);
        let reported = answer.finish.usage.as_ref();
        let usage = (reported, *estimate);
        rows.event(usage_recorded(UsagePurpose::Turn, &step.model.reference, usage, *ratio, None), step.at);
        let cost = StepCost { model: &step.model.reference, call: Some(reported), message: None, measured: None };
        let failure = error.to_failure(FailurePhase::Stream);
        let voided = (!answer.parts.is_empty()).then(|| message.clone());
        self.begin_attempt(step, rows, &cost, (failure, Duration::ZERO, voided)).await
    }

    /// The wait before a call that failed like this is retried. Returns `None` if it is not
    /// retried.
    fn retry_delay(&self, step: &StepContext<'_>, error: &provider::Error) -> Option<Duration> {
        retry::wait(
            &self.engine.prompts.rules.turn,
            RetryInput {
                error,
                calls: self.calls.1,
                time_left: step.time_left().saturating_sub(step.read.elapsed()),
                jitter: derive::jitter(self.turn, step.at),
            },
        )
    }

    /// Handles a failed call: repeats the step if that may help, or ends the turn.
    async fn failed(&mut self, step: &StepContext<'_>, message: &MessageId, broken: FailedCall) -> Result<Flow, Error> {
        let FailedCall { error, phase, shown } = broken;
        let failure = error.to_failure(phase);
        let mut rows = Self::no_rows(step);
        let cost = self.unreported_call(step, &mut rows, None).await;
        let voided = shown.then(|| message.clone());
        if error.kind == Kind::TooLong {
            return self.recover(step, failure, voided, rows, cost).await;
        }
        let Some(delay) = self.retry_delay(step, &error) else {
            return match self.instead_of(step, &error) {
                Some(to) => {
                    let from = &step.model.reference;
                    let fallback = Fallback { from, to, failure, voided };
                    self.fall_back(step.owned, fallback, rows, cost).await
                }
                None => self.stop(step, rows, cost, Ending::Failed(failure), None).await,
            };
        };
        tracing::warn!(
            session.id = %self.key.session, turn.id = %self.turn, step = step.at.step, attempt = step.at.attempt,
            ?delay, %error, "retrying a failed model call"
        );
        self.engine.metrics.call_retried(error.kind.name());
        let flow = self.begin_attempt(step, rows, &cost, (failure, delay, voided)).await?;
        if flow == Flow::Continue {
            self.wait(delay).await;
        }
        Ok(flow)
    }

    /// Begins the next attempt at the step. The message of the previous attempt is void.
    pub(super) async fn begin_attempt(
        &mut self,
        step: &StepContext<'_>,
        mut rows: Rows,
        cost: &StepCost<'_>,
        (failure, delay, voided): (Failure, Duration, Option<MessageId>),
    ) -> Result<Flow, Error> {
        let retrying = TurnRetrying { failure, next_attempt: step.at.attempt + 1, delay, voided };
        rows.event(Payload::TurnRetrying(retrying), step.at);
        let written = self.engine.store.retry(self.key, self.turn_fence(), &rows, cost, None).await?;
        self.apply_written(written)
    }

    /// Waits for `delay`, or until an event that the turn has to handle.
    pub(super) async fn wait(&mut self, delay: Duration) {
        self.is_just_committed = false;
        tokio::select! {
            () = self.lease.lost().cancelled() => {}
            () = self.lease.cancelled().cancelled() => {}
            () = self.engine.capacity.draining.cancelled() => {}
            () = tokio::time::sleep(delay) => {}
        }
        self.watch.waited();
    }

    /// Handles a response that was cut short. Its text is kept, unless another owner has the turn.
    async fn cut(
        &mut self,
        step: &StepContext<'_>,
        message: &MessageId,
        cut: CutReason,
        partial: Vec<Part>,
        timing: Timing,
    ) -> Result<Flow, Error> {
        let ending = match cut {
            CutReason::LeaseLost => return Ok(Flow::Stop),
            CutReason::Aborted => return self.hand_over().await,
            CutReason::WindowFull => return self.restart(step, message).await,
            CutReason::Deadline => Ending::Completed(CompletionReason::Deadline),
            CutReason::Cancelled => {
                let owned = || self.engine.store.owned(self.key, self.turn, self.fence.epoch);
                let owned = self.retry_transient(owned).await?;
                let request = owned.and_then(|owned| owned.cancel);
                let Some(request) = request else {
                    return Ok(Flow::Continue);
                };
                let outcome = if partial.is_empty() { CancelOutcome::None } else { CancelOutcome::PartialAssistant };
                let cause = request.cause;
                let reason = request.reason.clone();
                let ending = Ending::Cancelled { cause, outcome, reason, undone: None };
                self.with_rollback(ending, Some(&request), (!partial.is_empty()).then_some(message)).await?
            }
        };
        let written = (!partial.is_empty()).then_some(message);
        let mut rows = if written.is_some() { self.rows_with_media_events(step) } else { Self::no_rows(step) };
        if written.is_some() {
            let finish = Finish {
                reason: FinishReason::Cancelled,
                provider_reason: String::new(),
                usage: None,
                provider_model: String::new(),
                response_id: String::new(),
                metadata: None,
                prompt_usage: None,
                prompt_fingerprint: None,
            };
            let response = response(step.model, &finish, timing);
            rows.message(assistant(message, partial, response, step.estimator), step.at);
        }
        let cost = self.unreported_call(step, &mut rows, written).await;
        self.stop(step, rows, cost, ending, written.map(|_| FinishReason::Cancelled)).await
    }

    /// Records a call without reported usage, and the message that it wrote.
    pub(super) async fn unreported_call<'s>(
        &self,
        step: &StepContext<'s>,
        rows: &mut Rows,
        message: Option<&'s MessageId>,
    ) -> StepCost<'s> {
        let model = &step.model.reference;
        let ratio = self.engine.prompts.ratio(&self.key.tenant, model).await;
        rows.event(usage_recorded(UsagePurpose::Turn, model, (None, None), ratio, message), step.at);
        StepCost { model, call: Some(None), message, measured: None }
    }
}

/// The failure of a call with an empty response.
fn empty(step: &StepContext<'_>) -> provider::Error {
    let message = "the response was empty: the model stopped without text or a tool call";
    provider::Error::new(Kind::Broken, &step.model.provider_name, message)
}

/// Tokens used by a call: as reported, or else the estimate plus what arrived. A call that the
/// provider refused or did not answer used none.
fn tokens_used(end: &CallEnd, predicted: u32, written: Tally) -> u64 {
    let counted = u64::from(predicted) + u64::from(written.tokens());
    match end {
        CallEnd::Complete(assembled) => match &assembled.finish.usage {
            Some(usage) => u64::from(usage.input) + u64::from(usage.output),
            None => counted,
        },
        CallEnd::Failed(_) if written == Tally::default() => 0,
        CallEnd::Failed(_) | CallEnd::Cut(..) => counted,
    }
}
