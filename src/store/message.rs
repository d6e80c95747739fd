//! Messages with their parts: read back as they were written.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::{
    Error, Store,
    listed::Listed,
    pipeline::Param,
    row::{category, count, get, role},
    rows::Key,
};
use crate::{
    codec,
    model::{
        CompactionId, Counted, Message, MessageId, Part, Seq, SessionKey, TurnId,
        message::{Pruned, StoredPart},
    },
};

/// The seq that stands for now: no mark is later.
const NOW: Seq = Seq(i64::MAX);

/// The columns of messages and their parts, with the marks as of a seq.
macro_rules! columns {
    ($at:literal) => {
        concat!(
            "select m.place, m.seq, m.message_id, m.turn_id, m.step, m.role, m.pinned, m.is_summary, m.tokens as overhead, m.created_at,
                    m.info, case when m.voided_at_seq <= ", $at, " then m.voided_at_seq end as voided_at_seq,
                    p.idx, p.kind, p.call_id, p.tool_name, p.outcome, p.body, p.rest, p.category, p.estimator,
                    coalesce(p.original_tokens, p.tokens) as original_tokens,
                    case when p.pruned_at_seq <= ", $at, " then p.tokens else coalesce(h.tokens, p.original_tokens, p.tokens) end as tokens,
                    case when p.pruned_at_seq <= ", $at, " then p.pruned_at_seq else h.pruned_at_seq end as pruned_at_seq,
                    case when p.pruned_at_seq <= ", $at, " or h.pruned_at_seq is not null then
                      (select e.at from events e
                        where e.tenant_id = $1 and e.session_id = $2
                          and e.seq = case when p.pruned_at_seq <= ", $at, " then p.pruned_at_seq else h.pruned_at_seq end) end as pruned_at, "
        )
    };
}

/// The parts of the messages m, one row per part. Each message's parts are looked up by its id:
/// left to itself the planner takes every session for a short one, and reads all of a long one's
/// parts for each of its messages. `$past` has the marks that were taken back since the seq.
macro_rules! parts {
    ($past:literal, $order:literal) => {
        concat!(
            " left join lateral (
                 select * from parts p
                  where p.tenant_id = $1 and p.session_id = $2 and p.message_id = m.message_id offset 0) p on true
              left join ",
            $past,
            " h on h.message_id = p.message_id and h.idx = p.idx
              order by ",
            $order
        )
    };
}

/// A page of what the model sees. With the version of the context, which only the same snapshot can
/// tell.
macro_rules! live {
    ($name:literal, from $messages:literal, $order:literal) => {
        concat!(
            $name,
            include_str!("sql/live.sql"),
            columns!("$3"),
            "null::text as compacted_by,
             (select r.context_version from session_run r where r.tenant_id = $1 and r.session_id = $2) as context_version from ",
            $messages,
            parts!("past", $order)
        )
    };
}

/// A page of everything.
macro_rules! all {
    ($name:literal, from $messages:literal, $order:literal) => {
        concat!(
            $name,
            include_str!("sql/live.sql"),
            columns!("$3"),
            include_str!("sql/compacted_by.sql"),
            " as compacted_by from ",
            $messages,
            parts!("past", $order)
        )
    };
}

/// Which messages are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum View {
    /// Everything ever committed, with its marks.
    All,
    /// What the model sees: a summary in place of what it stands for, pruned results as their
    /// placeholder, nothing that is void.
    Live,
}

/// Which way a page of messages goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// After this place, oldest first.
    After(Seq),
    /// Before this place, newest first.
    Before(Seq),
}

/// A message with its place in a list: its seq, but of a summary the seq of the first message that
/// it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Where it stands.
    pub place: Seq,
    /// The message.
    pub message: Message,
}

