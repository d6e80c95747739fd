//! Messages with their parts, as they are read back.

use std::{collections::BTreeMap, sync::LazyLock};

use tokio_postgres::Row;

use super::{
    Error, Store,
    bounded_page::BoundedPage,
    named_parameters::Named,
    owned::VisibleTranscript,
    pipeline::Param,
    row::{category, count, get, role},
    rows::Key,
};
use crate::{
    codec,
    model::{
        CompactionId, Message, MessageId, Part, PartSize, Seq, SessionKey, TurnId,
        message::{Pruned, StoredPart},
    },
};

/// A seq that means the present: no mark is later.
pub(super) const NOW: Seq = Seq(i64::MAX);

/// Which messages are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum View {
    /// All messages ever committed, with their marks.
    All,
    /// The messages that the model sees: a summary in place of the messages it replaces, pruned results as
    /// placeholders, and no void messages.
    Live,
}

/// The direction of a page of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// After this place, oldest first.
    After(Seq),
    /// Before this place, newest first.
    Before(Seq),
}

/// A message with its place in a list. The place is its seq, or for a summary the seq of the first message it replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedMessage {
    pub place: Seq,
    pub message: Message,
}

pub(super) static LIVE_AFTER: LazyLock<Named> = named_alone!("sql/messages/live_after.sql");
/// Like [`LIVE_AFTER`], up to a number of bytes.
pub(super) static LIVE_WITHIN: LazyLock<Named> = named_alone!("sql/messages/live_within.sql");
pub(super) static LIVE_BEFORE: LazyLock<Named> = named_alone!("sql/messages/live_before.sql");
pub(super) static ALL_AFTER: LazyLock<Named> = named_alone!("sql/messages/all_after.sql");
pub(super) static ALL_BEFORE: LazyLock<Named> = named_alone!("sql/messages/all_before.sql");
pub(super) static BY_ID: LazyLock<Named> = named_alone!("sql/messages/by_id.sql");
/// Stored sizes of the next messages of a page.
static LIVE_SIZES_AFTER: LazyLock<Named> = named_alone!("sql/messages/live_sizes_after.sql");
static LIVE_SIZES_BEFORE: LazyLock<Named> = named_alone!("sql/messages/live_sizes_before.sql");
static ALL_SIZES_AFTER: LazyLock<Named> = named_alone!("sql/messages/all_sizes_after.sql");
static ALL_SIZES_BEFORE: LazyLock<Named> = named_alone!("sql/messages/all_sizes_before.sql");
pub(super) static LIVE_BYTES: LazyLock<Named> = named_alone!("sql/messages/live_bytes.sql");
/// The parts that affect the size of a prompt in addition to the counters: media, which a model may not support, and
/// reasoning, which may not be sent. Media parts are read without their text; of reasoning only whether something is
/// attached is read.
pub(super) static VARIABLE: LazyLock<Named> = named_alone!("sql/messages/variable.sql");
/// The newest messages, each with its variable parts.
pub(super) static NEWEST: LazyLock<Named> = named_alone!("sql/messages/newest.sql");

/// The results of a batch of calls of which others are still open, without their text. They are counted, but no message
/// contains them yet.
pub(super) const OPEN_RESULTS: &str = "-- store::message::open_results
    select p.kind, p.call_id, p.tool_name, p.outcome, '' as body, p.rest, p.category, p.estimator, p.tokens
      from parts p
     where p.tenant_id = $1 and p.session_id = $2 and p.rest is not null
       and p.message_id = (select c.result_message_id
                             from session_run r
                             join tool_calls c on c.tenant_id = $1 and c.session_id = $2 and c.turn_id = r.turn_id and c.status < 3
                            where r.tenant_id = $1 and r.session_id = $2 and r.open_calls > 0 limit 1)
     order by p.idx";

/// Decodes the transcript that the model sees.
pub(super) fn visible_transcript(rows: &[Row]) -> Result<VisibleTranscript, Error> {
    let context_version = rows.first().map(|row| get(row, "context_version")).transpose()?;
    let (mut bytes, mut message) = (0, None);
    for row in rows {
        let seq: i64 = get(row, "seq")?;
        if message.replace(seq) != Some(seq) {
            bytes += get::<&[u8]>(row, "info")?.len();
        }
        bytes += get::<Option<&str>>(row, "body")?.map_or(0, str::len);
        bytes += get::<Option<&[u8]>>(row, "rest")?.map_or(0, <[u8]>::len);
    }
    let messages = messages(rows)?.into_iter().map(|placed| placed.message.as_sent_to_model()).collect();
    Ok(VisibleTranscript { messages, context_version, bytes })
}

