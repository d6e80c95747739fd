//! Sessions: create, load, list, and where they stand.

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    anchor::{anchor, anchor_columns},
    listed::Listed,
    pipeline::{Param, Query},
    row::get,
    rows::{Key, signed},
    stats::{model_dependent, model_dependent_columns},
    version::FIRST_REVISION,
};
use crate::{
    codec,
    model::{
        Anchor, RequestId, Seq, SessionConfig, SessionId, SessionKey, TenantId, ToolSet, TurnId,
        command::Idempotency, ledger::ModelDependent,
    },
};

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionState {
    /// No live turn.
    Idle,
    /// A turn runs.
    Running,
    /// A turn waits for results.
    AwaitingTools,
    /// Deleted; rows may still be there.
    Deleted,
}

impl SessionState {
    pub(super) fn from_number(number: i16) -> Result<Self, Error> {
        match number {
            0 => Ok(Self::Idle),
            1 => Ok(Self::Running),
            2 => Ok(Self::AwaitingTools),
            3 => Ok(Self::Deleted),
            other => Err(Error::Corrupt(format!("session state {other}"))),
        }
    }

    /// Whether a turn is live.
    pub fn is_live(self) -> bool {
        match self {
            Self::Running | Self::AwaitingTools => true,
            Self::Idle | Self::Deleted => false,
        }
    }
}

/// A session with its configuration in force.
#[derive(Debug, Clone)]
pub struct Session {
    /// Which.
    pub id: SessionId,
    /// Where it stands.
    pub state: SessionState,
    /// The live turn.
    pub current_turn: Option<TurnId>,
    /// The newest seq.
    pub last_seq: Seq,
    /// The configuration's revision.
    pub revision: i64,
    /// The configuration.
    pub config: SessionConfig,
    /// Tokens of the configuration's tool definitions.
    pub tools_tokens: u32,
    /// Tokens of the live transcript.
    pub context_tokens: i64,
    /// What of it depends on the model that is called.
    pub holds: ModelDependent,
    /// Its version.
    pub context_version: i64,
    /// The last call that was measured.
    pub anchor: Option<Anchor>,
    /// Messages waiting in the queue.
    pub queued: u32,
    /// The session it was forked from, and the seq.
    pub forked: Option<(SessionId, Seq)>,
    /// Calls without results, of the live turn or appended.
    pub open_calls: u32,
    /// Compactions in force or built on.
    pub compactions: u32,
    /// When the last of them came in force.
    pub compacted_at: Option<Timestamp>,
    /// One is being made.
    pub compacting: bool,
    /// The oldest event that readers get: those before it were removed, or are those of the
    /// session it was forked from.
    pub events_from: Seq,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last used.
    pub updated_at: Timestamp,
}

impl Session {
    /// Where its own record begins: events up to here are those of the session it was forked from.
    pub fn begins_behind(&self) -> Seq {
        self.forked.as_ref().map_or(Seq(0), |(_, at)| *at)
    }

    /// Refuses a cursor after which events were removed.
    pub fn check_cursor(&self, after: Seq) -> Result<(), Error> {
        let oldest = self.events_from;
        if after.0 + 1 < oldest.0 {
            Err(Error::EventsExpired { oldest })
        } else {
            Ok(())
        }
    }
}

/// A configuration to be stored, with the size of its tools.
#[derive(Debug, Clone)]
pub struct NewConfig<'a> {
    /// The configuration.
    pub config: &'a SessionConfig,
    /// Tokens of its tool definitions.
    pub tools_tokens: u32,
    /// Which estimator counted them.
    pub estimator: &'a str,
}

/// The configuration as it is bound to parameters.
pub(super) struct ConfigParams {
    pub(super) toolset_id: String,
    pub(super) config: Vec<u8>,
    pub(super) tools: Vec<u8>,
    pub(super) tokens: i32,
    /// The session's time to live, in seconds.
    pub(super) ttl: Option<f64>,
}

impl From<&NewConfig<'_>> for ConfigParams {
    fn from(new: &NewConfig<'_>) -> Self {
        let tools = codec::tools::encode(&new.config.tools);
        Self {
            toolset_id: codec::tools::content_id(&tools),
            config: codec::config::encode(new.config),
            tools,
            tokens: signed(new.tools_tokens),
            ttl: new.config.ttl.map(|ttl| ttl.as_secs_f64()),
        }
    }
}