/// What the model sees, at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// The messages in order.
    pub messages: Vec<Message>,
    /// The version of the context; none when there is no message. At 0 nothing was ever hidden
    /// from the model.
    pub context_version: Option<i64>,
}
pub(super) const LIVE_AFTER: &str = live!(
    "-- store::message::messages (what the model sees, oldest first)\n",
    from "((select s.* from spoken s where s.seq > $4 order by s.seq limit $5)
           union all (select s.* from summary s where s.place > $4) order by place limit $5) m",
    "m.place, m.seq, p.idx"
);
pub(super) const LIVE_BEFORE: &str = live!(
    "-- store::message::messages (what the model sees, newest first)\n",
    from "((select s.* from spoken s where s.seq < $4 order by s.seq desc limit $5)
           union all (select s.* from summary s where s.place < $4) order by place desc limit $5) m",
    "m.place desc, m.seq, p.idx"
);
pub(super) const ALL_AFTER: &str = all!(
    "-- store::message::messages (all, oldest first)\n",
    from "(select n.*, n.seq as place from messages n
            where n.tenant_id = $1 and n.session_id = $2 and n.seq <= $3 and n.seq > $4 order by n.seq limit $5) m",
    "m.place, p.idx"
);
pub(super) const ALL_BEFORE: &str = all!(
    "-- store::message::messages (all, newest first)\n",
    from "(select n.*, n.seq as place from messages n
            where n.tenant_id = $1 and n.session_id = $2 and n.seq <= $3 and n.seq < $4 order by n.seq desc limit $5) m",
    "m.place desc, p.idx"
);
pub(super) const BY_ID: &str = concat!(
    "-- store::message::messages_by_id\n",
    columns!("9223372036854775807"),
    "null::text as compacted_by
       from unnest($3::text[]) as u(id)
       join lateral (select n.*, n.seq as place from messages n
                      where n.tenant_id = $1 and n.session_id = $2 and n.message_id = u.id offset 0) m on true",
    parts!(
        "(select null::text as message_id, null::int as idx, null::bigint as pruned_at_seq, null::int as tokens where false)",
        "m.seq, p.idx"
    )
);

/// Parts on which the size of a prompt depends beside the counters: media, which a model may not
/// read, and reasoning, which may not be sent. Media without the words beside them; of reasoning no
/// content at all, only whether something is attached to it.
macro_rules! variable_parts {
    (from $parts:literal, if $with_reasoning:literal) => {
        concat!(
            "select x.message_id, x.idx, x.kind, x.call_id, x.tool_name, x.outcome, x.rest, x.category, x.estimator, x.original_tokens,
                    x.tokens, x.pruned_at_seq, case when x.kind = 'tool_result' then '' else x.body end as body, false as attached
               from ",
            $parts,
            " and (x.kind in ('media', 'media_url') or (x.kind = 'tool_result' and x.rest is not null))
             union all
             select x.message_id, x.idx, x.kind, null, null, null, null, x.category, x.estimator, x.original_tokens,
                    x.tokens, x.pruned_at_seq, '', coalesce(octet_length(x.rest) > $4, false)
               from ",
            $parts,
            " and x.kind = 'reasoning' and ",
            $with_reasoning
        )
    };
}

/// The variable parts of the live transcript, with the messages that say where a tool loop begins:
/// what the user said last, before each of some seqs, and the summary; if there is neither, the
/// first message.
pub(super) const VARIABLE: &str = concat!(
    "-- store::message::variable: $4 bytes that reasoning takes up with nothing attached $5 whether reasoning is wanted $6 seqs\n",
    include_str!("sql/live.sql"),
    ", speaks as (
        select s.message_id
          from unnest($6::bigint[]) as b(seq)
         cross join lateral (select n.message_id from spoken n where n.role = 2 and n.seq < b.seq order by n.seq desc limit 1) s
        union
        select s.message_id from summary s),
      marks as (
        select k.message_id from speaks k
        union all
        (select s.message_id from spoken s where not exists (select from speaks) order by s.seq limit 1)) ",
    columns!("$3"),
    "null::text as compacted_by, p.attached
       from (",
    variable_parts!(from "parts x where x.tenant_id = $1 and x.session_id = $2", if "$5"),
    " union all
             select k.message_id, null, null, null, null, null, null, null, null, null, null, null, null, null from marks k) p
       join lateral (select s.* from spoken s where s.message_id = p.message_id
                     union all
                     select s.* from summary s where s.message_id = p.message_id offset 0) m on true
       left join past h on h.message_id = p.message_id and h.idx = p.idx
      order by m.place, m.seq, p.idx"
);

