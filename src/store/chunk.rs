//! The text of messages that are being written, for readers on other replicas: chunks that the
//! owner inserts, all of a replica in one statement, and that are gone with the commit.
//!
//! Inserting needs no lock: a chunk is written only while its writer owns the turn under its epoch,
//! and whoever reads asks in the same snapshot for what the hot row says is being written. One that
//! comes late, after the commit of its message, is not read and swept. The epoch alone would not do:
//! after a failover that lost commits, another turn or owner may have the same one.

use std::sync::LazyLock;

use super::{
    Error, Store,
    named_parameters::Named,
    pipeline::{Param, Query},
    row::{count, get, session_key, session_state},
};
use crate::{
    codec,
    model::{MessageId, Seq, SessionKey, TurnId, delta::Stretch, event::StepPosition},
    session::SessionState,
};

/// Chunks that are swept at once.
const SWEEP: i64 = 1000;

/// A chunk to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChunk {
    /// The session.
    pub key: SessionKey,
    /// The turn that writes the message.
    pub turn: TurnId,
    /// The epoch of the owner that writes the message.
    pub epoch: i64,
    /// The message.
    pub message: MessageId,
    /// Its place among the message's chunks, from 1.
    pub n: i32,
    /// The encoded stretch.
    pub body: Vec<u8>,
}

/// A session that may be written elsewhere, and what is known of its open message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Which.
    pub key: SessionKey,
    /// The message whose chunks are known. `None` means no message.
    pub message: Option<MessageId>,
    /// Up to which.
    pub n: i32,
}

/// What one snapshot shows of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// Which.
    pub key: SessionKey,
    /// The newest seq.
    pub last_seq: Seq,
    /// Where it stands.
    pub state: SessionState,
    /// Where its turn is; whatever belongs to another place is void or committed.
    pub at: StepPosition,
    /// The message that was asked about is committed.
    pub committed: bool,
    /// Chunks that were not known, in order.
    pub chunks: Vec<Chunk>,
}

/// A chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its place among the message's chunks, from 1.
    pub n: i32,
    /// What it adds.
    pub stretch: Stretch,
}

pub(super) static SAVE: LazyLock<Named> = named_alone!("sql/chunks/save.sql");

/// Where sessions stand and what is new of the messages that are being written in them, in one
/// snapshot: a commit between the two would show a message twice or not at all.
pub(super) static ELSEWHERE: LazyLock<Named> = named_alone!("sql/chunks/elsewhere.sql");

impl Store {
    /// Writes chunks of turns that this replica owns. Those of a turn that has another owner
    /// meanwhile or is another one, and those that are there, are left out.
    pub async fn save_chunks(&self, chunks: &[NewChunk]) -> Result<(), Error> {
        let tenants: Vec<&str> = chunks
            .iter()
            .map(|chunk| chunk.key.tenant.as_str())
            .collect();
        let sessions: Vec<&str> = chunks
            .iter()
            .map(|chunk| chunk.key.session.as_str())
            .collect();
        let turns: Vec<&str> = chunks.iter().map(|chunk| chunk.turn.as_str()).collect();
        let epochs: Vec<i64> = chunks.iter().map(|chunk| chunk.epoch).collect();
        let messages: Vec<&str> = chunks.iter().map(|chunk| chunk.message.as_str()).collect();
        let numbers: Vec<i32> = chunks.iter().map(|chunk| chunk.n).collect();
        let bodies: Vec<&[u8]> = chunks.iter().map(|chunk| chunk.body.as_slice()).collect();
        let save = SAVE.query(&[
            ("tenants", &tenants as Param<'_>),
            ("sessions", &sessions),
            ("turns", &turns),
            ("replica", &self.replica),
            ("epochs", &epochs),
            ("messages", &messages),
            ("numbers", &numbers),
            ("bodies", &bodies),
        ])?;
        let note = || chunks.iter().for_each(|chunk| self.chunks.add(&chunk.key));
        note();
        let saved = self.database.write(&save).await;
        // A commit may have removed what was there before this was written.
        note();
        saved.map(drop)
    }

    /// Where these sessions stand, and what is new of their open messages. One that does not come
    /// back is gone.
    pub async fn elsewhere(&self, asked: &[Asked]) -> Result<Vec<Elsewhere>, Error> {
        let tenants: Vec<&str> = asked
            .iter()
            .map(|asked| asked.key.tenant.as_str())
            .collect();
        let sessions: Vec<&str> = asked
            .iter()
            .map(|asked| asked.key.session.as_str())
            .collect();
        let known = |asked: &'_ Asked| {
            asked
                .message
                .as_ref()
                .map_or_else(String::new, ToString::to_string)
        };
        let messages: Vec<String> = asked.iter().map(known).collect();
        let numbers: Vec<i32> = asked.iter().map(|asked| asked.n).collect();
        let rows = self
            .database
            .read_named(
                &ELSEWHERE,
                &[
                    ("tenants", &tenants as Param<'_>),
                    ("sessions", &sessions),
                    ("messages", &messages),
                    ("numbers", &numbers),
                ],
            )
            .await?;
        let mut found: Vec<Elsewhere> = Vec::new();
        let mut last = 0;
        for row in &rows {
            let ord: i64 = get(row, "ord")?;
            if ord != last {
                last = ord;
                found.push(session(row)?);
            }
            if let (Some(n), Some(session)) = (get::<Option<i32>>(row, "n")?, found.last_mut()) {
                let stretch = codec::delta::decode_stretch(get(row, "body")?)?;
                session.chunks.push(Chunk { n, stretch });
            }
        }
        Ok(found)
    }

    /// Removes chunks that are not read any more: their turn has another owner, or none. Returns
    /// how many.
    pub async fn sweep_chunks(&self) -> Result<u64, Error> {
        const SQL: &str = "-- store::chunk::sweep
            with old as (
              select p.ctid from partial_chunks p
                left join session_run r on r.tenant_id = p.tenant_id and r.session_id = p.session_id
               where r.epoch is distinct from p.epoch or r.state <> 1 limit $1)
            delete from partial_chunks p using old where p.ctid = old.ctid returning 1";
        let rows = self
            .database
            .write(&Query::new(SQL, vec![&SWEEP as Param<'_>]))
            .await?;
        Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
    }
}

fn session(row: &tokio_postgres::Row) -> Result<Elsewhere, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    Ok(Elsewhere {
        key: session_key(row)?,
        last_seq: Seq(next_seq - 1),
        state: session_state(get(row, "state")?)?,
        at: StepPosition {
            step: count(row, "step")?,
            attempt: count(row, "attempt")?,
        },
        committed: get(row, "committed")?,
        chunks: Vec::new(),
    })
}
