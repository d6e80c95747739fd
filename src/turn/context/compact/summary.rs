//! Requests a summary from a model.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;

use crate::{
    context::{
        budget::ASSUMED_WINDOW_AND_RESERVE,
        compact::{Plan, digest, summary_prompt},
        estimate,
    },
    model::{
        Failure, FailurePhase, FailureReason, FinishReason, InputMessage, MessageId, Part, Prompt, Role, SessionConfig,
        Tally, Transcript, UsagePurpose, command::TurnRequest, compaction::Trigger,
    },
    provider::{
        Assembly,
        assemble::{AssembledResponse, Progress},
        error::{self, Kind},
        registry::ResolvedModel,
    },
    quota::TokenReservation,
    session::compaction_rows::Cost,
    telemetry::{
        Trace,
        metrics::{CallOutcome, ModelCall},
        spans::ResponseAttributes,
    },
    turn::{
        context::{
            compact::{
                draft::{CompactionInput, CompactionRequest},
                making::Making,
            },
            measured::unstored,
            prompt_call::PromptCall,
        },
        retry::{self, RetryInput},
    },
};

/// Maximum number of pieces into which a conversation is divided for its summary. Longer conversations are not
/// summarized.
const MAX_PIECES: usize = 64;
/// Smallest size of a piece in tokens.
const SMALLEST_PIECE: u32 = 200;
/// Tenths of the remaining window to use. The rest is a margin for errors of the estimates.
const USED_TENTHS: u32 = 8;

impl Making<'_> {
    /// Summarizes the messages that a plan hides. Returns the text, and the model that wrote it.
    /// Messages that do not fit the model's window at once are folded into the summary piece by
    /// piece.
    pub(super) async fn summarise(self, plan: &Plan, cost: &mut Cost) -> Result<(String, String), Box<Failure>> {
        let CompactionRequest { input, policy, instructions: (instructions, mode), .. } = self.request;
        let too_long = |words| rejected(FailureReason::ContextOverflow, words);
        let allowed = self.request.max_summary_tokens(plan);
        let allowed = allowed.ok_or_else(|| too_long("the target leaves no room for a summary"))?;
        let models = &self.sessions.prompts.models;
        let model = match &policy.summary_model {
            Some(reference) => {
                let unknown = || rejected(FailureReason::ProviderBadRequest, &models.missing(reference).to_string());
                models.resolve(reference).ok_or_else(unknown)?
            }
            None => input.model.clone(),
        };
        cost.model.clone_from(&model.reference);
        let most = model.info.max_output.map_or(allowed, |limit| limit.tokens.min(allowed));
        let system =
            summary_prompt::system(&[(&policy.instructions, policy.instructions_mode), (instructions, *mode)], most);
        let before = input.in_force.as_ref().and_then(|in_force| in_force.summary.clone());
        let window = window(self.request, &model);
        let taken =
            [most, estimate::system(&system), most.max(before.as_deref().map_or(0, estimate::text)), SMALLEST_PIECE];
        let piece = window.saturating_sub(taken.into_iter().fold(0, u32::saturating_add)) / 10 * USED_TENTHS;
        if piece < SMALLEST_PIECE {
            return Err(too_long("the context window of the summary model is too small"));
        }
        let pieces = digest::pieces(plan.hidden_messages(&input.messages), piece);
        if pieces.len() > MAX_PIECES {
            return Err(too_long("the conversation is too long to summarize in the model's context window"));
        }
        let mut summary = before;
        for piece in pieces {
            let prompt = prompt(&model, &system, summary_prompt::request(summary.as_deref(), &piece), most)?;
            summary = Some(self.ask(&model, Arc::new(prompt), cost).await?);
        }
        let summary = summary.ok_or_else(|| too_long("the messages to compact contain nothing to summarize"))?;
        Ok((summary, model.reference))
    }

    /// Requests a summary of one piece. Retries transient failures.
    async fn ask(self, model: &ResolvedModel, prompt: Arc<Prompt>, cost: &mut Cost) -> Result<String, Box<Failure>> {
        let mut calls = 0;
        loop {
            calls += 1;
            let answer = self.one_measured(model, Arc::clone(&prompt)).await;
            cost.calls.push(answer.as_ref().ok().and_then(|answer| answer.finish.usage.clone()));
            let error = match answer {
                Ok(answer) => return accepted(answer),
                Err(error) => error,
            };
            let failed = RetryInput { error: &error, calls, time_left: Duration::MAX, jitter: 1.0 };
            let Some(wait) = retry::wait(&self.sessions.prompts.rules.turn, failed) else {
                return Err(Box::new(error.to_failure(FailurePhase::Generate)));
            };
            tracing::warn!(model = %model.reference, ?wait, %error, "retrying a failed summary call");
            self.sessions.metrics.call_retried(error.kind.name());
            tokio::time::sleep(wait).await;
        }
    }

    async fn one_measured(self, model: &ResolvedModel, prompt: Arc<Prompt>) -> Result<AssembledResponse, error::Error> {
        let (sessions, tenant) = (self.sessions, &self.key.tenant);
        let call =
            ModelCall { provider: &model.provider_name, model: &model.info.name, purpose: UsagePurpose::Compaction };
        let (input, most_output) = (prompt.size.tokens, prompt.max_output_tokens);
        let quotas = &sessions.capacity.quotas;
        let mut tokens = quotas.reserve_when_available(tenant, input, most_output.unwrap_or_default()).await;
        let begun = Instant::now();
        let span = Trace::current().model_call(call);
        let answering = self.one_answer(model, prompt, &mut tokens);
        let answer = span.trace().clone().scope(answering).await;
        let finish = answer.as_ref().ok().map(|answer| &answer.finish);
        let usage = finish.and_then(|finish| finish.usage.as_ref());
        let error = answer.as_ref().err().map(|error| error.kind.name());
        span.model_answered(ResponseAttributes {
            usage,
            model: finish.map_or("", |finish| &finish.provider_model),
            id: finish.map_or("", |finish| &finish.response_id),
            finish: finish.map(|finish| finish.reason),
            first: None,
            error,
        });
        sessions.metrics.model_called(call, CallOutcome { total: begun.elapsed(), first: None, error });
        if let Some(usage) = usage {
            sessions.metrics.tokens_used(call, usage);
        }
        answer
    }

    async fn one_answer(
        self,
        model: &ResolvedModel,
        prompt: Arc<Prompt>,
        tokens: &mut TokenReservation,
    ) -> Result<AssembledResponse, error::Error> {
        let predicted = u64::from(prompt.size.tokens);
        let mut written = Tally::default();
        let mut answer = model.call(&self.key.tenant, prompt);
        let max_bytes = self.sessions.prompts.rules.turn.max_answer_bytes;
        let mut assembly = Assembly::new(MessageId::new("summary"), BTreeSet::new(), max_bytes);
        while let Some(chunk) = answer.next().await {
            let chunk = chunk.inspect_err(|_| {
                if written == Tally::default() {
                    tokens.charge(0); // refused, or no response
                }
            })?;
            let progress = assembly.apply(chunk, || crate::model::CallId::new("none"));
            match progress.map_err(|malformed| malformed.into_error(&model.provider_name))? {
                Progress::NoDelta => {}
                Progress::Delta(delta) => {
                    written = written.plus(&delta.text);
                    tokens.charge(predicted + u64::from(written.tokens()));
                }
                Progress::Finished(finish) => {
                    if let Some(usage) = &finish.usage {
                        tokens.charge(u64::from(usage.input) + u64::from(usage.output));
                    }
                    return Ok(assembly.finish(finish));
                }
            }
        }
        Err(error::Error::new(Kind::Broken, &model.provider_name, "the response ended without its end marker"))
    }
}