/// The newest messages of the live transcript, each with its variable parts; what the others take
/// up is in its overhead.
pub(super) const NEWEST: &str = concat!(
    "-- store::message::newest: $4 bytes that reasoning takes up with nothing attached $5 before this place $6 how many\n",
    include_str!("sql/live.sql"),
    "select m.place, m.seq, m.message_id, m.turn_id, m.step, m.role, m.pinned, m.is_summary, m.created_at, m.voided_at_seq,
            m.tokens + coalesce((select sum(x.tokens) from parts x
                                  where x.tenant_id = $1 and x.session_id = $2 and x.message_id = m.message_id
                                    and not (x.kind in ('media', 'media_url', 'reasoning') or (x.kind = 'tool_result' and x.rest is not null))),
                                0)::int as overhead,
            case when m.role = 3 then m.info else '' end as info, null::text as compacted_by,
            p.idx, p.kind, p.call_id, p.tool_name, p.outcome, p.body, p.rest, p.category, p.estimator, p.attached, p.tokens, p.pruned_at_seq,
            coalesce(p.original_tokens, p.tokens) as original_tokens, null::timestamptz as pruned_at
       from ((select s.* from spoken s where s.seq < $5 order by s.seq desc limit $6)
             union all (select s.* from summary s where s.place < $5) order by place desc limit $6) m
       left join lateral (",
    variable_parts!(from "parts x where x.tenant_id = $1 and x.session_id = $2 and x.message_id = m.message_id", if "true"),
    ") p on true
      order by m.place desc, m.seq, p.idx"
);

/// The results of a batch of calls of which others are still open, without their words. They are
/// counted, and no message has them yet.
pub(super) const OPEN_RESULTS: &str = "-- store::message::open_results
    select p.kind, p.call_id, p.tool_name, p.outcome, '' as body, p.rest, p.category, p.estimator, p.tokens
      from parts p
     where p.tenant_id = $1 and p.session_id = $2 and p.rest is not null
       and p.message_id = (select c.result_message_id
                             from session_run r
                             join tool_calls c on c.tenant_id = $1 and c.session_id = $2 and c.turn_id = r.turn_id and c.status < 3
                            where r.tenant_id = $1 and r.session_id = $2 and r.open_calls > 0 limit 1)
     order by p.idx";

/// How large the next messages of a page are, as they are stored.
macro_rules! sizes {
    ($name:literal, from $messages:literal, $order:literal) => {
        concat!(
            $name,
            include_str!("sql/live.sql"),
            "select octet_length(m.info)
                    + coalesce((select sum(octet_length(p.body) + coalesce(octet_length(p.rest), 0)) from parts p
                                 where p.tenant_id = $1 and p.session_id = $2 and p.message_id = m.message_id), 0) as bytes from ",
            $messages,
            " order by ",
            $order
        )
    };
}

const LIVE_SIZES_AFTER: &str = sizes!(
    "-- store::message::sizes (what the model sees, oldest first)\n",
    from "((select s.* from spoken s where s.seq > $4 order by s.seq limit $5)
           union all (select s.* from summary s where s.place > $4) order by place limit $5) m",
    "m.place, m.seq"
);
const LIVE_SIZES_BEFORE: &str = sizes!(
    "-- store::message::sizes (what the model sees, newest first)\n",
    from "((select s.* from spoken s where s.seq < $4 order by s.seq desc limit $5)
           union all (select s.* from summary s where s.place < $4) order by place desc limit $5) m",
    "m.place desc, m.seq"
);
const ALL_SIZES_AFTER: &str = sizes!(
    "-- store::message::sizes (all, oldest first)\n",
    from "(select n.*, n.seq as place from messages n
            where n.tenant_id = $1 and n.session_id = $2 and n.seq <= $3 and n.seq > $4 order by n.seq limit $5) m",
    "m.place"
);
const ALL_SIZES_BEFORE: &str = sizes!(
    "-- store::message::sizes (all, newest first)\n",
    from "(select n.*, n.seq as place from messages n
            where n.tenant_id = $1 and n.session_id = $2 and n.seq <= $3 and n.seq < $4 order by n.seq desc limit $5) m",
    "m.place desc"
);