impl Store {
    /// Reads the transcript that the model sees now, with the same statement as a list of it.
    pub async fn transcript(&self, key: &SessionKey) -> Result<VisibleTranscript, Error> {
        let key = Key::from(key);
        visible_transcript(&self.page(&LIVE_AFTER, &key, NOW, Seq(0), None).await?)
    }

    /// Reads the size in bytes of what the model sees of a session now.
    pub async fn live_bytes(&self, key: &SessionKey) -> Result<u64, Error> {
        let key = Key::from(key);
        let values = [("tenant", &key.tenant as Param<'_>), ("session", &key.session), ("at", &NOW.0)];
        let rows = self.database.read_named(&LIVE_BYTES, &values).await?;
        let bytes = rows.first().map(|row| get::<i64>(row, "bytes"));
        Ok(u64::try_from(bytes.transpose()?.unwrap_or_default()).unwrap_or_default())
    }

    /// Reads the messages with these ids.
    pub async fn messages_by_id(
        &self,
        key: &SessionKey,
        ids: &[MessageId],
    ) -> Result<BTreeMap<MessageId, Message>, Error> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (key, ids): (Key, Vec<&str>) = (Key::from(key), ids.iter().map(MessageId::as_str).collect());
        let values =
            [("tenant", &key.tenant as Param<'_>), ("session", &key.session), ("at", &NOW.0), ("messages", &ids)];
        let found = messages(&self.database.read_named(&BY_ID, &values).await?)?;
        Ok(found.into_iter().map(|placed| (placed.message.id.clone(), placed.message)).collect())
    }

    /// Reads the messages visible to the model that contain media, provider-specific items or, with `with_reasoning`,
    /// reasoning. They have only these parts: results without their text, and reasoning and items without their text.
    /// Also reads the messages, without parts, that mark the start of a tool loop: the last user message before each
    /// seq in `before`. Reads only as many rows as there are such parts, by index.
    pub async fn variable(
        &self,
        key: &SessionKey,
        with_reasoning: bool,
        before: &[Seq],
    ) -> Result<Vec<Message>, Error> {
        let (key, before): (Key, Vec<i64>) = (Key::from(key), before.iter().map(|seq| seq.0).collect());
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("at", &NOW.0),
            ("bare_reasoning", &codec::part::MAX_BARE_REASONING_BYTES),
            ("with_reasoning", &with_reasoning),
            ("before", &before),
        ];
        let rows = self.database.read_named(&VARIABLE, &values).await?;
        Ok(variable(&rows)?.into_iter().map(|placed| placed.message).collect())
    }

    /// Reads the newest messages visible to the model before a place, newest first: sizes, model calls, and the same
    /// parts in the same form as [`Store::variable`]. The size of all other parts is included in the message's
    /// overhead.
    pub async fn newest(&self, key: &SessionKey, before: Seq, limit: u32) -> Result<Vec<PlacedMessage>, Error> {
        let key = Key::from(key);
        let limit = i64::from(limit);
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("at", &NOW.0),
            ("bare_reasoning", &codec::part::MAX_BARE_REASONING_BYTES),
            ("place", &before.0),
            ("limit", &limit),
        ];
        variable(&self.database.read_named(&NEWEST, &values).await?)
    }

    /// Reads the results of the running turn's batch of calls while others of the batch are open. Only results that may
    /// contain media are read, without their text.
    pub async fn open_results(&self, key: &SessionKey) -> Result<Vec<Part>, Error> {
        let key = Key::from(key);
        let rows = self.database.read(OPEN_RESULTS, &[&key.tenant, &key.session]).await?;
        rows.iter().map(|row| Ok(part(row)?.part)).collect()
    }

    /// Reads a page of messages like [`Store::messages`]: at most `limit` messages with at most `bytes` of stored size,
    /// but at least one message.
    pub async fn messages_within(
        &self,
        key: &SessionKey,
        view: View,
        at: Option<Seq>,
        page: Page,
        (limit, bytes): (u32, i64),
    ) -> Result<BoundedPage<PlacedMessage>, Error> {
        let (statement, place): (&'static Named, _) = match (view, page) {
            (View::All, Page::After(place)) => (&ALL_SIZES_AFTER, place),
            (View::All, Page::Before(place)) => (&ALL_SIZES_BEFORE, place),
            (View::Live, Page::After(place)) => (&LIVE_SIZES_AFTER, place),
            (View::Live, Page::Before(place)) => (&LIVE_SIZES_BEFORE, place),
        };
        let mut room = bytes;
        let mut fits = 0;
        let rows = self.page(statement, &key.into(), at.unwrap_or(NOW), place, Some(limit)).await?;
        for row in &rows {
            room -= get::<i64>(row, "bytes")?;
            if room < 0 && fits > 0 {
                break;
            }
            fits += 1;
        }
        let items = if fits == 0 { Vec::new() } else { self.messages(key, view, at, page, fits).await? };
        Ok(BoundedPage { items, more: rows.len() == limit as usize || (fits as usize) < rows.len() })
    }

    /// Reads a page of messages as they were at a seq, or as they are now if `at` is `None`.
    pub async fn messages(
        &self,
        key: &SessionKey,
        view: View,
        at: Option<Seq>,
        page: Page,
        limit: u32,
    ) -> Result<Vec<PlacedMessage>, Error> {
        let (statement, place): (&'static Named, _) = match (view, page) {
            (View::All, Page::After(place)) => (&ALL_AFTER, place),
            (View::All, Page::Before(place)) => (&ALL_BEFORE, place),
            (View::Live, Page::After(place)) => (&LIVE_AFTER, place),
            (View::Live, Page::Before(place)) => (&LIVE_BEFORE, place),
        };
        let at = at.unwrap_or(NOW);
        let found = messages(&self.page(statement, &key.into(), at, place, Some(limit)).await?)?;
        Ok(match view {
            View::All => found,
            View::Live => found
                .into_iter()
                .map(|PlacedMessage { place, message }| PlacedMessage { place, message: message.as_sent_to_model() })
                .collect(),
        })
    }

    /// The rows of a page; all rows if there is no limit.
    async fn page(
        &self,
        statement: &'static Named,
        key: &Key,
        at: Seq,
        place: Seq,
        limit: Option<u32>,
    ) -> Result<Vec<Row>, Error> {
        let limit = limit.map(i64::from);
        let values = page_values(key, &at, &place, &limit);
        self.database.read_named(statement, &values).await
    }
}

/// The parameters of the statements that read pages.
pub(super) fn page_values<'a>(
    key: &'a Key,
    at: &'a Seq,
    place: &'a Seq,
    limit: &'a Option<i64>,
) -> [(&'static str, Param<'a>); 5] {
    [
        ("tenant", &key.tenant as Param<'_>),
        ("session", &key.session),
        ("at", &at.0),
        ("place", &place.0),
        ("limit", limit),
    ]
}

/// Messages with their variable parts, as the model sees them. Attachments of reasoning are not read; an empty value
/// marks their presence.
fn variable(rows: &[Row]) -> Result<Vec<PlacedMessage>, Error> {
    let attached = |row: &Row, part: StoredPart| {
        let metadata = get::<Option<bool>>(row, "attached")?.filter(|attached| *attached).map(|_| String::new());
        let part = StoredPart { part: Part { provider_metadata: metadata, ..part.part }, ..part };
        Ok(part.as_sent_to_model())
    };
    folded(rows, attached)
}

/// Folds rows, one per part, into messages. The rows of a message are adjacent.
fn messages(rows: &[Row]) -> Result<Vec<PlacedMessage>, Error> {
    folded(rows, |_, part| Ok(part))
}

/// Like [`messages`], with `made` applied to each part and its row.
fn folded(
    rows: &[Row],
    made: impl Fn(&Row, StoredPart) -> Result<StoredPart, Error>,
) -> Result<Vec<PlacedMessage>, Error> {
    let mut messages: Vec<PlacedMessage> = Vec::new();
    for row in rows {
        let seq = Seq(get(row, "seq")?);
        if messages.last().is_none_or(|last| last.message.seq != seq) {
            messages.push(PlacedMessage { place: Seq(get(row, "place")?), message: message(row, seq)? });
        }
        if let (Some(last), Some(_)) = (messages.last_mut(), get::<Option<i32>>(row, "idx")?) {
            last.message.parts.push(made(row, StoredPart { pruned: pruned(row)?, ..part(row)? })?);
        }
    }
    Ok(messages)
}

fn message(row: &Row, seq: Seq) -> Result<Message, Error> {
    let codec::message::MessageInfo { response, metadata, queued } = codec::message::decode_info(get(row, "info")?)?;
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

/// Decodes the part in a row with the columns of `parts`, without its prune mark.
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
        size: PartSize { tokens: count(row, "tokens")?, category: category(get(row, "category")?)? },
        estimator: get(row, "estimator")?,
        pruned: None,
    })
}

/// Decodes the mark of a pruned result.
fn pruned(row: &Row) -> Result<Option<Pruned>, Error> {
    let Some(at) = get::<Option<i64>>(row, "pruned_at_seq")? else {
        return Ok(None);
    };
    Ok(Some(Pruned { at: Seq(at), time: get(row, "pruned_at")?, original_tokens: count(row, "original_tokens")? }))
}
