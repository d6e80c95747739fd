//! Detects lost commits by comparing what readers have seen with the database. A failover to a standby that had not
//! received everything loses commits, and their seqs are assigned again.

use jiff::Timestamp;

use super::{Error, Store, row::get, row::session_key};
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

pub(super) const MARKS: &str = "-- store::lost_commits::check: events that retention removed are not lost
    select u.tenant as tenant_id, u.session as session_id, u.seq, r.next_seq, e.at, l.lost
      from unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[]) as u(tenant, session, seq, at)
      join session_run r on r.tenant_id = u.tenant and r.session_id = u.session and r.state <> 3
      left join lateral (select e.at from events e
                          where e.tenant_id = u.tenant and e.session_id = u.session and e.seq = u.seq offset 0) e on true
     cross join lateral (select (r.next_seq <= u.seq or e.at <> u.at) is true as lost) l
     where l.lost or (u.at is null and e.at is not null)";

impl Store {
    /// Checks which of these events the database no longer has, and reads the times of events whose mark has none.
    /// Unchanged events are left out.
    pub async fn check_marks(
        &self,
        marks: &[(SessionKey, SeenEvent)],
    ) -> Result<Vec<(SessionKey, Seq, SeenEventCheck)>, Error> {
        let tenants: Vec<&str> = marks.iter().map(|(key, _)| key.tenant.as_str()).collect();
        let sessions: Vec<&str> = marks.iter().map(|(key, _)| key.session.as_str()).collect();
        let seqs: Vec<i64> = marks.iter().map(|(_, mark)| mark.seq.0).collect();
        let times: Vec<Option<Timestamp>> = marks.iter().map(|(_, mark)| mark.at).collect();
        let rows = self.reserved().read(MARKS, &[&tenants, &sessions, &seqs, &times]).await?;
        rows.iter()
            .map(|row| {
                let verdict = if get(row, "lost")? {
                    SeenEventCheck::Lost(Seq(get::<i64>(row, "next_seq")? - 1))
                } else {
                    SeenEventCheck::Written(get(row, "at")?)
                };
                Ok((session_key(row)?, Seq(get(row, "seq")?), verdict))
            })
            .collect()
    }
}