impl Store {
    /// The transcript as the model sees it now: the same statement as a list of it.
    pub async fn transcript(&self, key: &SessionKey) -> Result<Seen, Error> {
        let key = Key::from(key);
        let params: [Param<'_>; 5] = [&key.tenant, &key.session, &NOW.0, &0_i64, &None::<i64>];
        let rows = self.database.read(LIVE_AFTER, &params).await?;
        let context_version = rows
            .first()
            .map(|row| get(row, "context_version"))
            .transpose()?;
        let messages = messages(&rows)?
            .into_iter()
            .map(|placed| placed.message.seen())
            .collect();
        Ok(Seen {
            messages,
            context_version,
        })
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
        let (key, ids): (Key, Vec<&str>) =
            (Key::from(key), ids.iter().map(MessageId::as_str).collect());
        let found = messages(
            &self
                .database
                .read(BY_ID, &[&key.tenant, &key.session, &ids])
                .await?,
        )?;
        Ok(found
            .into_iter()
            .map(|placed| (placed.message.id.clone(), placed.message))
            .collect())
    }

    /// The messages that the model sees and that hold media or, if wanted, reasoning, with these
    /// parts only: results without their words, reasoning without its text. With them the
    /// messages, without parts, that say where a tool loop begins: what the user said last
    /// before each of these seqs. Reads as many rows as there are such parts, by their indexes.
    pub async fn variable(
        &self,
        key: &SessionKey,
        with_reasoning: bool,
        before: &[Seq],
    ) -> Result<Vec<Message>, Error> {
        let (key, before): (Key, Vec<i64>) =
            (Key::from(key), before.iter().map(|seq| seq.0).collect());
        let params: [Param<'_>; 6] = [
            &key.tenant,
            &key.session,
            &NOW.0,
            &codec::part::BARE_REASONING,
            &with_reasoning,
            &before,
        ];
        let rows = self.database.read(VARIABLE, &params).await?;
        Ok(variable(&rows)?
            .into_iter()
            .map(|placed| placed.message)
            .collect())
    }

    /// The newest messages that the model sees before a place, newest first: sizes, calls of
    /// models, and of the parts media and reasoning as [`Store::variable`] reads them. The size
    /// of all other parts is in the message's overhead.
    pub async fn newest(
        &self,
        key: &SessionKey,
        before: Seq,
        limit: u32,
    ) -> Result<Vec<Placed>, Error> {
        let key = Key::from(key);
        let params: [Param<'_>; 6] = [
            &key.tenant,
            &key.session,
            &NOW.0,
            &codec::part::BARE_REASONING,
            &before.0,
            &i64::from(limit),
        ];
        variable(&self.database.read(NEWEST, &params).await?)
    }

    /// The results of the live turn's batch of calls, as long as others of it are open: those that
    /// may hold media, without their words.
    pub async fn open_results(&self, key: &SessionKey) -> Result<Vec<Part>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read(OPEN_RESULTS, &[&key.tenant, &key.session])
            .await?;
        rows.iter().map(|row| Ok(part(row)?.part)).collect()
    }

    /// A page of messages as [`Store::messages`] reads it: at most `limit`, and as many as take up
    /// at most `bytes` as they are stored, but at least one.
    pub async fn messages_within(
        &self,
        key: &SessionKey,
        view: View,
        at: Option<Seq>,
        page: Page,
        (limit, bytes): (u32, i64),
    ) -> Result<Listed<Placed>, Error> {
        let (sql, place) = match (view, page) {
            (View::All, Page::After(place)) => (ALL_SIZES_AFTER, place),
            (View::All, Page::Before(place)) => (ALL_SIZES_BEFORE, place),
            (View::Live, Page::After(place)) => (LIVE_SIZES_AFTER, place),
            (View::Live, Page::Before(place)) => (LIVE_SIZES_BEFORE, place),
        };
        let columns = Key::from(key);
        let seq = at.unwrap_or(NOW);
        let params: [Param<'_>; 5] = [
            &columns.tenant,
            &columns.session,
            &seq.0,
            &place.0,
            &i64::from(limit),
        ];
        let mut room = bytes;
        let mut fits = 0;
        let rows = self.database.read(sql, &params).await?;
        for row in &rows {
            room -= get::<i64>(row, "bytes")?;
            if room < 0 && fits > 0 {
                break;
            }
            fits += 1;
        }
        let items = if fits == 0 {
            Vec::new()
        } else {
            self.messages(key, view, at, page, fits).await?
        };
        Ok(Listed {
            items,
            more: rows.len() == limit as usize || (fits as usize) < rows.len(),
        })
    }

