//! The requests whose fields are decoded one by one: each is a list of the fields of its command, and of the fields of
//! the request that they are read from. Requests with messages, tools or configurations have files of their own.

use super::{Decode, Findings, PageRequest, labels, number, page, text};
use crate::{
    auth::manage::CreateKey,
    codec::{
        DecodeError,
        field::{Field, choices},
    },
    model::{
        BlobId, PromptFormat, Seq, SessionId, TenantId, TenantLimits, TurnId,
        command::{
            CancelQueuedMessage, CancelTurn, ClearQueue, DeleteSession, ForkSession, Idempotency, PrepareContext,
            PruneToolOutputs, RenderContext, RestoreToolOutputs, RevertCompaction,
        },
        config::PruneOverrides,
    },
    pb,
    session::SessionState,
    store::{message::View, session_filter::SessionFilter},
};

/// Default page size of ListEvents.
const DEFAULT_EVENTS: u32 = 100;

/// A validated request of ListKeys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListKeys {
    /// `None` for the caller's tenant.
    pub tenant: Option<TenantId>,
    pub page: PageRequest,
}

/// A validated request of RevokeKey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokeKey {
    /// `None` for the caller's tenant.
    pub tenant: Option<TenantId>,
    /// The id of the key.
    pub key: String,
}

/// A validated request of SetTenantLimits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetLimits {
    pub tenant: TenantId,
    /// All limits of the tenant that differ from the defaults.
    pub limits: TenantLimits,
}

/// The range of a blob to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetBlob {
    pub blob: BlobId,
    /// The first byte.
    pub offset: u64,
    /// Number of bytes; 0 means to the end.
    pub length: u64,
}

/// A validated request of ListModels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListModels {
    /// Return only models of this provider. `None` means all.
    pub provider: Option<String>,
    pub page: PageRequest,
}

/// A page of what belongs to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOfSession {
    pub session: SessionId,
    pub page: PageRequest,
}

/// A validated request of ListMessages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListMessages {
    pub session: SessionId,
    pub view: View,
    /// List messages as of this seq. `None` for the current state.
    pub at: Option<Seq>,
    pub newest_first: bool,
    pub page: PageRequest,
}

/// A validated request of GetTurn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetTurn {
    pub session: SessionId,
    pub turn: TurnId,
}

/// A validated request of ListSessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSessions {
    pub filter: SessionFilter,
    pub page: PageRequest,
}

/// A validated request of ListEvents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEvents {
    pub session: SessionId,
    /// Return only events of this turn.
    pub turn: Option<TurnId>,
    /// Return only events after this seq.
    pub after: Seq,
    /// Maximum number of events.
    pub size: u32,
}

/// A validated request of GetContextStats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetContextStats {
    pub session: SessionId,
    /// Compute the statistics for this model. `None` for the session's model.
    pub model: Option<String>,
    /// Whether to format the statistics as text too.
    pub as_text: bool,
}

/// A field of a command, read from one or more fields of a request. Their limits are checked.
trait FromFields<P>: Sized {
    fn from_fields(name: &'static str, fields: P, found: &Findings) -> Result<Self, DecodeError>;
}

impl<T: Field<P>, P> FromFields<(P,)> for T {
    fn from_fields(name: &'static str, (field,): (P,), _: &Findings) -> Result<Self, DecodeError> {
        Self::from_field(name, field)
    }
}

impl FromFields<(String,)> for Idempotency {
    fn from_fields(_: &'static str, (request_id,): (String,), found: &Findings) -> Result<Self, DecodeError> {
        Ok(found.idempotency(request_id))
    }
}

impl FromFields<(i32, String)> for PageRequest {
    fn from_fields(_: &'static str, (size, token): (i32, String), _: &Findings) -> Result<Self, DecodeError> {
        Ok(Self::new(size, token))
    }
}

/// Implements [`Decode`]. The fields of a command are read:
///
/// - `field = name`, `field = name & name`: by [`FromFields`];
/// - `field = name & name: read`: by a function of the fields of the request.
macro_rules! requests {
    (@value $found:ident [$($name:ident)+]) => {
        FromFields::from_fields(stringify!($($name)&+), ($($name,)+), $found)?
    };
    (@value $found:ident [$($name:ident)+] $read:expr) => {{
        let read = $read;
        read($($name),+)
    }};
    ($($request:ident => $command:ident { $($field:ident = $($name:ident)&+ $(: $read:expr)?;)+ })+) => {
        $(impl Decode for pb::$request {
            type Command = $command;

            fn read(self, found: &mut Findings) -> Result<$command, DecodeError> {
                let Self { $($($name,)+)+ } = self;
                Ok($command { $($field: requests!(@value found [$($name)+] $($read)?),)+ })
            }
        })+
    };
    ($($request:ident => $command:ty = $name:ident;)+) => {
        $(impl Decode for pb::$request {
            type Command = $command;

            fn read(self, _: &mut Findings) -> Result<$command, DecodeError> {
                let Self { $name } = self;
                Field::from_field(stringify!($name), $name)
            }
        })+
    };
}

impl Decode for pb::GetServerInfoRequest {
    type Command = ();

