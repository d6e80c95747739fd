//! Chunks: the text of messages that are being written, for readers on other replicas. The owner inserts them, all
//! chunks of a replica in one statement; the commit of the message removes them.
//!
//! Inserts take no lock. A chunk is written only while its writer owns the turn under its epoch, and a reader checks in
//! the same snapshot what the session row says is being written. A chunk that arrives after the commit of its message
//! is therefore not read, and is swept later. The epoch alone is not sufficient: after a failover that lost commits,
//! another turn or owner may have the same epoch.

use std::sync::LazyLock;

use super::{
    Error, Store,
    key::key_columns,
    named_parameters::Named,
    number::enum_value,
    pipeline::{Param, Query},
    row::{count, get, last_seq, session_key},
};
use crate::{
    codec,
    model::{MessageId, Seq, SessionKey, TurnId, delta::DeltaBatch, event::StepPosition},
    session::SessionState,
};

/// Number of chunks that are swept at once.
const SWEEP: i64 = 1000;

/// A chunk to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChunk {
    pub key: SessionKey,
    /// The turn that writes the message.
    pub turn: TurnId,
    /// The epoch of the owner that writes the message.
    pub epoch: i64,
    pub message: MessageId,
    /// Position among the message's chunks, from 1.
    pub n: i32,
    pub body: Vec<u8>,
}

/// A session whose turn may run on another replica, and what is known of its open message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkCursor {
    pub key: SessionKey,
    /// The message whose chunks are known, or `None`.
    pub message: Option<MessageId>,
    /// Number of the last known chunk.
    pub n: i32,
}

/// The state of a session in one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSession {
    pub key: SessionKey,
    pub last_seq: Seq,
    pub state: SessionState,
    /// Position of its turn. Anything that belongs to another position is void or committed.
    pub at: StepPosition,
    /// Whether the requested message is committed.
    pub committed: bool,
    /// Chunks after the last known one, in order.
    pub chunks: Vec<Chunk>,
}

/// A decoded chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Position among the message's chunks, from 1.
    pub n: i32,
    pub stretch: DeltaBatch,
}

pub(super) static SAVE: LazyLock<Named> = named_alone!("sql/chunks/save.sql");

/// States of sessions and the new chunks of their open messages, in one snapshot: a commit between two reads would show
/// a message twice or not at all.
pub(super) static ELSEWHERE: LazyLock<Named> = named_alone!("sql/chunks/elsewhere.sql");

impl Store {
    /// Writes chunks of turns that this replica owns. Chunks that exist are skipped, and so are chunks of a turn that
    /// has another owner or is no longer the current one.
    pub async fn save_chunks(&self, chunks: &[NewChunk]) -> Result<(), Error> {
        let (tenants, sessions) = key_columns(chunks.iter().map(|chunk| &chunk.key));
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
        // A concurrent commit may have removed the chunks before this write, so the session is marked again.
        note();
        saved.map(drop)
    }

    /// Reads the state of these sessions and the new chunks of their open messages. Deleted sessions are missing from
    /// the result.
    pub async fn remote_sessions(&self, asked: &[ChunkCursor]) -> Result<Vec<RemoteSession>, Error> {
        let (tenants, sessions) = key_columns(asked.iter().map(|asked| &asked.key));
        let known = |asked: &'_ ChunkCursor| asked.message.as_ref().map_or_else(String::new, ToString::to_string);
        let messages: Vec<String> = asked.iter().map(known).collect();
        let numbers: Vec<i32> = asked.iter().map(|asked| asked.n).collect();
        let values: [(&str, Param<'_>); 4] =
            [("tenants", &tenants), ("sessions", &sessions), ("messages", &messages), ("numbers", &numbers)];
        let rows = self.database.read_named(&ELSEWHERE, &values).await?;
        let mut found: Vec<RemoteSession> = Vec::new();
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

    /// Removes chunks that are no longer read because their turn has another owner or does not run. Returns the number
    /// of removed chunks.
    pub async fn sweep_chunks(&self) -> Result<u64, Error> {
        const SQL: &str = "-- store::chunk::sweep
            with old as (
              select p.ctid from partial_chunks p
                left join session_run r on r.tenant_id = p.tenant_id and r.session_id = p.session_id
               where r.epoch is distinct from p.epoch or r.state <> 1 limit $1)
            delete from partial_chunks p using old where p.ctid = old.ctid returning 1";
        let rows = self.database.write(&Query::new(SQL, vec![&SWEEP as Param<'_>])).await?;
        Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
    }
}

fn session(row: &tokio_postgres::Row) -> Result<RemoteSession, Error> {
    Ok(RemoteSession {
        key: session_key(row)?,
        last_seq: last_seq(row)?,
        state: enum_value(row, "state")?,
        at: StepPosition { step: count(row, "step")?, attempt: count(row, "attempt")? },
        committed: get(row, "committed")?,
        chunks: Vec::new(),
    })
}
