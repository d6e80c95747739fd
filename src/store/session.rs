//! Sessions: create, load and list them, and read their state.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    anchor::anchor,
    commit::{CommitMetadata, MAX_COMMIT_CONFLICTS, RequestResult},
    counters::counters,
    named_parameters::Named,
    number::enum_value,
    owned::Revision,
    row::{count, get, last_seq},
    session_memory::PrepareInput,
    stats::model_dependent,
};
use crate::{
    codec,
    model::{
        Anchor, Seq, SessionConfig, SessionId, SessionKey, ToolSet, TurnId, command::Idempotency,
        ledger::ModelDependent,
    },
    session::{
        self, SessionState,
        change::Change,
        config_rows::NewConfig,
        creation::{self, NewSession},
    },
};

/// A session with its current configuration.
#[derive(Debug, Clone)]
pub struct Session {
    pub id: SessionId,
    pub state: SessionState,
    /// The running turn.
    pub current_turn: Option<TurnId>,
    /// The replica that runs the turn, and when another replica may take it over if the lease is not renewed.
    pub holder: Option<(String, Timestamp)>,
    pub last_seq: Seq,
    /// Revision of the configuration.
    pub revision: i64,
    pub config: SessionConfig,
    /// Tokens of the configuration's tool definitions.
    pub tools_tokens: u32,
    /// Tokens of the live transcript.
    pub context_tokens: i64,
    /// The part of the tokens that depends on the model.
    pub model_dependent: ModelDependent,
    /// Version of the context.
    pub context_version: i64,
    /// The last measured call.
    pub anchor: Option<Anchor>,
    /// Number of messages in the queue.
    pub queued: u32,
    /// The session it was forked from, and the seq of the fork.
    pub forked: Option<(SessionId, Seq)>,
    /// Number of calls without results, of the running turn or appended.
    pub open_calls: u32,
    /// Number of compactions in force or superseded by newer ones.
    pub compactions: u32,
    /// When the newest of them was put in force.
    pub compacted_at: Option<Timestamp>,
    /// Whether a compaction is running.
    pub compacting: bool,
    /// Seq of the oldest event that readers receive. Earlier events were removed, or belong to the session it was
    /// forked from.
    pub events_from: Seq,
    pub created_at: Timestamp,
    /// When it was last used.
    pub updated_at: Timestamp,
}

impl Session {
    /// Returns the seq of the fork, or 0: events up to it belong to the session it was forked from.
    pub fn fork_seq(&self) -> Seq {
        self.forked.as_ref().map_or(Seq(0), |(_, at)| *at)
    }

    /// Fails if events after this cursor were removed.
    pub fn check_cursor(&self, after: Seq) -> Result<(), Error> {
        let oldest = self.events_from;
        if after.0 + 1 < oldest.0 { Err(Error::EventsExpired { oldest }) } else { Ok(()) }
    }
}

impl From<Session> for PrepareInput {
    fn from(session: Session) -> Self {
        Self {
            revision: Arc::new(Revision { number: session.revision, config: session.config }),
            context_tokens: session.context_tokens,
            context_version: session.context_version,
            anchor: session.anchor,
            queued: session.queued,
            model_dependent: session.model_dependent,
        }
    }
}

pub(super) static SESSION: LazyLock<Named> = named_alone!("sql/sessions/one.sql");

pub(super) static REVISION_AT: LazyLock<Named> = named_alone!("sql/sessions/revision_at.sql");

impl Store {
    /// Creates a session. Returns false if one with this id exists.
    pub async fn create_session(
        &self,
        key: &SessionKey,
        config: NewConfig<'_>,
        idempotency: &Idempotency,
    ) -> Result<bool, Error> {
        let request = (idempotency, key.session.as_str());
        let create = |new| Some(creation::create(&new));
        let made = Box::pin(self.make_session(key, config, request, create));
        Ok(made.await?.is_some())
    }

