//! AppendMessages: appends a host's own messages to the transcript while no turn runs. Tool results
//! are truncated to the same limits as in a turn.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use uuid::Uuid;

use crate::{
    codec,
    context::{estimator::Estimator, size::Counters},
    model::{
        BlobId, CallId, Content, InputMessage, MessageId, SessionConfig, SessionKey, TenantId, TokenCount,
        append::{AppendError, CallChanges, OpenCall, Place, fit, with_unique_calls},
        command::{AppendMessages, Idempotency},
        derive,
        event::StepPosition,
    },
    session::{
        import::Import,
        import_rows::{ImportRows, ImportedCall},
        mark_rows,
        rows::{NewMessage, Rows},
    },
    store::{idempotency::StoredRequest, import::Tail, version::transcript_of},
    turn::{
        Error,
        context::{
            estimators::estimator,
            measured::host_message,
            prompt_call::own_size,
            size::{CalledModel, PromptMessage, size_with},
            tool_output::{blobs_of, cut},
        },
        engine::{Prompts, SessionCommands, supervised},
        idempotency::check_same,
        optimistic::retry_on_change,
    },
};

/// The outcome of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub messages: Vec<MessageId>,
    /// The new version of the transcript.
    pub version: i64,
    /// Size of the next prompt.
    pub size: TokenCount,
}

/// The stored outcome of an append, from which a repeated request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AppendRecord {
    /// Name of the append. The ids of its messages are derived from it.
    append: String,
    /// Version of the transcript after the append.
    version: i64,
    /// Size of the next prompt without system prompt and tools.
    tokens: i64,
    /// Size of the next prompt. `None` in rows of contextd versions that did not write it.
    size: Option<TokenCount>,
}

impl SessionCommands {
    /// Appends messages. A repeated request gets the response to the first one.
    pub async fn append_messages(
        self: &Arc<Self>,
        tenant: TenantId,
        command: AppendMessages,
    ) -> Result<Receipt, Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let key = SessionKey::new(tenant, command.session.clone());
            sessions.keep(&key.tenant, &command.contents).await?;
            retry_on_change(|| sessions.try_append(&key, &command)).await
        })
        .await
    }

    /// One attempt. Returns `None` if the transcript changed between the read and the write. What
    /// is read after the version is valid for as long as the version is.
    async fn try_append(&self, key: &SessionKey, command: &AppendMessages) -> Result<Option<Receipt>, Error> {
        let request = command.idempotency.request.as_ref();
        let tail = self.store.tail(key, request).await?;
        let tail = tail.ok_or_else(|| Error::SessionNotFound(key.session.clone()))?;
        let config = self.prompts.session(key).await?.config;
        if let Some(record) = stored_record(&tail, &command.idempotency)? {
            return Ok(Some(self.prompts.receipt(&record, command.messages.len(), &config)));
        }
        self.capacity.quotas.check_storage(&key.tenant)?;
        self.prompts.check_session_size(key).await?;
        refuse(&tail, key, command)?;
        let append = Uuid::now_v7().to_string();
        let before = self.prompts.calls_before(key, &tail, &command.messages).await?;
        let appended = before.with_unique_calls(command, &append);
        let fit = match before.fit(&appended) {
            Ok(fit) => fit,
            // If the transcript has changed, the messages may not fit because the same request
            // already appended them.
            Err(misfit) if self.store.tail(key, None).await?.is_some_and(|now| now.version == tail.version) => {
                return Err(misfit);
            }
            Err(_) => return Ok(None),
        };
        // A model that is no longer configured has no provider.
        let model = self.prompts.model(&config.model).ok();
        let estimator = model.as_ref().map_or(Estimator::Characters, estimator);
        let Prepared { messages, blobs } =
            self.prompts.prepare_messages(key, &append, &appended, &config, &fit, estimator).await?;
        let model = CalledModel::named(&config.model, model.as_ref());
        let size = own_size(&config, model, (&tail).into());
        let excerpt = self.prompts.excerpt(key, &size, model, tail.model_dependent).await?;
        let following: Vec<PromptMessage<'_>> = messages.iter().map(Into::into).collect();
        let context = size_with(size, model, &excerpt, &following);
        let record = AppendRecord {
            append,
            version: tail.version.number() + 1,
            tokens: context.of_transcript(),
            size: Some(context.size().count),
        };
        let place =
            |place: Place| -> mark_rows::PartPosition { (derive::appended(&record.append, place.message), place.part) };
        let made = fit.made.iter().map(|made| ImportedCall {
            id: made.call.id.clone(),
            name: made.call.name.clone(),
            made: place(made.made),
            answered: made.answered.map(place),
        });
        let answers = fit.answered.iter().map(|answer| (answer.call.id.clone(), place(answer.answered)));
        let rows = rows_of(messages, estimator);
        let import = Import {
            fence: tail.version.fence(),
            context_version: tail.version.context,
            rows: &rows,
            with: ImportRows {
                calls: &made.collect::<Vec<_>>(),
                answers: &answers.collect::<Vec<_>>(),
                blobs: &blobs,
                version_before: tail.version.transcript(),
            },
            open_calls: u32::try_from(fit.open).unwrap_or(u32::MAX),
        };
        let result = record.to_string();
        let request = (&command.idempotency, result.as_str());
        let Some(last) = self.store.import(key, &import, request).await? else {
            return Ok(None);
        };
        self.live.notify_readers(key, last);
        Ok(Some(self.prompts.receipt(&record, rows.messages.len(), &config)))
    }
}

