//! RecordUsage: the usage of a model call that the host made itself.

use std::sync::Arc;

use crate::{
    codec::{self, message::MessageInfo},
    context::{
        media::leave_out,
        prune,
        sent_prompt::SentPrompt,
        size::{ContextSize, Counters, ReportedCall, Size},
    },
    model::{
        Anchor, Content, FinishReason, Message, ModelResponse, Role, Seq, SessionConfig, SessionKey, TenantId, Usage,
        UsagePurpose, UsageReceipt, command::RecordUsage, ledger::ModelDependent,
    },
    provider::registry::ResolvedModel,
    session::usage::Report,
    store::{
        self, idempotency::StoredRequest, import::Tail, session::Session, usage::TranscriptDistance,
        version::transcript_of,
    },
    turn::{
        Error,
        context::{
            estimators::estimator,
            measured::{compared, is_believed, usage_recorded},
            media::cannot_read,
            prompt_call::own_size,
            reasoning,
            size::{CalledModel, Excerpt, LATEST, SLACK, size_with, transcript_tokens},
            window::known_window,
        },
        engine::{Prompts, SessionCommands, supervised},
        idempotency::check_same,
        optimistic::retry_on_change,
    },
};

/// The prompt of the reported call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReportedPrompt {
    /// Tokens of its transcript.
    transcript: i64,
    /// Tokens of the response message. `None` if it is not appended.
    answer: Option<u32>,
}

impl SessionCommands {
    /// Records the usage of a call. A repeated request gets the response to the first one, with the
    /// current ratio of the model.
    pub async fn record_usage(
        self: &Arc<Self>,
        tenant: TenantId,
        command: RecordUsage,
    ) -> Result<(UsageReceipt, f64), Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let key = SessionKey::new(tenant, command.session.clone());
            retry_on_change(|| sessions.try_record(&key, &command)).await
        })
        .await
    }

    /// One attempt. Returns `None` if the transcript changed between the read and the write, or a
    /// concurrent repetition of the request was stored first.
    async fn try_record(&self, key: &SessionKey, command: &RecordUsage) -> Result<Option<(UsageReceipt, f64)>, Error> {
        let tail = self.store.tail(key, command.idempotency.request.as_ref()).await?;
        let tail = tail.ok_or_else(|| Error::SessionNotFound(key.session.clone()))?;
        let Session { config, revision, .. } = self.prompts.session(key).await?;
        let reference = command.model.as_deref().unwrap_or(&config.model);
        // A host may call models that this server does not have. Their usage is counted, but not
        // used for calibration.
        let model = self.prompts.model(reference).ok();
        let reference = model.as_ref().map_or(reference, |model| &model.reference);
        if let Some(StoredRequest { hash, result }) = &tail.stored_request {
            check_same(hash, &command.idempotency)?;
            let recorded = codec::receipt::read_recorded_usage(result).map_err(store::Error::from)?;
            let calibration = self.prompts.calibration(&key.tenant, reference).await?;
            return Ok(Some((recorded, calibration.ratio)));
        }
        crate::turn::session::append::refuse_live(key, &tail)?;
        let (message, since) = self.prompts.written_by(key, command).await?;
        if revision != tail.version.revision {
            return Ok(None);
        }
        let own = self.prompts.model(&config.model).ok();
        let models = (model.as_ref(), own.as_ref());
        let answer = message.as_ref();
        let variable = ModelDependentMessages::default();
        let mut call = HostCall { command, tail: &tail, config: &config, reference, models, variable, answer };
        call.variable = self.prompts.variable(key, &call, since).await?;
        let window = self.prompts.window_of(model.as_ref(), &config);
        let described = call.reported_prompt(since);
        let described = described.filter(|described| call.is_believed(described, window));
        let (recorded, measured) = call.outcome(described);
        let ratio = self.prompts.ratio(&key.tenant, reference).await;
        let info =
            message.as_ref().map(|message| codec::message::encode_info(&info(message, reference, &command.usage)));
        let report = Report {
            fence: tail.version.fence(),
            context_version: tail.version.context,
            purpose: command.purpose,
            model: reference,
            usage: &command.usage,
            event: &usage_recorded(
                command.purpose,
                reference,
                (Some(&command.usage), recorded.estimate),
                ratio,
                command.message.as_ref(),
            ),
            message: command.message.as_ref().zip(info.as_deref()),
            measured: measured.as_ref(),
        };
        let result = codec::receipt::write_recorded_usage(&recorded);
        let request = (&command.idempotency, result.as_str());
        let Some(last) = self.store.record_usage(key, &report, request).await? else {
            return Ok(None);
        };
        self.live.notify_readers(key, last);
        if let (Some(model), Some(_)) = (&model, described)
            && self.prompts.is_instructive(&key.tenant, model, tail.tokens)
        {
            self.prompts.learn_from(key, model, message.as_ref(), command.usage.input).await;
        }
        Ok(Some((recorded, self.prompts.calibration(&key.tenant, reference).await?.ratio)))
    }
}

