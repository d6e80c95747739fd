//! What readers have seen, compared with what the database has: a failover to a standby that had
//! not received everything loses commits, and their seqs are given out again.

use jiff::Timestamp;

use super::{Error, Store, row::get, row::session_key};
use crate::model::{Seq, SessionKey};

/// An event that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its seq.
    pub seq: Seq,
    /// When the database wrote it, in microseconds: another event with this seq has another time.
    /// `None` if only the seq is known.
    pub at: Option<Timestamp>,
}

/// What the database says about a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The event is another one, or there is none: it was lost. The newest seq of the session.
    Lost(Seq),
    /// When the event was written, which the mark did not say.
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
    /// Which of these events the database no longer has, and when those were written of which that
    /// is not known. What is as it was seen is left out.
    pub async fn check_marks(
        &self,
        marks: &[(SessionKey, Mark)],
    ) -> Result<Vec<(SessionKey, Seq, Verdict)>, Error> {
        let tenants: Vec<&str> = marks.iter().map(|(key, _)| key.tenant.as_str()).collect();
        let sessions: Vec<&str> = marks.iter().map(|(key, _)| key.session.as_str()).collect();
        let seqs: Vec<i64> = marks.iter().map(|(_, mark)| mark.seq.0).collect();
        let times: Vec<Option<Timestamp>> = marks.iter().map(|(_, mark)| mark.at).collect();
        let rows = self
            .aside()
            .read(MARKS, &[&tenants, &sessions, &seqs, &times])
            .await?;
        rows.iter()
            .map(|row| {
                let verdict = if get(row, "lost")? {
                    Verdict::Lost(Seq(get::<i64>(row, "next_seq")? - 1))
                } else {
                    Verdict::Written(get(row, "at")?)
                };
                Ok((session_key(row)?, Seq(get(row, "seq")?), verdict))
            })
            .collect()
    }
}