impl Prompts {
    /// The calls of the session that are relevant to these messages.
    async fn calls_before(
        &self,
        key: &SessionKey,
        tail: &Tail,
        messages: &[InputMessage],
    ) -> Result<CallsBefore, Error> {
        let named: BTreeSet<CallId> = messages.iter().flat_map(calls_of).collect();
        let named: Vec<CallId> = named.into_iter().collect();
        let known = if named.is_empty() { [].into() } else { self.store.calls(key, &named).await? };
        let open = if tail.open_calls == 0 { Vec::new() } else { self.store.appended_calls(key).await? };
        let known = known.into_keys().chain(open.iter().map(|call| call.id.clone())).collect();
        Ok(CallsBefore { open, known })
    }

    /// The messages to write: tool results with the name of their tool, truncated to its limits,
    /// and all tokens counted.
    async fn prepare_messages(
        &self,
        key: &SessionKey,
        append: &str,
        messages: &[InputMessage],
        config: &SessionConfig,
        fit: &CallChanges,
        estimator: Estimator,
    ) -> Result<Prepared, Error> {
        let policy = self.policy(config)?;
        let mut prepared = Prepared::default();
        for (index, appended) in messages.iter().enumerate() {
            let id = derive::appended(append, index);
            let mut message = appended.clone();
            for (position, part) in message.parts.iter_mut().enumerate() {
                let place = Place { message: index, part: position };
                if let (Content::ToolResult(result), Some(call)) = (&mut part.content, fit.results.get(&place)) {
                    // A result is pinned together with its call.
                    message.pinned = call.pinned;
                    result.name.clone_from(&call.name);
                    let own = config.tools.get(&call.name).and_then(|tool| tool.output_limits);
                    cut(&self.store, key, result, &policy.limits_for(&call.name, own)).await?;
                    prepared.blobs.extend(blobs_of(result).into_iter().map(|blob| ((id.clone(), position), blob)));
                }
            }
            prepared.messages.push(host_message(id, message, estimator));
            // Counting a long transcript takes a while: yield between messages.
            tokio::task::yield_now().await;
        }
        Ok(prepared)
    }

    /// The response.
    fn receipt(&self, record: &AppendRecord, messages: usize, config: &SessionConfig) -> Receipt {
        let size = record.size.clone().unwrap_or_else(|| {
            let model = self.model(&config.model).ok();
            let counters = Counters { transcript_tokens: record.tokens, context_version: 0, anchor: None };
            own_size(config, CalledModel::named(&config.model, model.as_ref()), counters).size().count
        });
        let messages = (0..messages).map(|index| derive::appended(&record.append, index)).collect();
        Receipt { messages, version: record.version, size }
    }
}

