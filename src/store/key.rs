//! Statements about one session. The session's key is passed as the parameters $1 and $2, or `tenant` and `session`.

use tokio_postgres::Row;

use super::{
    Database, Error,
    named_parameters::{Named, WrongNames},
    pipeline::{Param, Query},
};
use crate::model::SessionKey;

/// The key of a session as parameters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'k> {
    tenant: &'k str,
    session: &'k str,
}

impl<'k> From<&'k SessionKey> for Key<'k> {
    fn from(key: &'k SessionKey) -> Self {
        Self { tenant: key.tenant.as_str(), session: key.session.as_str() }
    }
}

impl Key<'_> {
    /// Binds the key and more values to a statement with numbered parameters.
    pub(super) fn query<'a>(&'a self, sql: &'static str, more: &[Param<'a>]) -> Query<'a> {
        let key: [Param<'a>; 2] = [&self.tenant, &self.session];
        Query::new(sql, [key.as_slice(), more].concat())
    }

    /// Binds the key and more values to a statement with named parameters.
    pub(super) fn named<'a>(
        &'a self,
        statement: &'static Named,
        more: &[(&'static str, Param<'a>)],
    ) -> Result<Query<'a>, WrongNames> {
        let key: [(&'static str, Param<'a>); 2] = [("tenant", &self.tenant), ("session", &self.session)];
        statement.query(&[key.as_slice(), more].concat())
    }
}

impl Database {
    /// Reads rows of a session with a statement that has numbered parameters.
    pub(super) async fn read_in(
        &self,
        key: &SessionKey,
        sql: &'static str,
        more: &[Param<'_>],
    ) -> Result<Vec<Row>, Error> {
        let key = Key::from(key);
        let query = key.query(sql, more);
        self.read(query.sql, &query.params).await
    }

    /// Reads rows of a session with a statement that has named parameters.
    pub(super) async fn read_named_in(
        &self,
        key: &SessionKey,
        statement: &'static Named,
        more: &[(&'static str, Param<'_>)],
    ) -> Result<Vec<Row>, Error> {
        let key = Key::from(key);
        let query = key.named(statement, more)?;
        self.read(query.sql, &query.params).await
    }

    /// Writes rows of a session with a statement that has numbered parameters.
    pub(super) async fn write_in(
        &self,
        key: &SessionKey,
        sql: &'static str,
        more: &[Param<'_>],
    ) -> Result<Vec<Row>, Error> {
        let key = Key::from(key);
        self.write(&key.query(sql, more)).await
    }
}

/// The tenants and the sessions of keys, as columns.
pub(super) fn key_columns<'a>(keys: impl IntoIterator<Item = &'a SessionKey>) -> (Vec<&'a str>, Vec<&'a str>) {
    keys.into_iter().map(|key| (key.tenant.as_str(), key.session.as_str())).unzip()
}
