//! Messages with their parts: read back as they were written.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::{
    Error, Store,
    row::{category, count, get, role},
    rows::Key,
};
use crate::{
    codec,
    model::{Counted, Message, MessageId, Seq, SessionKey, TurnId, message::StoredPart},
};

/// Messages joined with their parts, one row per part. Each message's parts are looked up by its id: left to itself the planner
/// takes every session for a short one, and reads all of a long one's parts for each of its messages.
macro_rules! select {
    ($messages:literal, $order:literal) => {
        concat!(
            "select m.seq, m.message_id, m.turn_id, m.step, m.role, m.pinned, m.tokens as overhead, m.created_at, m.info, m.voided_at_seq,
                    p.idx, p.kind, p.call_id, p.tool_name, p.outcome, p.body, p.rest, p.tokens, p.category, p.estimator
               from ",
            $messages,
            " left join lateral (
                 select * from parts p
                  where p.tenant_id = $1 and p.session_id = $2 and p.message_id = m.message_id offset 0) p on true
              order by ",
            $order
        )
    };
}

/// Which way a page of messages goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// Behind this seq, oldest first.
    After(Seq),
    /// Before this seq, newest first.
    Before(Seq),
}

pub(super) const TRANSCRIPT: &str = concat!(
    "-- store::message::transcript\n",
    select!(
        "(select * from messages n where n.tenant_id = $1 and n.session_id = $2 and n.voided_at_seq is null offset 0) m",
        "m.seq, p.idx"
    )
);
pub(super) const BY_ID: &str = concat!(
    "-- store::message::messages_by_id\n",
    select!(
        "unnest($3::text[]) as u(id)
           join lateral (select * from messages n
                          where n.tenant_id = $1 and n.session_id = $2 and n.message_id = u.id offset 0) m on true",
        "m.seq, p.idx"
    )
);
pub(super) const AFTER: &str = concat!(
    "-- store::message::messages (oldest first)\n",
    select!(
        "(select * from messages n where n.tenant_id = $1 and n.session_id = $2 and n.seq > $3
             and (not $4 or n.voided_at_seq is null) order by n.seq limit $5) m",
        "m.seq, p.idx"
    )
);
pub(super) const BEFORE: &str = concat!(
    "-- store::message::messages (newest first)\n",
    select!(
        "(select * from messages n where n.tenant_id = $1 and n.session_id = $2 and n.seq < $3
             and (not $4 or n.voided_at_seq is null) order by n.seq desc limit $5) m",
        "m.seq desc, p.idx"
    )
);

impl Store {
    /// The transcript: every message that is not voided, in order.
    pub async fn transcript(&self, key: &SessionKey) -> Result<Vec<Message>, Error> {
        let key = Key::from(key);
        messages(&self.database.read(TRANSCRIPT, &[&key.tenant, &key.session]).await?)
    }

    /// The messages with these ids.
    pub async fn messages_by_id(
        &self,
        key: &SessionKey,
        ids: &[MessageId],
    ) -> Result<BTreeMap<MessageId, Message>, Error> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (key, ids): (Key, Vec<&str>) = (Key::from(key), ids.iter().map(MessageId::as_str).collect());
        let found = messages(&self.database.read(BY_ID, &[&key.tenant, &key.session, &ids]).await?)?;
        Ok(found.into_iter().map(|message| (message.id.clone(), message)).collect())
    }

    /// A page of messages; `live` leaves the voided ones out.
    pub async fn messages(&self, key: &SessionKey, page: Page, live: bool, limit: u32) -> Result<Vec<Message>, Error> {
        let (sql, seq) = match page {
            Page::After(seq) => (AFTER, seq),
            Page::Before(seq) => (BEFORE, seq),
        };
        let key = Key::from(key);
        messages(&self.database.read(sql, &[&key.tenant, &key.session, &seq.0, &live, &i64::from(limit)]).await?)
    }
}

/// Folds rows, one per part, into messages; rows of a message stand together.
fn messages(rows: &[Row]) -> Result<Vec<Message>, Error> {
    let mut messages: Vec<Message> = Vec::new();
    for row in rows {
        let seq = Seq(get(row, "seq")?);
        if messages.last().is_none_or(|last| last.seq != seq) {
            messages.push(message(row, seq)?);
        }
        if let (Some(last), Some(_)) = (messages.last_mut(), get::<Option<i32>>(row, "idx")?) {
            last.parts.push(part(row)?);
        }
    }
    Ok(messages)
}

fn message(row: &Row, seq: Seq) -> Result<Message, Error> {
    let codec::message::MessageInfo { response, metadata } = codec::message::decode_info(get(row, "info")?)?;
    Ok(Message {
        id: MessageId::new(get::<String>(row, "message_id")?),
        turn: get::<Option<String>>(row, "turn_id")?.map(TurnId::new),
        step: count(row, "step")?,
        seq,
        role: role(get(row, "role")?)?,
        parts: Vec::new(),
        overhead: count(row, "overhead")?,
        created_at: get(row, "created_at")?,
        response,
        pinned: get(row, "pinned")?,
        metadata,
        voided_at: get::<Option<i64>>(row, "voided_at_seq")?.map(Seq),
    })
}

/// The part in a row that has the columns of `parts`.
pub(super) fn part(row: &Row) -> Result<StoredPart, Error> {
    let stored = codec::part::PartRow {
        kind: get(row, "kind")?,
        call: get(row, "call_id")?,
        name: get(row, "tool_name")?,
        outcome: get(row, "outcome")?,
        body: get(row, "body")?,
        rest: get(row, "rest")?,
    };
    Ok(StoredPart {
        part: codec::part::from_row(stored)?,
        size: Counted { tokens: count(row, "tokens")?, category: category(get(row, "category")?)? },
        estimator: get(row, "estimator")?,
    })
}
