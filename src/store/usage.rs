//! What calls used that a host made by itself.

use std::sync::LazyLock;

use super::{
    Error, Store, commit::Led, named_parameters::Named, pipeline::Param, row::get, rows::Key,
};
use crate::{
    model::{MessageId, Seq, SessionKey, command::Idempotency},
    session::{
        Session,
        usage::{self, Report},
    },
};

/// How a message stands to the end of its transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since {
    /// The version of the transcript that it was appended to. `None` means it is not the first of
    /// an append.
    pub version: Option<i64>,
    /// Appends since then.
    pub later: i64,
    /// What was said since then, in tokens.
    pub tokens: i64,
}

pub(super) static SINCE: LazyLock<Named> = named_alone!("sql/since.sql");

impl Store {
    /// How a message stands to the end of its transcript. `None` means there is no such message.
    pub async fn since(
        &self,
        key: &SessionKey,
        message: &MessageId,
    ) -> Result<Option<Since>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read_named(
                &SINCE,
                &[
                    ("tenant", &key.tenant as Param<'_>),
                    ("session", &key.session),
                    ("message", &message.as_str()),
                ],
            )
            .await?;
        let since = |row| {
            Ok(Since {
                version: get(row, "behind")?,
                later: get(row, "later")?,
                tokens: get(row, "tokens")?,
            })
        };
        rows.first().map(since).transpose()
    }

    /// Records what a call used in an idle session. `None` means a turn runs, the transcript is not
    /// what was seen, or the request is known; [`Store::tail`] tells. Else the newest seq. The request led to
    /// `result`.
    pub async fn record_usage(
        &self,
        key: &SessionKey,
        report: &Report<'_>,
        (idempotency, result): (&Idempotency, &str),
    ) -> Result<Option<Seq>, Error> {
        let record = |session: &Session| usage::record(session, report);
        let recorded = self.change_for(key, (idempotency, Led::To(result)), "", record);
        Ok(recorded.await?.map(|session| session.last_seq()))
    }
}
