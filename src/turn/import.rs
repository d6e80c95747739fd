//! AppendMessages: a host's own messages, cut as in a turn and written behind the transcript while no turn runs.

use std::{collections::BTreeSet, sync::Arc};

use uuid::Uuid;

use super::{
    Engine, Error,
    count::estimator,
    execute::total,
    media::unread_part,
    sessions::own_outside_tokens,
    submit::blobs_of,
    written::{host_part, new_message},
};
use crate::{
    context::{
        estimate,
        estimator::Estimator,
        size::{offset, usable},
    },
    model::{
        BlobId, CallId, Content, MessageId, SessionConfig, SessionKey, TenantId, TokenCount,
        command::AppendMessages,
        derive,
        import::{Appended, Fit, Misfit, Place, fit},
        message::StoredPart,
    },
    provider::registry::Resolved,
    store::{
        NewMessage,
        idempotency::Remembered,
        import::{Import, ImportedCall, ImportedMessage, PartPlace, Tail},
        version::transcript_of,
    },
};

/// How often an append is tried again when the transcript changes under it.
const APPEND_TRIES: u32 = 5;

/// What was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The messages in order.
    pub messages: Vec<MessageId>,
    /// The transcript's new version.
    pub version: i64,
    /// Size of the next prompt.
    pub size: TokenCount,
}

/// What a repeated request is answered with: the append by its name, the version and the size of the transcript after it, with what the
/// last call taught about it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Led {
    append: String,
    version: i64,
    tokens: i64,
}

impl Engine {
    /// Appends messages, or answers again what the same request was answered before.
    pub async fn append_messages(
        self: &Arc<Self>,
        tenant: TenantId,
        command: AppendMessages,
    ) -> Result<Receipt, Error> {
        let engine = Arc::clone(self);
        self.supervised(async move {
            let key = SessionKey::new(tenant, command.session.clone());
            engine.keep(&key.tenant, &command.contents).await?;
            for _ in 0..APPEND_TRIES {
                if let Some(receipt) = engine.try_append(&key, &command).await? {
                    return Ok(receipt);
                }
            }
            Err(Error::Store(crate::store::Error::Conflict("the transcript kept changing".to_owned())))
        })
        .await
    }

    /// One try; none: the transcript changed between the look and the statement. What is looked at after the version holds as long
    /// as the version does.
    async fn try_append(&self, key: &SessionKey, command: &AppendMessages) -> Result<Option<Receipt>, Error> {
        let request = command.idempotency.request.as_ref();
        let tail = self.store.tail(key, request).await?;
        let tail = tail.ok_or_else(|| Error::SessionNotFound(key.session.clone()))?;
        let config = self.session(key).await?.config;
        if let (Some(Remembered { hash, result }), Some(request)) = (&tail.remembered, request) {
            if *hash != command.idempotency.hash {
                return Err(Error::IdempotencyMismatch(request.clone()));
            }
            // Another RPC's key has another hash: what is remembered here was written below.
            let led = Led::read(result).ok_or_else(|| Error::Internal(format!("an append led to {result:?}")))?;
            return Ok(Some(self.receipt(&led, command.messages.len(), &config)));
        }
        refuse(&tail, key, command)?;
        let fit = match self.fit(key, &tail, &command.messages).await {
            Ok(fit) => fit,
            // What does not fit behind a transcript that has moved on may be there already: the same request was quicker.
            Err(misfit) if self.store.tail(key, None).await?.is_some_and(|now| now.version == tail.version) => {
                return Err(misfit);
            }
            Err(_) => return Ok(None),
        };
        let append = Uuid::now_v7().to_string();
        // A model that is no longer configured is nobody's.
        let estimator = self.model(&config.model).map_or(Estimator::Characters, |model| estimator(&model));
        let Prepared { messages, blobs } =
            self.prepare_messages(key, &append, command, &config, &fit, estimator).await?;
        let tokens: i64 = messages.iter().map(|imported| size(&imported.message)).sum();
        let learnt = usable(tail.anchor.as_ref(), &config.model, tail.version.context)
            .map_or(0, |anchor| offset(Some(anchor), 0));
        let unread = self.model(&config.model).map_or(0, |model| messages.iter().map(|it| unread(&model, it)).sum());
        let tokens = tail.tokens + tokens + learnt - unread;
        let led = Led { append, version: tail.version.number() + 1, tokens };
        let place = |place: Place| -> PartPlace { (derive::appended(&led.append, place.message), place.part) };
        let made = fit.made.iter().map(|made| ImportedCall {
            id: made.call.id.clone(),
            name: made.call.name.clone(),
            made: place(made.made),
            answered: made.answered.map(place),
        });
        let answers = fit.answered.iter().map(|answer| (answer.call.id.clone(), place(answer.answered)));
        let import = Import {
            seen: tail.version,
            messages: &messages,
            calls: &made.collect::<Vec<_>>(),
            answers: &answers.collect::<Vec<_>>(),
            blobs: &blobs,
            open: fit.open,
            idempotency: &command.idempotency,
            result: &led.to_string(),
            estimator: &estimator.name(),
        };
        let Some(last) = self.store.import(key, &import).await? else { return Ok(None) };
        self.nudge(key, last);
        Ok(Some(self.receipt(&led, messages.len(), &config)))
    }