    /// A page of messages as they were at a seq. `None` means as they are now.
    pub async fn messages(
        &self,
        key: &SessionKey,
        view: View,
        at: Option<Seq>,
        page: Page,
        limit: u32,
    ) -> Result<Vec<Placed>, Error> {
        let (sql, place) = match (view, page) {
            (View::All, Page::After(place)) => (ALL_AFTER, place),
            (View::All, Page::Before(place)) => (ALL_BEFORE, place),
            (View::Live, Page::After(place)) => (LIVE_AFTER, place),
            (View::Live, Page::Before(place)) => (LIVE_BEFORE, place),
        };
        let key = Key::from(key);
        let at = at.unwrap_or(NOW);
        let params: [Param<'_>; 5] = [
            &key.tenant,
            &key.session,
            &at.0,
            &place.0,
            &Some(i64::from(limit)),
        ];
        let found = messages(&self.database.read(sql, &params).await?)?;
        Ok(match view {
            View::All => found,
            View::Live => found
                .into_iter()
                .map(|Placed { place, message }| Placed {
                    place,
                    message: message.seen(),
                })
                .collect(),
        })
    }
}

/// Messages with their variable parts, as the model sees them. What is attached to reasoning is not
/// read: empty stands for it.
fn variable(rows: &[Row]) -> Result<Vec<Placed>, Error> {
    let attached = |row: &Row, part: StoredPart| {
        let metadata = get::<Option<bool>>(row, "attached")?
            .filter(|attached| *attached)
            .map(|_| String::new());
        let part = StoredPart {
            part: Part {
                provider_metadata: metadata,
                ..part.part
            },
            ..part
        };
        Ok(part.seen())
    };
    folded(rows, attached)
}

/// Folds rows, one per part, into messages; rows of a message stand together.
fn messages(rows: &[Row]) -> Result<Vec<Placed>, Error> {
    folded(rows, |_, part| Ok(part))
}

/// The same, with each part as something made of it and its row.
fn folded(
    rows: &[Row],
    made: impl Fn(&Row, StoredPart) -> Result<StoredPart, Error>,
) -> Result<Vec<Placed>, Error> {
    let mut messages: Vec<Placed> = Vec::new();
    for row in rows {
        let seq = Seq(get(row, "seq")?);
        if messages.last().is_none_or(|last| last.message.seq != seq) {
            messages.push(Placed {
                place: Seq(get(row, "place")?),
                message: message(row, seq)?,
            });
        }
        if let (Some(last), Some(_)) = (messages.last_mut(), get::<Option<i32>>(row, "idx")?) {
            last.message.parts.push(made(
                row,
                StoredPart {
                    pruned: pruned(row)?,
                    ..part(row)?
                },
            )?);
        }
    }
    Ok(messages)
}

fn message(row: &Row, seq: Seq) -> Result<Message, Error> {
    let codec::message::MessageInfo {
        response,
        metadata,
        queued,
    } = codec::message::decode_info(get(row, "info")?)?;
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
        queued,
        is_summary: get(row, "is_summary")?,
        compacted_by: get::<Option<String>>(row, "compacted_by")?.map(CompactionId::new),
        voided_at: get::<Option<i64>>(row, "voided_at_seq")?.map(Seq),
    })
}

/// The part in a row that has the columns of `parts`, without its mark.
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
        size: Counted {
            tokens: count(row, "tokens")?,
            category: category(get(row, "category")?)?,
        },
        estimator: get(row, "estimator")?,
        pruned: None,
    })
}

/// The mark of a result that was pruned.
fn pruned(row: &Row) -> Result<Option<Pruned>, Error> {
    let Some(at) = get::<Option<i64>>(row, "pruned_at_seq")? else {
        return Ok(None);
    };
    Ok(Some(Pruned {
        at: Seq(at),
        time: get(row, "pruned_at")?,
        original_tokens: count(row, "original_tokens")?,
    }))
}
