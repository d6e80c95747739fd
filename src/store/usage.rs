//! Usage of model calls that a host made outside of a turn.

use std::sync::LazyLock;

use super::{Error, Store, commit::RequestResult, named_parameters::Named, row::get};
use crate::{
    model::{MessageId, Seq, SessionKey, command::Idempotency},
    session::{
        Session,
        usage::{self, Report},
    },
};

/// The distance of a message from the end of its transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranscriptDistance {
    /// Version of the transcript to which it was appended. `None` if it is not the first message of an append.
    pub version: Option<i64>,
    /// Number of appends since then.
    pub later: i64,
    /// Tokens of messages since then.
    pub tokens: i64,
}

pub(super) static SINCE: LazyLock<Named> = named_alone!("sql/since.sql");

impl Store {
    /// Reads the distance of a message from the end of its transcript. Returns `None` if there is no such message.
    pub async fn distance_to_end(
        &self,
        key: &SessionKey,
        message: &MessageId,
    ) -> Result<Option<TranscriptDistance>, Error> {
        let rows = self.database.read_named_in(key, &SINCE, &[("message", &message.as_str())]).await?;
        let since = |row| {
            Ok(TranscriptDistance {
                version: get(row, "behind")?,
                later: get(row, "later")?,
                tokens: get(row, "tokens")?,
            })
        };
        rows.first().map(since).transpose()
    }

    /// Records the usage of a call in an idle session and stores `result` for the request. Returns the newest seq, or
    /// `None` if a turn is running, the transcript has changed since it was read, or the request is known;
    /// [`Store::tail`] returns the reason.
    pub async fn record_usage(
        &self,
        key: &SessionKey,
        report: &Report<'_>,
        (idempotency, result): (&Idempotency, &str),
    ) -> Result<Option<Seq>, Error> {
        let record = |session: &Session| usage::record(session, report);
        let recorded = self.change_for(key, (idempotency, RequestResult::Text(result)), "", record);
        Ok(recorded.await?.map(|session| session.last_seq()))
    }
}