/// The context window of the model that summarizes, in tokens. The policy may set the window of the session's own
/// model. If the compaction was triggered because the provider rejected a prompt as too long, its target limits the
/// window.
fn window(request: &CompactionRequest, model: &ResolvedModel) -> u32 {
    let CompactionInput { model: own, budget, .. } = &request.input;
    if model.reference != own.reference {
        return model.info.context_window.map_or(ASSUMED_WINDOW_AND_RESERVE.0, |limit| limit.tokens);
    }
    let found = request.target.filter(|_| request.trigger == Trigger::ProviderOverflow);
    found.map_or(budget.window, |target| target.min(budget.window))
}

fn prompt(model: &ResolvedModel, system: &str, request: String, max_tokens: u32) -> Result<Prompt, Box<Failure>> {
    let message = unstored(InputMessage::new(Role::User, vec![Part::text(request)]));
    let transcript = Transcript::new(vec![message]).close();
    let transcript = transcript.map_err(|error| rejected(FailureReason::Internal, &error.to_string()))?;
    let config = SessionConfig { system_prompt: system.to_owned(), ..SessionConfig::default() };
    let request = TurnRequest::default();
    let call = PromptCall::new(&config, &request, 1, false, model);
    Ok(call.prompt(transcript, Some(max_tokens)))
}

/// The text of a summary, if it is complete and not empty (feature row D15).
fn accepted(answer: AssembledResponse) -> Result<String, Box<Failure>> {
    let reason = |words| Err(rejected(FailureReason::ProviderBroken, words));
    match answer.finish.reason {
        FinishReason::Stop | FinishReason::ToolCalls => {}
        FinishReason::Length => return reason("the summary was cut off"),
        FinishReason::ContentFilter | FinishReason::Refusal => {
            return reason("the model refused to summarize");
        }
        FinishReason::Error | FinishReason::Cancelled | FinishReason::Paused => {
            return reason("the summary response ended early");
        }
    }
    let texts = answer.parts.iter().filter_map(|part| part.content.as_text());
    let summary = texts.collect::<String>().trim().to_owned();
    if summary.is_empty() { reason("the summary is empty") } else { Ok(summary) }
}

fn rejected(reason: FailureReason, words: &str) -> Box<Failure> {
    Box::new(Failure::local(reason, words, false))
}
