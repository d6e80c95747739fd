//! Detects lost commits by comparing what readers have seen with the database. A failover to a standby that had not
//! received everything loses commits, and their seqs are assigned again.

use std::sync::LazyLock;

use jiff::Timestamp;

use super::{
    Error, Store,
    key::key_columns,
    named_parameters::Named,
    pipeline::Param,
    row::{get, last_seq, session_key},
};
use crate::model::{Seq, SessionKey};

/// An event that a reader has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenEvent {
    pub seq: Seq,
    /// When the database wrote it, in microseconds. A different event with the same seq has a different time. `None` if
    /// only the seq is known.
    pub at: Option<Timestamp>,
}

/// The result of checking a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenEventCheck {
    /// The event was lost: another event or none has its seq. Contains the newest seq of the session.
    Lost(Seq),
    /// The time at which the event was written, for a mark without a time.
    Written(Timestamp),
}

pub(super) static MARKS: LazyLock<Named> = named_alone!("sql/events/marks.sql");

impl Store {
    /// Checks which of these events the database no longer has, and reads the times of events whose mark has none.
    /// Unchanged events are left out.
    pub async fn check_marks(
        &self,
        marks: &[(SessionKey, SeenEvent)],
    ) -> Result<Vec<(SessionKey, Seq, SeenEventCheck)>, Error> {
        let (tenants, sessions) = key_columns(marks.iter().map(|(key, _)| key));
        let seqs: Vec<i64> = marks.iter().map(|(_, mark)| mark.seq.0).collect();
        let times: Vec<Option<Timestamp>> = marks.iter().map(|(_, mark)| mark.at).collect();
        let values: [(&str, Param<'_>); 4] =
            [("tenants", &tenants), ("sessions", &sessions), ("seqs", &seqs), ("times", &times)];
        let rows = self.reserved().read_named(&MARKS, &values).await?;
        rows.iter()
            .map(|row| {
                let verdict = if get(row, "lost")? {
                    SeenEventCheck::Lost(last_seq(row)?)
                } else {
                    SeenEventCheck::Written(get(row, "at")?)
                };
                Ok((session_key(row)?, Seq(get(row, "seq")?), verdict))
            })
            .collect()
    }
}