    fn read(self, _: &mut Findings) -> Result<(), DecodeError> {
        let Self {} = self;
        Ok(())
    }
}

requests! {
    GetTenantLimitsRequest => Option<TenantId> = tenant_id;
    GetTenantDeletionRequest => Option<TenantId> = tenant_id;
    DeleteTenantRequest => TenantId = tenant_id;
    GetSessionRequest => SessionId = session_id;
    GetModelRequest => String = model;
}

requests! {
    ListKeysRequest => ListKeys {
        tenant = tenant_id;
        page = page_size & page_token;
    }
    CreateKeyRequest => CreateKey {
        tenant = tenant_id;
        access = access;
        name = name;
        ttl = ttl: number::duration;
    }
    RevokeKeyRequest => RevokeKey {
        tenant = tenant_id;
        key = key_id;
    }
    SetTenantLimitsRequest => SetLimits {
        tenant = tenant_id;
        limits = limits;
    }
    GetBlobRequest => GetBlob {
        blob = blob_id;
        offset = offset_bytes;
        length = length_bytes;
    }
    ListModelsRequest => ListModels {
        provider = provider;
        page = page_size & page_token;
    }
    ListSessionsRequest => ListSessions {
        filter = filter: session_filter;
        page = page_size & page_token;
    }
    ListMessagesRequest => ListMessages {
        session = session_id;
        view = view;
        at = at_seq;
        newest_first = newest_first;
        page = page_size & page_token;
    }
    ListEventsRequest => ListEvents {
        session = session_id;
        turn = turn_id;
        after = after_seq;
        size = page_size: |size| page::size(size, DEFAULT_EVENTS);
    }
    ListTurnsRequest => ListOfSession {
        session = session_id;
        page = page_size & page_token;
    }
    ListCompactionsRequest => ListOfSession {
        session = session_id;
        page = page_size & page_token;
    }
    ListQueuedMessagesRequest => ListOfSession {
        session = session_id;
        page = page_size & page_token;
    }
    GetTurnRequest => GetTurn {
        session = session_id;
        turn = turn_id;
    }
    CancelTurnRequest => CancelTurn {
        session = session_id;
        turn = turn_id;
        idempotency = request_id;
        rollback = mode: |mode| number::choice(mode) == Some(pb::CancelMode::Rollback);
        reason = reason: |reason| text::replace_nul(reason).0;
    }
    DeleteSessionRequest => DeleteSession {
        session = session_id;
        etag = etag;
        idempotency = request_id;
    }
    ForkSessionRequest => ForkSession {
        session = session_id;
        at = at_seq;
        new = new_session_id;
        idempotency = request_id;
    }
    CancelQueuedMessageRequest => CancelQueuedMessage {
        session = session_id;
        message = queued_message_id;
        idempotency = request_id;
    }
    ClearQueueRequest => ClearQueue {
        session = session_id;
        idempotency = request_id;
    }
    GetContextStatsRequest => GetContextStats {
        session = session_id;
        model = model;
        as_text = format: |format| number::choice(format) == Some(pb::StatsFormat::Text);
    }
    RenderContextRequest => RenderContext {
        session = session_id;
        model = model;
        format = format;
        at = at_seq;
    }
    PrepareContextRequest => PrepareContext {
        session = session_id;
        idempotency = request_id;
        model = model;
        format = format;
        applies_queued = apply_queued_messages;
    }
    PruneToolOutputsRequest => PruneToolOutputs {
        session = session_id;
        overrides = minimum_tokens & protect_tokens & protect_turns: prune_overrides;
        dry_run = validate_only;
        idempotency = request_id;
    }
    RestoreToolOutputsRequest => RestoreToolOutputs {
        session = session_id;
        pruned_at = pruned_at_seq;
        idempotency = request_id;
    }
    RevertCompactionRequest => RevertCompaction {
        session = session_id;
        compaction = compaction_id;
        idempotency = request_id;
    }
}

fn session_filter(filter: Option<pb::SessionFilter>) -> SessionFilter {
    let filter = filter.unwrap_or_default();
    let pb::SessionFilter { states, metadata, text_prefix, updated_since, updated_before } = filter;
    let mut states: Vec<SessionState> = states.into_iter().filter_map(session_state).collect();
    states.sort_unstable();
    states.dedup();
    SessionFilter {
        states,
        metadata: labels::labels(metadata),
        since: number::timestamp(updated_since),
        until: number::timestamp(updated_before),
        text: text::replace_nul(text_prefix).0,
    }
}

fn session_state(state: i32) -> Option<SessionState> {
    match number::choice(state)? {
        pb::SessionState::Unspecified => None,
        pb::SessionState::Idle => Some(SessionState::Idle),
        pb::SessionState::Running => Some(SessionState::Running),
        pb::SessionState::AwaitingTools => Some(SessionState::AwaitingTools),
    }
}

fn prune_overrides(minimum: Option<i32>, tokens: Option<i32>, turns: Option<i32>) -> PruneOverrides {
    PruneOverrides {
        minimum_tokens: number::optional_count(minimum),
        protect_tokens: number::optional_count(tokens),
        protect_turns: number::optional_count(turns),
        ..PruneOverrides::default()
    }
}

choices! {
    View = MessageView { All, Live; Unspecified => All }
    PromptFormat = PromptFormat {
        Neutral, OpenAiChat = OpenaiChat, OpenAiResponses = OpenaiResponses, Anthropic, Gemini,
        Native, AiSdk, AiSdk7;
        Unspecified => Neutral
    }
}