/// What is known of a session's compactions, without a look at those that failed.
macro_rules! compacted {
    ($session:literal) => {
        concat!(
            "select count(*)::int as compactions, max(c.ended_at) as compacted_at,
                    exists (select from compactions n where n.tenant_id = $1 and n.session_id = ",
            $session,
            " and n.status = 1) as compacting
               from compactions c where c.tenant_id = $1 and c.session_id = ",
            $session,
            " and c.status = 2"
        )
    };
}

pub(super) const SESSION: &str = concat!("-- store::session::session: $3 the revision that the configuration is of, or null for the one in force
    select s.session_id, s.created_at, s.forked_from, s.forked_at_seq, s.events_from, a.updated_at, r.state, r.turn_id, r.next_seq, v.revision,
           r.ctx_tokens, r.open_calls, v.config, t.tools, t.tokens as tools_tokens, ", anchor_columns!(), ",
           ", model_dependent_columns!("$2"), ",
           (select count(*) from queue q where q.tenant_id = $1 and q.session_id = $2 and q.status = 0)::int as queued,
           k.compactions, k.compacted_at, k.compacting
      from sessions s
      cross join lateral (", compacted!("$2"), ") k
      join session_run r on r.tenant_id = $1 and r.session_id = $2 and r.state <> 3
      join session_context c on c.tenant_id = $1 and c.session_id = $2
      join session_activity a on a.tenant_id = $1 and a.session_id = $2
      join session_revisions v on v.tenant_id = $1 and v.session_id = $2
       and v.revision = coalesce($3::bigint, r.revision)
      join toolsets t on t.tenant_id = $1 and t.toolset_id = v.toolset_id
     where s.tenant_id = $1 and s.session_id = $2");

/// Each revision has one event.
pub(super) const REVISION_AT: &str = "-- store::session::revision_at: $3 the seq
    select r.revision - (select count(*) from events e
                          where e.tenant_id = $1 and e.session_id = $2 and e.seq > $3 and e.kind = 'session_updated') as revision
      from session_run r where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3";

impl Store {
    /// Creates a session. False: one with this id exists.
    pub async fn create_session(
        &self,
        key: &SessionKey,
        new: &NewConfig<'_>,
        idempotency: &Idempotency,
    ) -> Result<bool, Error> {
        const SQL: &str = "-- store::session::create_session
            -- $3 revision $4 toolset id $5 config $6 tools $7 their tokens $8 estimator $9 request id or null $10 hash
            -- $11 time to live (s) or null
            with s as (insert into sessions (tenant_id, session_id) values ($1, $2) on conflict do nothing returning 1),
            r as (insert into session_run (tenant_id, session_id, revision, epoch)
                  select $1, $2, $3, coalesce((select i.result::bigint from idempotency i
                                                where i.tenant_id = $1 and i.session_id = $2 and i.request_id = ''), 0) from s),
            c as (insert into session_context (tenant_id, session_id) select $1, $2 from s),
            a as (insert into session_activity (tenant_id, session_id, ttl) select $1, $2, make_interval(secs => $11) from s),
            t as (insert into toolsets (tenant_id, toolset_id, tools, tokens, estimator)
                  select $1, $4, $6::bytea, $7::int, $8 from s on conflict do nothing),
            v as (insert into session_revisions (tenant_id, session_id, revision, toolset_id, config)
                  select $1, $2, $3, $4, $5::bytea from s),
            i as (insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
                  select $1, $2, $9, $10, $2 from s where $9::text is not null)
            select 1 from s";
        let key = Key::from(key);
        let config = ConfigParams::from(new);
        let request = idempotency.request.as_ref().map(RequestId::as_str);
        let params: Vec<Param<'_>> = vec![
            &key.tenant,
            &key.session,
            &FIRST_REVISION,
            &config.toolset_id,
            &config.config,
            &config.tools,
            &config.tokens,
            &new.estimator,
            &request,
            &idempotency.hash,
            &config.ttl,
        ];
        match self.database.write(&Query::new(SQL, params)).await {
            Ok(rows) => Ok(!rows.is_empty()),
            // A deleted session keeps its id until it is purged; a request_id may have ended one
            // that had this id before.
            Err(Error::Duplicate(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The session with its configuration. `None` means there is no such session.
    pub async fn session(&self, key: &SessionKey) -> Result<Option<Session>, Error> {
        self.session_of(key, None).await
    }

    /// The session as it is, but with the configuration of one of its revisions. `None` means there
    /// is no such session.
    pub async fn session_at(
        &self,
        key: &SessionKey,
        revision: i64,
    ) -> Result<Option<Session>, Error> {
        self.session_of(key, Some(revision)).await
    }

    /// The revision of the configuration that was in force at a seq. `None` means there is no such
    /// session.
    pub async fn revision_at(&self, key: &SessionKey, at: Seq) -> Result<Option<i64>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read(REVISION_AT, &[&key.tenant, &key.session, &at.0])
            .await?;
        rows.first().map(|row| get(row, "revision")).transpose()
    }

    async fn session_of(
        &self,
        key: &SessionKey,
        revision: Option<i64>,
    ) -> Result<Option<Session>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read(SESSION, &[&key.tenant, &key.session, &revision])
            .await?;
        rows.first().map(session).transpose()
    }

    /// Sessions of a tenant, the last used first, after `after`: at most `limit`, and as many as
    /// have configurations of at most `bytes` as they are stored, but at least one. Without
    /// their tools.
    pub async fn sessions(
        &self,
        tenant: &TenantId,
        after: Option<&(Timestamp, SessionId)>,
        limit: u32,
        bytes: i64,
    ) -> Result<Listed<Session>, Error> {
        const SQL: &str = concat!("-- store::session::sessions: $2, $3 after this time and session $4 most sessions $5 most bytes
            with page as (
              select a.session_id, a.updated_at from session_activity a
               where a.tenant_id = $1 and a.updated_at > '-infinity'
                 and ($2::timestamptz is null or (a.updated_at, a.session_id) < ($2, $3))
               order by a.updated_at desc, a.session_id desc limit $4),
            fits as (
              select p.*, sum(octet_length(v.config)) over w as bytes, row_number() over w as n, count(*) over () as page_rows
                from page p
                join session_run r on r.tenant_id = $1 and r.session_id = p.session_id and r.state <> 3
                join session_revisions v on v.tenant_id = $1 and v.session_id = p.session_id and v.revision = r.revision
              window w as (order by p.updated_at desc, p.session_id desc))
            select s.session_id, s.created_at, s.forked_from, s.forked_at_seq, s.events_from, f.updated_at, r.state, r.turn_id, r.next_seq,
                   r.revision, r.ctx_tokens, r.open_calls, v.config, ''::bytea as tools, 0 as tools_tokens, f.page_rows,
                   ", anchor_columns!(), ",
                   ", model_dependent_columns!("s.session_id"), ",
                   (select count(*) from queue q where q.tenant_id = $1 and q.session_id = s.session_id and q.status = 0)::int as queued,
                   k.compactions, k.compacted_at, k.compacting
              from fits f
              join sessions s on s.tenant_id = $1 and s.session_id = f.session_id
              join session_run r on r.tenant_id = $1 and r.session_id = f.session_id
              join session_context c on c.tenant_id = $1 and c.session_id = f.session_id
              join session_revisions v on v.tenant_id = $1 and v.session_id = f.session_id and v.revision = r.revision
              cross join lateral (", compacted!("s.session_id"), ") k
             where f.bytes <= $5 or f.n = 1
             order by f.updated_at desc, f.session_id desc");
        let at = after.map(|(at, _)| *at);
        let session_id = after.map_or("", |(_, session)| session.as_str());
        let params: [Param<'_>; 5] = [
            &tenant.as_str(),
            &at,
            &session_id,
            &i64::from(limit),
            &bytes,
        ];
        let rows = self.database.read(SQL, &params).await?;
        Listed::new(rows.iter().map(session).collect::<Result<_, _>>()?, &rows)
    }
}

pub(super) fn session(row: &Row) -> Result<Session, Error> {
    let state = SessionState::from_number(get(row, "state")?)?;
    let next_seq: i64 = get(row, "next_seq")?;
    let from: Option<String> = get(row, "forked_from")?;
    let at: Option<i64> = get(row, "forked_at_seq")?;
    let tools: ToolSet = codec::tools::decode(get(row, "tools")?)?;
    Ok(Session {
        id: SessionId::new(get::<String>(row, "session_id")?),
        state,
        current_turn: if state.is_live() {
            get::<Option<String>>(row, "turn_id")?.map(TurnId::new)
        } else {
            None
        },
        last_seq: Seq(next_seq - 1),
        revision: get(row, "revision")?,
        config: codec::config::decode(get(row, "config")?, tools)?,
        tools_tokens: super::row::count(row, "tools_tokens")?,
        context_tokens: get(row, "ctx_tokens")?,
        holds: model_dependent(row)?,
        context_version: get(row, "context_version")?,
        anchor: anchor(row)?,
        queued: super::row::count(row, "queued")?,
        forked: from.map(SessionId::new).zip(at.map(Seq)),
        events_from: Seq(
            get::<Option<i64>>(row, "events_from")?.unwrap_or(at.unwrap_or_default() + 1)
        ),
        open_calls: super::row::count(row, "open_calls")?,
        compactions: super::row::count(row, "compactions")?,
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
