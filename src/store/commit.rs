//! The commit of a change of a session: its row, compared with the version that was seen, and the rows
//! that come with it, in one transaction and one round trip.

use std::sync::LazyLock;

use super::{
    Error, Store,
    named_parameters::{self, Named},
    pipeline::Param,
    row::get,
    rows::Key,
    seen::SeenSession,
};
use crate::{
    model::{RequestId, SessionKey, command::Idempotency},
    session::{Session, Version, change::Change},
};

mod columns;

use columns::Columns;

/// How often a change is decided anew because the session was written meanwhile. Each time another
/// write has landed, and few write a session at a time.
pub(super) const LOST_RACES: u32 = 100;

/// What a commit carries beside its change.
#[derive(Debug, Clone, Copy, Default)]
pub struct Committed<'a> {
    /// Names it to the calls that it hands out.
    pub id: &'a str,
    /// Which estimator counted.
    pub estimator: &'a str,
    /// The request that asked for it, and what that has led to by now.
    pub request: Option<(&'a Idempotency, &'a str)>,
}

/// The second one compares the version and answers; the first one is left out where no request asked.
pub(super) static COMMIT: LazyLock<Vec<Named>> = named![
    "sql/commit/request.sql",
    "sql/commit/session.sql",
    "sql/commit/events.sql",
    "sql/commit/messages.sql",
    "sql/commit/parts.sql",
    "sql/commit/media.sql",
    "sql/commit/close_calls.sql",
    "sql/commit/ask_calls.sql",
    "sql/commit/new_calls.sql",
    "sql/commit/turn.sql",
    "sql/commit/context.sql",
    "sql/commit/spend.sql",
    "sql/commit/drop_partial.sql",
];

impl Store {
    /// Reads a session, decides and commits, again and again until nobody wrote the session in between.
    /// Gives the session as it became. `None`: there is none, or `decide` changes nothing.
    pub(super) async fn change(
        &self,
        key: &SessionKey,
        decide: impl Fn(&SeenSession) -> Option<Change<'static>>,
    ) -> Result<Option<Session>, Error> {
        for _ in 0..LOST_RACES {
            let Some(seen) = self.read_session(key).await? else {
                return Ok(None);
            };
            let Some(change) = decide(&seen) else {
                return Ok(None);
            };
            let commit = Committed::default();
            let seen = (&seen.version, &seen.session);
            if self.commit(key, seen, &change, &commit).await? {
                return Ok(Some(change.session));
            }
        }
        Err(Error::Conflict("a turn's owner".to_owned()))
    }

    /// Writes a change of the session as it was seen. False: the session was written meanwhile, or
    /// another request has this one's key. Nothing was written then.
    pub(super) async fn commit(
        &self,
        key: &SessionKey,
        seen: (&Version, &Session),
        change: &Change<'_>,
        commit: &Committed<'_>,
    ) -> Result<bool, Error> {
        let written = Box::pin(self.write(key, seen, change, commit)).await;
        match &written {
            // When somebody has to look at calls is the database's to say: the row is not known then.
            Ok(Some(version)) if change.wake_within.is_none() => {
                let session = change.session.clone();
                self.own.keep(key, version.clone(), session, &self.replica);
            }
            Ok(_) | Err(_) => self.own.forget(key),
        }
        written.map(|version| version.is_some())
    }

    /// The version that it leaves.
    async fn write(
        &self,
        key: &SessionKey,
        (version, seen): (&Version, &Session),
        change: &Change<'_>,
        commit: &Committed<'_>,
    ) -> Result<Option<Version>, Error> {
        let key = Key::from(key);
        let (idempotency, led) = commit.request.unzip();
        let request = idempotency
            .and_then(|it| it.request.as_ref())
            .map(RequestId::as_str);
        let hash = idempotency.map_or("", |it| it.hash.as_str());
        let owner = seen.owner.as_deref();
        let columns = Columns::from(change);
        let mut values = vec![
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("version", &version.0),
            ("epoch", &seen.fence.epoch),
            ("op", &seen.fence.op),
            ("owner", &owner),
            ("request_id", &request),
            ("request_hash", &hash),
            ("led", &led),
            ("submission", &commit.id),
            ("estimator", &commit.estimator),
        ];
        values.extend(columns.values());
        let is_needed = |name: &str| match name {
            "store::commit::request" => request.is_some(),
            name => columns.need(name),
        };
        let written = named_parameters::queries(&COMMIT, &values, is_needed)?;
        let own = usize::from(request.is_some());
        let answers = self.database.transact(&written).await?;
        let row = answers.get(own).and_then(|rows| rows.first());
        row.map(|row| get(row, "version").map(Version)).transpose()
    }
}
