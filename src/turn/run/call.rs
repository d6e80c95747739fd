//! The model call of a step, and how it ends: committed, failed and made again, or cut short.

use std::{sync::Arc, time::Duration};

use crate::{
    context::prompt,
    model::{
        CancelOutcome, Closed, CompletionReason, Ending, Failure, FinishReason, MessageId, Part,
        Payload, derive, event::TurnRetrying,
    },
    provider::{Finish, assemble::Assembled, error::Kind},
    store::{Rows, turn::StepCost, written::Written},
    telemetry::Trace,
    turn::{
        Error,
        context::reasoning,
        run::{
            answer::{self, Audience, Broken, Cut, End, Timing},
            call_settings,
            decide::{Step, ending_of},
            fallback::Fallback,
            measured::{assistant, call_ids, response, usage_recorded},
            retry::Failed,
            spans,
            state::{Flow, Run, StepContext},
            watch::model_call,
            window,
        },
        tools::batch::Handing,
    },
};

impl Run<'_> {
    /// Calls the model and commits what it said.
    pub(super) async fn call(
        &mut self,
        scene: &StepContext<'_>,
        transcript: Closed,
    ) -> Result<Flow, Error> {
        let message = derive::answer(self.turn, scene.at);
        self.writing = Some(message.clone());
        self.calls = (
            scene.at.step,
            if self.calls.0 == scene.at.step {
                self.calls.1 + 1
            } else {
                1
            },
        );
        let mut taken = call_ids(transcript.messages());
        if scene.hides {
            taken.extend(self.engine.store.call_ids(self.key).await?);
        }
        let owned = scene.owned;
        let config = &scene.owned.made_for.config;
        let (generation, _) =
            call_settings::fitting(scene.model, config, &owned.request, scene.tools, owned.step);
        let asked = prompt::Asked {
            provider: &scene.model.provider_name,
            model: &scene.model.info.name,
            supports_tools: scene.model.info.supports_tools,
            max_output_tokens: scene.limits.max_output_tokens,
            generation,
        };
        let prompt = self.prompt(scene, transcript, &asked).await?;
        let of_loop = reasoning::of_loop(scene.model, prompt.transcript.messages());
        let call = answer::Call {
            model: scene.model,
            prompt: Arc::clone(&prompt),
            message: message.clone(),
            taken,
            max_bytes: self.engine.rules.max_answer_bytes,
            time_left: scene.time_left(),
            room: Self::room_for_answer(scene),
            flush: self.engine.rules.delta_flush,
            audience: Audience {
                channel: self.channel,
                turn: self.turn,
                after: self.seq,
                at: scene.at,
            },
        };
        self.watch.call(&self.engine.metrics);
        let span = Trace::current().model_call(model_call(scene.model));
        let called = answer::call(call, self.lease, &self.engine.aborting);
        let (end, timing) = span.trace().clone().scope(called).await;
        spans::answered(&span, &end, timing);
        drop(span);
        let call = (model_call(scene.model), scene.size.count.tokens);
        self.watch
            .answered(&self.engine.metrics, call, &end, timing);
        match end {
            End::Complete(assembled) => {
                // Before the call teaches: what it reports is compared with what was known when it
                // was made.
                let ratio = self
                    .engine
                    .ratio(&self.key.tenant, &scene.model.reference)
                    .await;
                if let Some(usage) = &assembled.finish.usage {
                    let tokens = u64::from(usage.input) + u64::from(usage.output);
                    self.engine.quotas.spent(&self.key.tenant, tokens);
                    self.engine
                        .learn(&self.key.tenant, scene.model, prompt, usage.input);
                }
                self.commit(scene, &message, assembled, timing, (of_loop, ratio))
                    .await
            }
            End::Failed(broken) => self.failed(scene, &message, broken).await,
            End::Cut(cut, partial) => self.cut(scene, &message, cut, partial, timing).await,
        }
    }

    /// Commits an answer: with calls the turn waits for their results or goes on, without any it
    /// ends.
    async fn commit(
        &mut self,
        scene: &StepContext<'_>,
        message: &MessageId,
        answer: Assembled,
        timing: Timing,
        (of_loop, ratio): (u32, f64),
    ) -> Result<Flow, Error> {
        let Assembled {
            parts,
            calls,
            finish,
        } = answer;
        let mut rows = self.told(scene);
        let response = response(scene.model, &finish, timing);
        let answer = assistant(message, parts.clone(), response, scene.estimator);
        let measured = finish
            .usage
            .as_ref()
            .map(|usage| window::measured(scene, usage, &answer, of_loop));
        if !parts.is_empty() {
            rows.message(answer, scene.at);
        }
        let written = (!parts.is_empty()).then_some(message);
        let usage = finish
            .usage
            .as_ref()
            .map(|usage| (usage, &scene.size.count));
        rows.event(
            &usage_recorded(scene.model, usage, ratio, written),
            scene.at,
        );
        self.last_usage.clone_from(&finish.usage);
        let cost = StepCost {
            model: &scene.model.reference,
            call: Some(finish.usage.as_ref()),
            message: written,
            measured,
        };
        // The provider's own tools are at work: the next step goes on where this one stopped.
        let paused = finish.reason == FinishReason::Paused && written.is_some();
        if paused && calls.is_empty() && !scene.owned.late {
            let written = self
                .engine
                .store
                .append(self.key, self.right(), &rows, &cost, None)
                .await?;
            return self.after(written);
        }
        if calls.is_empty() {
            return match ending_of(finish.reason) {
                Step::Finish if scene.owned.late => {
                    let ending = Ending::Completed(CompletionReason::Deadline);
                    self.stop(scene, rows, Some(cost), ending, Some(finish.reason))
                        .await
                }
                Step::Stop(ending) => {
                    self.stop(scene, rows, Some(cost), ending, Some(finish.reason))
                        .await
                }
                Step::Call | Step::Begin | Step::Take { .. } | Step::Finish => {
                    self.finish(scene, rows, Some(cost), Some(finish.reason))
                        .await
                }
            };
        }
        let handing = Handing {
            tools: scene.tools,
            execution: scene.policy.execution,
            timeout: scene.limits.tool_timeout,
            results: derive::results(self.turn, scene.owned.step),
            over: scene.is_over(),
            at: scene.at,
            estimator: scene.estimator,
        };
        let batch = handing.batch(message, &parts, finish.reason, &mut rows);
        let written = self
            .engine
            .store
            .append(self.key, self.right(), &rows, &cost, Some(&batch))
            .await?;
        if matches!(written, Written::Applied(_)) {
            self.engine.run_mcp_calls(self.key, &batch.requested());
        }
        self.after(written)
    }

    /// A call that failed: the step is repeated where that may help, else the turn ends.
    async fn failed(
        &mut self,
        scene: &StepContext<'_>,
        message: &MessageId,
        broken: Broken,
    ) -> Result<Flow, Error> {
        let Broken {
            error,
            phase,
            shown,
        } = broken;
        let failure = error.to_failure(phase);
        let mut rows = Self::no_rows(scene);
        let cost = self.unreported_call(scene, &mut rows, None).await;
        let voided = shown.then(|| message.clone());
        if error.kind == Kind::TooLong {
            return self.recover(scene, failure, voided, rows, cost).await;
        }
        let wait = self.engine.rules.retries.wait(Failed {
            error: &error,
            calls: self.calls.1,
            time_left: scene.time_left().saturating_sub(scene.read.elapsed()),
            jitter: derive::share(self.turn, scene.at),
        });
        let Some(delay) = wait else {
            return match self.instead_of(scene, &error) {
                Some(to) => {
                    let from = &scene.model.reference;
                    let fallback = Fallback {
                        from,
                        to,
                        failure,
                        voided,
                    };
                    self.fall_back(scene.owned, fallback, rows, cost).await
                }
                None => {
                    self.stop(scene, rows, Some(cost), Ending::Failed(failure), None)
                        .await
                }
            };
        };
        tracing::warn!(
            session.id = %self.key.session, turn.id = %self.turn, step = scene.at.step, attempt = scene.at.attempt,
            ?delay, %error, "retrying a failed model call"
        );
        self.engine.metrics.call_retried(error.kind.name());
        let flow = self
            .begin_attempt(scene, rows, &cost, (failure, delay, voided))
            .await?;
        if flow == Flow::On {
            self.wait(delay).await;
        }
        Ok(flow)
    }

    /// Begins the next attempt at the step; the message that the last one was writing is void.
    pub(super) async fn begin_attempt(
        &mut self,
        scene: &StepContext<'_>,
        mut rows: Rows,
        cost: &StepCost<'_>,
        (failure, delay, voided): (Failure, Duration, Option<MessageId>),
    ) -> Result<Flow, Error> {
        let retrying = TurnRetrying {
            failure,
            next_attempt: scene.at.attempt + 1,
            delay,
            voided,
        };
        rows.event(&Payload::TurnRetrying(retrying), scene.at);
        let written = self
            .engine
            .store
            .retry(self.key, self.right(), &rows, cost, None)
            .await?;
        self.after(written)
    }

    /// Waits, unless something happens that the next look must not wait for.
    pub(super) async fn wait(&mut self, delay: Duration) {
        tokio::select! {
            () = self.lease.lost().cancelled() => {}
            () = self.lease.cancelled().cancelled() => {}
            () = self.engine.draining.cancelled() => {}
            () = tokio::time::sleep(delay) => {}
        }
        self.watch.waited();
    }

    /// An answer that was cut short: what was said is kept, unless another owner has the turn.
    async fn cut(
        &mut self,
        scene: &StepContext<'_>,
        message: &MessageId,
        cut: Cut,
        partial: Vec<Part>,
        timing: Timing,
    ) -> Result<Flow, Error> {
        let ending = match cut {
            Cut::Lost => return Ok(Flow::Over),
            Cut::Aborted => return self.hand_over().await,
            Cut::Full => return self.restart(scene, message).await,
            Cut::Deadline => Ending::Completed(CompletionReason::Deadline),
            Cut::Cancelled => {
                let owned = || {
                    self.engine
                        .store
                        .owned(self.key, self.turn, self.fence.epoch)
                };
                let owned = self.patiently(owned).await?;
                let request = owned.and_then(|owned| owned.cancel);
                let Some(request) = request else {
                    return Ok(Flow::On);
                };
                let outcome = if partial.is_empty() {
                    CancelOutcome::None
                } else {
                    CancelOutcome::PartialAssistant
                };
                let cause = request.cause;
                let reason = request.reason.clone();
                let ending = Ending::Cancelled {
                    cause,
                    outcome,
                    reason,
                    undone: None,
                };
                self.undoing(
                    ending,
                    Some(&request),
                    (!partial.is_empty()).then_some(message),
                )
                .await?
            }
        };
        let written = (!partial.is_empty()).then_some(message);
        let mut rows = if written.is_some() {
            self.told(scene)
        } else {
            Self::no_rows(scene)
        };
        if written.is_some() {
            let finish = Finish {
                reason: FinishReason::Cancelled,
                provider_reason: String::new(),
                usage: None,
                provider_model: String::new(),
                response_id: String::new(),
                metadata: None,
                prompt_fingerprint: None,
            };
            let response = response(scene.model, &finish, timing);
            rows.message(
                assistant(message, partial, response, scene.estimator),
                scene.at,
            );
        }
        let cost = self.unreported_call(scene, &mut rows, written).await;
        self.stop(
            scene,
            rows,
            Some(cost),
            ending,
            written.map(|_| FinishReason::Cancelled),
        )
        .await
    }
    /// Accounts for a call whose usage nobody reported, and for the message that it left.
    pub(super) async fn unreported_call<'s>(
        &self,
        scene: &StepContext<'s>,
        rows: &mut Rows,
        message: Option<&'s MessageId>,
    ) -> StepCost<'s> {
        let model = &scene.model.reference;
        let ratio = self.engine.ratio(&self.key.tenant, model).await;
        rows.event(&usage_recorded(scene.model, None, ratio, message), scene.at);
        StepCost {
            model,
            call: Some(None),
            message,
            measured: None,
        }
    }
}