impl Prompts {
    fn window_of(&self, model: Option<&ResolvedModel>, config: &SessionConfig) -> Option<u32> {
        let policy = self.policy_or_default(config).ok()?;
        known_window(&policy.context, model?)
    }

    /// The message that the call produced, and its position relative to the end of the transcript.
    async fn written_by(
        &self,
        key: &SessionKey,
        command: &RecordUsage,
    ) -> Result<(Option<Message>, Option<TranscriptDistance>), Error> {
        let Some(id) = &command.message else {
            return Ok((None, None));
        };
        let found = self.store.messages_by_id(key, std::slice::from_ref(id)).await?.remove(id);
        let found = found.filter(|message| message.role == Role::Assistant && message.voided_at.is_none());
        let message = found.ok_or_else(|| Error::MessageNotFound(id.clone()))?;
        Ok((Some(message), self.store.distance_to_end(key, id).await?))
    }

    /// The messages that the counters do not determine, for the session's prompts. Their text is
    /// not read.
    async fn variable(
        &self,
        key: &SessionKey,
        call: &HostCall<'_>,
        since: Option<TranscriptDistance>,
    ) -> Result<ModelDependentMessages, Error> {
        let ModelDependent { media, reasoning, items } = call.tail.model_dependent;
        if !(media || reasoning || items) {
            return Ok(ModelDependentMessages::default());
        }
        let [called, own] = call.models();
        let with_reasoning = called.withholds_parts() || own.withholds_parts();
        let all = self.store.variable(key, with_reasoning, &[LATEST, call.before()]).await?;
        if all.iter().all(|message| message.parts.is_empty()) {
            return Ok(ModelDependentMessages::default());
        }
        let counters = Counters::from(call.tail);
        let [of_called, of_own] =
            [called, own].map(|model| own_size(call.config, model, counters).non_transcript_tokens());
        let since_call = counters.since_call(of_called.max(of_own));
        let new = since_call.max(since.map_or(0, |since| since.tokens));
        let newest = match new > 0 {
            true => self.newest(key, |newest| transcript_tokens(newest) > 2 * new + SLACK).await?,
            false => Vec::new(),
        };
        Ok(ModelDependentMessages { all, newest })
    }

    /// Calibrates with the prompt that the host sent: the messages before the response. This runs
    /// in the foreground, so that the response contains the new ratio. A failure only skips the
    /// calibration.
    async fn learn_from(&self, key: &SessionKey, model: &ResolvedModel, answer: Option<&Message>, reported: u32) {
        let learnt = async {
            let mut view = self.session_view(key).await?;
            view.messages.retain(|message| answer.is_none_or(|answer| message.seq < answer.seq));
            // The host sent notes in place of media that the model cannot read.
            leave_out(&mut view.messages, &model.reference, |media, role| cannot_read(model, media, role));
            let prompt = self.prompt(&view, model)?;
            self.learn_now(&key.tenant, model, prompt, reported).await
        };
        if let Err(error) = learnt.await {
            tracing::warn!(session.id = %key.session, %error, "usage report not used for calibration");
        }
    }
}

/// The messages that the counters do not determine: those with parts that a model may not read or
/// be sent, reduced to these parts.
#[derive(Debug, Default)]
struct ModelDependentMessages {
    all: Vec<Message>,
    /// The newest messages, with or without such parts: at least those that no call measured.
    newest: Vec<Message>,
}

/// The messages before a seq.
fn sent(messages: &[Message], before: Seq) -> &[Message] {
    let count = messages.iter().rposition(|message| message.seq < before).map_or(0, |last| last + 1);
    &messages[..count]
}

/// A reported call, and the current session.
struct HostCall<'a> {
    command: &'a RecordUsage,
    tail: &'a Tail,
    config: &'a SessionConfig,
    reference: &'a str,
    /// The called model, and the session's own.
    models: (Option<&'a ResolvedModel>, Option<&'a ResolvedModel>),
    /// The parts of their prompts that depend on the model.
    variable: ModelDependentMessages,
    /// The message that the call produced, if it is appended.
    answer: Option<&'a Message>,
}