    /// Creates a session and stores `led` for its request. Returns `None` if a session with this id exists, a deleted
    /// one has not been purged yet, or the request is known.
    pub(super) async fn make_session<'a>(
        &self,
        key: &SessionKey,
        config: NewConfig<'a>,
        (request, led): (&Idempotency, &str),
        make: impl Fn(NewSession<'a>) -> Option<Change<'a>>,
    ) -> Result<Option<session::Session>, Error> {
        let commit = CommitMetadata::counted_by(config.estimator).storing(request, RequestResult::Text(led));
        let mut last_epoch = 0;
        for _ in 0..MAX_COMMIT_CONFLICTS {
            let new = NewSession { config, last_epoch };
            let Some(change) = make(new) else {
                return Ok(None);
            };
            let empty = new.empty();
            let made = self.commit_new(key, &empty, &change, &commit).await?;
            if made.is_some() {
                return Ok(Some(change.session));
            }
            self.check_tenant(key.tenant.as_str()).await?;
            match self.last_epoch(key).await? {
                Some(epoch) if epoch != last_epoch => last_epoch = epoch,
                Some(_) | None => return Ok(None),
            }
        }
        Err(Error::Conflict("concurrent writes prevented the creation of a session".to_owned()))
    }

    /// The last epoch of a deleted session with this id, or 0. Returns `None` if the id is in use.
    async fn last_epoch(&self, key: &SessionKey) -> Result<Option<i64>, Error> {
        const SQL: &str = "-- store::session::last_epoch
            select coalesce((select i.result::bigint from idempotency i
                              where i.tenant_id = $1 and i.session_id = $2 and i.request_id = ''), 0) as epoch
             where not exists (select from session_run r where r.tenant_id = $1 and r.session_id = $2)";
        let rows = self.database.read_in(key, SQL, &[]).await?;
        rows.first().map(|row| get(row, "epoch")).transpose()
    }

    /// Reads a session with its configuration. Returns `None` if it does not exist.
    pub async fn session(&self, key: &SessionKey) -> Result<Option<Session>, Error> {
        self.session_of(key, None).await
    }

    /// Reads a session with the configuration of one of its revisions. Returns `None` if it does not exist.
    pub async fn session_at(&self, key: &SessionKey, revision: i64) -> Result<Option<Session>, Error> {
        self.session_of(key, Some(revision)).await
    }

    /// Reads the revision of the configuration that was in force at a seq. Returns `None` if the session does not
    /// exist.
    pub async fn revision_at(&self, key: &SessionKey, at: Seq) -> Result<Option<i64>, Error> {
        let rows = self.database.read_named_in(key, &REVISION_AT, &[("at", &at.0)]).await?;
        rows.first().map(|row| get(row, "revision")).transpose()
    }

    async fn session_of(&self, key: &SessionKey, revision: Option<i64>) -> Result<Option<Session>, Error> {
        let rows = self.database.read_named_in(key, &SESSION, &[("revision", &revision)]).await?;
        rows.first().map(session).transpose()
    }
}

pub(super) fn session(row: &Row) -> Result<Session, Error> {
    let state: SessionState = enum_value(row, "state")?;
    let counters = counters(row)?;
    let owner: Option<String> = get(row, "owner")?;
    let lease_until: Option<Timestamp> = get(row, "lease_until")?;
    let from: Option<String> = get(row, "forked_from")?;
    let at: Option<i64> = get(row, "forked_at_seq")?;
    let tools: ToolSet = codec::tools::decode(get(row, "tools")?)?;
    Ok(Session {
        id: SessionId::new(get::<String>(row, "session_id")?),
        state,
        current_turn: if state.is_live() { get::<Option<String>>(row, "turn_id")?.map(TurnId::new) } else { None },
        holder: owner.zip(lease_until),
        last_seq: last_seq(row)?,
        revision: get(row, "revision")?,
        config: codec::config::decode(get(row, "config")?, tools)?,
        tools_tokens: count(row, "tools_tokens")?,
        context_tokens: counters.size(),
        model_dependent: model_dependent(row, &counters)?,
        context_version: get(row, "context_version")?,
        anchor: anchor(row)?,
        queued: count(row, "queued")?,
        forked: from.map(SessionId::new).zip(at.map(Seq)),
        events_from: Seq(get::<Option<i64>>(row, "events_from")?.unwrap_or(at.unwrap_or_default() + 1)),
        open_calls: count(row, "open_calls")?,
        compactions: count(row, "compactions")?,
        compacted_at: get(row, "compacted_at")?,
        compacting: get(row, "compacting")?,
        created_at: get(row, "created_at")?,
        updated_at: get(row, "updated_at")?,
    })
}

impl From<codec::DecodeError> for Error {
    fn from(error: codec::DecodeError) -> Self {
        Self::Corrupt(error.to_string())
    }
}