    /// Looks whether the messages fit behind what the session has.
    async fn fit(&self, key: &SessionKey, tail: &Tail, messages: &[Appended]) -> Result<Fit, Error> {
        let named: BTreeSet<CallId> = messages.iter().flat_map(calls_of).collect();
        let named: Vec<CallId> = named.into_iter().collect();
        let known = if named.is_empty() { [].into() } else { self.store.calls(key, &named).await? };
        let open = if tail.open_calls == 0 { Vec::new() } else { self.store.appended_calls(key).await? };
        let known = known.into_keys().chain(open.iter().map(|call| call.id.clone())).collect();
        fit(&open, &known, messages).map_err(|misfit| match misfit {
            Misfit::Open(calls) => Error::TranscriptOpen(calls),
            Misfit::Flawed(flaws) => Error::Misfit(flaws),
        })
    }

    /// The messages as they are written: results under their tool's name and cut to its limits, everything counted.
    async fn prepare_messages(
        &self,
        key: &SessionKey,
        append: &str,
        command: &AppendMessages,
        config: &SessionConfig,
        fit: &Fit,
        estimator: Estimator,
    ) -> Result<Prepared, Error> {
        let policy = self.policy(config)?;
        let mut prepared = Prepared::default();
        for (index, appended) in command.messages.iter().enumerate() {
            let id = derive::appended(append, index);
            let mut pinned = appended.pinned;
            let mut parts = Vec::with_capacity(appended.parts.len());
            for (position, part) in appended.parts.iter().cloned().enumerate() {
                let mut part = part;
                if let (Content::ToolResult(result), Some(call)) =
                    (&mut part.content, fit.results.get(&Place { message: index, part: position }))
                {
                    // A result stays or goes with its call.
                    pinned = call.pinned;
                    result.name.clone_from(&call.name);
                    let own = config.tools.get(&call.name).and_then(|tool| tool.output_limits);
                    self.cut(key, result, &policy.limits_for(&call.name, own)).await?;
                    prepared.blobs.extend(blobs_of(result).into_iter().map(|blob| ((id.clone(), position), blob)));
                }
                parts.push(host_part(part, appended.role, pinned, estimator));
            }
            prepared.messages.push(imported(id, appended, parts, pinned, estimator));
            // A long transcript takes a while to count: others go on between two messages.
            tokio::task::yield_now().await;
        }
        Ok(prepared)
    }

    /// The answer.
    fn receipt(&self, led: &Led, messages: usize, config: &SessionConfig) -> Receipt {
        let outside = own_outside_tokens(config, self.model(&config.model).ok().as_ref());
        Receipt {
            messages: (0..messages).map(|index| derive::appended(&led.append, index)).collect(),
            version: led.version,
            size: estimate::count(total(led.tokens, outside)),
        }
    }
}

/// Messages as they are written, and what their results refer to.
#[derive(Default)]
struct Prepared {
    messages: Vec<ImportedMessage>,
    blobs: Vec<(PartPlace, BlobId)>,
}

/// What stands in the way, whatever the messages are.
fn refuse(tail: &Tail, key: &SessionKey, command: &AppendMessages) -> Result<(), Error> {
    refuse_live(key, tail)?;
    match command.version {
        // A configuration that changed meanwhile is no reason not to append.
        Some(seen) if transcript_of(seen) != tail.version.transcript() => {
            Err(Error::ContextChanged { version: tail.version.number() })
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a session with a turn.
pub(super) fn refuse_live(key: &SessionKey, tail: &Tail) -> Result<(), Error> {
    if !tail.state.is_live() {
        return Ok(());
    }
    Err(match &tail.turn {
        Some(turn) => Error::TurnInProgress { turn: turn.clone(), last: tail.last_seq },
        None => Error::Internal(format!("session {} is live without a turn", key.session)),
    })
}

/// The calls that a message makes or answers.
fn calls_of(message: &Appended) -> impl Iterator<Item = CallId> {
    message.parts.iter().filter_map(|part| match &part.content {
        Content::ToolCall(call) => Some(call.id.clone()),
        Content::ToolResult(result) => Some(result.call.clone()),
        Content::Text(_) | Content::Reasoning { .. } | Content::Refusal(_) | Content::Media(_) => None,
    })
}

fn imported(
    id: MessageId,
    appended: &Appended,
    parts: Vec<StoredPart>,
    pinned: bool,
    estimator: Estimator,
) -> ImportedMessage {
    let Appended { role, parts: _, pinned: _, metadata, response, created_at } = appended;
    let message = new_message(id, *role, parts, response.clone(), estimator);
    ImportedMessage { message: NewMessage { pinned, metadata: metadata.clone(), ..message }, created_at: *created_at }
}

/// Tokens of a message that the model does not read.
fn unread(model: &Resolved, ImportedMessage { message, created_at: _ }: &ImportedMessage) -> i64 {
    message.parts.iter().map(|stored| i64::from(unread_part(model, &stored.part, message.role))).sum()
}

fn size(message: &NewMessage) -> i64 {
    i64::from(message.overhead) + message.parts.iter().map(|part| i64::from(part.size.tokens)).sum::<i64>()
}

impl Led {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let append = words.next()?.to_owned();
        Some(Self { append, version: words.next()?.parse().ok()?, tokens: words.next()?.parse().ok()? })
    }
}

impl std::fmt::Display for Led {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.append, self.version, self.tokens)
    }
}