/// The calls of a session before messages are appended.
struct CallsBefore {
    /// The calls without results at the end of the transcript.
    open: Vec<OpenCall>,
    /// The open calls, and those that the messages name.
    known: BTreeSet<CallId>,
}

impl CallsBefore {
    /// The messages to append. If the request allows repeated call ids, such calls get new ids.
    fn with_unique_calls<'a>(&self, command: &'a AppendMessages, append: &str) -> Cow<'a, [InputMessage]> {
        if !command.renames_calls {
            return Cow::Borrowed(&command.messages);
        }
        with_unique_calls(&self.known, &command.messages, |place| {
            let message = derive::appended(append, place.message);
            derive::call(&message, place.part)
        })
    }

    /// Checks whether the messages can follow the transcript.
    fn fit(&self, messages: &[InputMessage]) -> Result<CallChanges, Error> {
        fit(&self.open, &self.known, messages).map_err(|misfit| match misfit {
            AppendError::Open(calls) => Error::TranscriptOpen(calls),
            AppendError::Flawed(flaws) => Error::Misfit(flaws),
        })
    }
}

/// Messages to write, and the blobs that their results refer to.
#[derive(Default)]
struct Prepared {
    messages: Vec<NewMessage>,
    blobs: Vec<(mark_rows::PartPosition, BlobId)>,
}

/// The rows of messages that belong to no step.
fn rows_of(messages: Vec<NewMessage>, estimator: Estimator) -> Rows {
    let mut rows = Rows::new(&estimator.name(), 0);
    for message in messages {
        rows.message(message, StepPosition::default());
    }
    rows
}

/// The result that is stored with the same request, if it was made before.
fn stored_record(tail: &Tail, idempotency: &Idempotency) -> Result<Option<AppendRecord>, Error> {
    let Some(StoredRequest { hash, result }) = &tail.stored_request else {
        return Ok(None);
    };
    check_same(hash, idempotency)?;
    // The hash covers the RPC, so that a matching row was written by an append.
    let record = AppendRecord::read(result);
    let invalid = || Error::Internal(format!("invalid stored result of an append: {result:?}"));
    record.ok_or_else(invalid).map(Some)
}

/// Refuses the append for reasons that do not depend on the messages.
fn refuse(tail: &Tail, key: &SessionKey, command: &AppendMessages) -> Result<(), Error> {
    refuse_live(key, tail)?;
    match command.version {
        // A concurrent change of the configuration is no reason to refuse an append.
        Some(seen) if transcript_of(seen) != tail.version.transcript() => {
            Err(Error::ContextChanged { version: tail.version.number() })
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a session with a live turn.
pub(in crate::turn) fn refuse_live(key: &SessionKey, tail: &Tail) -> Result<(), Error> {
    if !tail.state.is_live() {
        return Ok(());
    }
    Err(match &tail.turn {
        Some(turn) => Error::TurnInProgress { turn: turn.clone(), last: tail.last_seq },
        None => Error::Internal(format!("session {} is not idle but has no turn", key.session)),
    })
}

/// The calls that a message makes or answers.
fn calls_of(message: &InputMessage) -> impl Iterator<Item = CallId> {
    message.parts.iter().filter_map(|part| {
        let made = part.content.as_call().map(|call| &call.id);
        made.or(part.content.as_result().map(|result| &result.call)).cloned()
    })
}

impl AppendRecord {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let append = words.next()?.to_owned();
        let version = words.next()?.parse().ok()?;
        let tokens = words.next()?.parse().ok()?;
        let size = words.next().map(codec::receipt::read_size).transpose().ok()?;
        Some(Self { append, version, tokens, size })
    }
}

impl std::fmt::Display for AppendRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.append, self.version, self.tokens)?;
        self.size.iter().try_for_each(|size| write!(f, " {}", codec::receipt::write_size(size)))
    }
}
