//! Messages with their parts, as they are read back.

use std::{collections::BTreeMap, sync::LazyLock};

use tokio_postgres::Row;

use super::{
    Error, Store,
    bounded_page::BoundedPage,
    named_parameters::Named,
    number::enum_value,
    owned::VisibleTranscript,
    pipeline::Param,
    row::{count, get},
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

/// The statements that read pages of a view in one direction.
#[derive(Debug)]
pub(super) struct PageStatements {
    pub(super) messages: Named,
    /// Reads the stored sizes of the messages.
    sizes: Named,
}

impl PageStatements {
    /// Creates the statements for the fragment that selects the messages of a page, and their order.
    fn new([messages, sizes]: [&str; 2], page: &str, order: &str) -> Self {
        let statement = |text: &str| Named::new(&text.replace("{page}", page).replace("{order}", order));
        Self { messages: statement(messages), sizes: statement(sizes) }
    }
}

const LIVE: [&str; 2] = [include_str!("sql/messages/live.sql"), include_str!("sql/messages/live_sizes.sql")];
const ALL: [&str; 2] = [include_str!("sql/messages/all.sql"), include_str!("sql/messages/all_sizes.sql")];

pub(super) static LIVE_AFTER: LazyLock<PageStatements> =
    LazyLock::new(|| PageStatements::new(LIVE, "{live_after}", "asc"));
pub(super) static LIVE_BEFORE: LazyLock<PageStatements> =
    LazyLock::new(|| PageStatements::new(LIVE, "{live_before}", "desc"));
pub(super) static ALL_AFTER: LazyLock<PageStatements> =
    LazyLock::new(|| PageStatements::new(ALL, "{all_after}", "asc"));
pub(super) static ALL_BEFORE: LazyLock<PageStatements> =
    LazyLock::new(|| PageStatements::new(ALL, "{all_before}", "desc"));
/// Like the messages of [`LIVE_AFTER`], up to a number of bytes.
pub(super) static LIVE_WITHIN: LazyLock<Named> = named_alone!("sql/messages/live_within.sql");
pub(super) static BY_ID: LazyLock<Named> = named_alone!("sql/messages/by_id.sql");
pub(super) static LIVE_BYTES: LazyLock<Named> = named_alone!("sql/messages/live_bytes.sql");
/// The parts that affect the size of a prompt in addition to the counters: media, which a model may not support, and
/// reasoning, which may not be sent. Media parts are read without their text; of reasoning only whether something is
/// attached is read.
pub(super) static VARIABLE: LazyLock<Named> = named_alone!("sql/messages/variable.sql");
/// The newest messages, each with its variable parts.
pub(super) static NEWEST: LazyLock<Named> = named_alone!("sql/messages/newest.sql");

/// The results of a batch of calls of which others are still open, without their text. They are counted, but no message
/// contains them yet.
pub(super) static OPEN_RESULTS: LazyLock<Named> = named_alone!("sql/messages/open_results.sql");

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
        visible_transcript(&self.page(&LIVE_AFTER.messages, key, NOW, Seq(0), None).await?)
    }

    /// Reads the size in bytes of what the model sees of a session now.
    pub async fn live_bytes(&self, key: &SessionKey) -> Result<u64, Error> {
        let rows = self.database.read_named_in(key, &LIVE_BYTES, &[("at", &NOW.0)]).await?;
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
        let ids: Vec<&str> = ids.iter().map(MessageId::as_str).collect();
        let rows = self.database.read_named_in(key, &BY_ID, &[("at", &NOW.0), ("messages", &ids)]).await?;
        let found = messages(&rows)?;
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
        let before: Vec<i64> = before.iter().map(|seq| seq.0).collect();
        let values: [(&str, Param<'_>); 4] = [
            ("at", &NOW.0),
            ("bare_reasoning", &codec::part::MAX_BARE_REASONING_BYTES),
            ("with_reasoning", &with_reasoning),
            ("before", &before),
        ];
        let rows = self.database.read_named_in(key, &VARIABLE, &values).await?;
        Ok(variable(&rows)?.into_iter().map(|placed| placed.message).collect())
    }

    /// Reads the newest messages visible to the model before a place, newest first: sizes, model calls, and the same
    /// parts in the same form as [`Store::variable`]. The size of all other parts is included in the message's
    /// overhead.
    pub async fn newest(&self, key: &SessionKey, before: Seq, limit: u32) -> Result<Vec<PlacedMessage>, Error> {
        let limit = i64::from(limit);
        let values: [(&str, Param<'_>); 4] = [
            ("at", &NOW.0),
            ("bare_reasoning", &codec::part::MAX_BARE_REASONING_BYTES),
            ("place", &before.0),
            ("limit", &limit),
        ];
        variable(&self.database.read_named_in(key, &NEWEST, &values).await?)
    }

    /// Reads the results of the running turn's batch of calls while others of the batch are open. Only results that may
    /// contain media are read, without their text.
    pub async fn open_results(&self, key: &SessionKey) -> Result<Vec<Part>, Error> {
        let rows = self.database.read_named_in(key, &OPEN_RESULTS, &[]).await?;
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
        let (statements, place) = page_statements(view, page);
        let mut room = bytes;
        let mut fits = 0;
        let rows = self.page(&statements.sizes, key, at.unwrap_or(NOW), place, Some(limit)).await?;
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
        let (statements, place) = page_statements(view, page);
        let at = at.unwrap_or(NOW);
        let found = messages(&self.page(&statements.messages, key, at, place, Some(limit)).await?)?;
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
        key: &SessionKey,
        at: Seq,
        place: Seq,
        limit: Option<u32>,
    ) -> Result<Vec<Row>, Error> {
        let limit = limit.map(i64::from);
        self.database.read_named_in(key, statement, &[("at", &at.0), ("place", &place.0), ("limit", &limit)]).await
    }
}

/// The statements for a page, and the place where it begins.
fn page_statements(view: View, page: Page) -> (&'static PageStatements, Seq) {
    match (view, page) {
        (View::All, Page::After(place)) => (&ALL_AFTER, place),
        (View::All, Page::Before(place)) => (&ALL_BEFORE, place),
        (View::Live, Page::After(place)) => (&LIVE_AFTER, place),
        (View::Live, Page::Before(place)) => (&LIVE_BEFORE, place),
    }
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
        role: enum_value(row, "role")?,
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
        size: PartSize { tokens: count(row, "tokens")?, category: enum_value(row, "category")? },
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