impl HostCall<'_> {
    /// The prompt of the reported call. Returns `None` if it is unknown or was changed. Since the
    /// version that the host names, there may have been only appends, the first of which began with
    /// the response, and no change of the configuration.
    fn reported_prompt(&self, since: Option<TranscriptDistance>) -> Option<ReportedPrompt> {
        let sent = self.command.version?;
        let now = self.tail.version.number();
        let Usage { input, provider_tool_calls, .. } = self.command.usage;
        // If the provider's own tools ran, the reported usage is the sum of several rounds.
        if self.command.purpose != UsagePurpose::Turn || input == 0 || provider_tool_calls > 0 {
            return None;
        }
        match (self.answer, since) {
            (Some(message), Some(since)) => {
                let answer = prune::size(message);
                let before = self.tail.tokens - since.tokens - i64::from(answer);
                let only_appends = since.version == Some(transcript_of(sent)) && sent + 1 + since.later == now;
                only_appends.then_some(ReportedPrompt { transcript: before, answer: Some(answer) })
            }
            (Some(_), None) => None,
            (None, _) => {
                let prompt = ReportedPrompt { transcript: self.tail.tokens, answer: None };
                (sent == now).then_some(prompt)
            }
        }
    }

    /// Whether the reported usage is plausible as the size of the prompt.
    fn is_believed(&self, described: &ReportedPrompt, window: Option<u32>) -> bool {
        let [called, _] = self.models();
        let counters = Counters { transcript_tokens: described.transcript, anchor: None, ..self.tail.into() };
        let of_models_choice =
            sent(&self.variable.all, self.before()).iter().map(prune::size).fold(0, u32::saturating_add);
        let estimated = own_size(self.config, called, counters).size().count.tokens;
        let prompt = SentPrompt {
            estimated,
            certain: estimated.saturating_sub(of_models_choice),
            has_unknown_parts: self.tail.model_dependent.media,
            window,
        };
        is_believed(self.reference, prompt, (self.command.usage.input, estimated))
    }

    /// The response, and the size that the call measured.
    fn outcome(&self, described: Option<ReportedPrompt>) -> (UsageReceipt, Option<Anchor>) {
        let usage = &self.command.usage;
        let Some(ReportedPrompt { transcript, answer }) = described else {
            return (UsageReceipt { estimate: None, size: self.next(None).count }, None);
        };
        let [named, _] = self.models();
        let (called, _) = self.models;
        let counters = Counters { transcript_tokens: transcript, ..self.tail.into() };
        let size = self.size(named, counters, self.before());
        let predicted = size.size().count;
        let written = self.answer.map(|message| &message.parts);
        let of_loop = called.map(|model| reasoning::tool_loop(model, sent(&self.variable.all, self.before())));
        let of_loop = of_loop.unwrap_or_default();
        let measured = size.anchor_after(ReportedCall {
            model: self.reference,
            usage,
            message_tokens: answer.unwrap_or(0),
            output: match (called, written) {
                (_, None) => 0,
                (Some(model), Some(parts)) => {
                    let kept = reasoning::kept(model, parts, of_loop);
                    estimator(model).response(parts, usage, kept)
                }
                (None, Some(_)) => usage.output,
            },
            dropped_input: match (called, written) {
                (Some(_), Some(parts)) if reasoning::ends_loop(parts) => of_loop.passing,
                (Some(_) | None, Some(_) | None) => 0,
            },
            ran_provider_tools: false,
        });
        let estimate = compared(&predicted, usage);
        let size = self.next(Some(&measured)).count;
        (UsageReceipt { estimate: Some(estimate), size }, Some(measured))
    }

    /// The size of the session's next prompt, after the report.
    fn next(&self, measured: Option<&Anchor>) -> Size {
        let [_, own] = self.models();
        let counters = Counters { anchor: measured.or(self.tail.anchor.as_ref()), ..self.tail.into() };
        self.size(own, counters, LATEST).size()
    }

    /// The called model, and the session's own.
    fn models(&self) -> [CalledModel<'_>; 2] {
        let (called, own) = self.models;
        [CalledModel::named(self.reference, called), CalledModel::named(&self.config.model, own)]
    }

    /// The end of the prompt that was sent: before the response, or after all messages.
    fn before(&self) -> Seq {
        self.answer.map_or(LATEST, |answer| answer.seq)
    }

    /// The size of a prompt of the messages before a seq.
    fn size<'c>(&self, model: CalledModel<'_>, counters: Counters<'c>, before: Seq) -> ContextSize<'c> {
        let size = own_size(self.config, model, counters);
        let ModelDependentMessages { all, newest } = &self.variable;
        let excerpt = match size.is_anchored() {
            true => Excerpt::end(sent(newest, before)),
            false => Excerpt::whole(sent(all, before)),
        };
        size_with(size, model, &excerpt, &[])
    }
}

/// The stored metadata of a message, with the usage.
fn info(message: &Message, reference: &str, usage: &Usage) -> MessageInfo {
    let Message { response, metadata, queued, .. } = message.clone();
    let response = response.unwrap_or_else(|| unreported(message, reference));
    let response = Some(ModelResponse { usage: Some(usage.clone()), ..response });
    MessageInfo { response, metadata, queued }
}

/// The response metadata of a message, if the host gave none.
fn unreported(message: &Message, reference: &str) -> ModelResponse {
    let calls = message.parts.iter().any(|part| matches!(part.part.content, Content::ToolCall(_)));
    ModelResponse {
        provider: reference.split_once('/').map(|(provider, _)| provider.to_owned()).unwrap_or_default(),
        model: reference.to_owned(),
        provider_model: String::new(),
        provider_response_id: String::new(),
        finish: if calls { FinishReason::ToolCalls } else { FinishReason::Stop },
        provider_finish: String::new(),
        usage: None,
        failure: None,
        time_to_first_token: None,
        elapsed: std::time::Duration::ZERO,
        provider_metadata: None,
        prompt_fingerprint: None,
    }
}
