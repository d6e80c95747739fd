//! Reads what a rollback of a turn undoes.

use std::sync::LazyLock;

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store, anchor::anchor, compaction::applied, key::Key, named_parameters::Named, number::Number as _,
    row::get, seen::another_number,
};
use crate::{
    model::{Anchor, CallId, Category, CompactionId, MessageId, SessionKey, TurnId, Undone},
    session::{
        counters::{Counter, TokenCounters},
        rollback::RollbackTarget,
    },
};

/// The contribution of a turn's live messages to the counters, by category, and the last measured call before the turn.
pub(super) static ADDED: LazyLock<Named> = named_alone!("sql/rollback/added.sql");
/// The compactions that replace messages of a turn, newest first.
pub(super) static OVER: LazyLock<Named> = named_alone!("sql/rollback/over.sql");
static UNDONE: LazyLock<Named> = named_alone!("sql/rollback/undone.sql");

impl Store {
    /// What a rollback of the turn undoes in the context.
    pub(super) async fn taken_back(&self, key: &SessionKey, turn: &TurnId) -> Result<RollbackTarget, Error> {
        let key = Key::from(key);
        let turn = turn.as_str();
        let queries = [key.named(&ADDED, &[("turn", &turn)])?, key.named(&OVER, &[("turn", &turn)])?];
        let answers = self.database.read_together(&queries).await?;
        let [added, over] = answers.as_slice() else {
            return Err(another_number());
        };
        let compaction = |row: &Row| {
            let id = CompactionId::new(get::<String>(row, "compaction_id")?);
            applied(id, row)
        };
        Ok(RollbackTarget {
            compactions: over.iter().map(compaction).collect::<Result<_, _>>()?,
            added: shift(added)?,
            before: added.first().map(measured).transpose()?.flatten(),
        })
    }

    /// Reads what a rollback of the turn undoes: its messages, including the message that will close the calls that are
    /// still open.
    pub async fn undone(&self, key: &SessionKey, turn: &TurnId) -> Result<Undone, Error> {
        let rows = self.database.read_named_in(key, &UNDONE, &[("turn", &turn.as_str())]).await?;
        let Some(row) = rows.first() else {
            return Ok(Undone::default());
        };
        let messages = get::<Vec<String>>(row, "messages")?.into_iter().chain(get::<Option<String>>(row, "closing")?);
        Ok(Undone {
            messages: messages.map(MessageId::new).collect(),
            executed: get::<Vec<String>>(row, "executed")?.into_iter().map(CallId::new).collect(),
        })
    }
}

fn measured(row: &Row) -> Result<Option<(Anchor, Timestamp)>, Error> {
    Ok(anchor(row)?.zip(get(row, "anchor_at")?))
}

fn shift(rows: &[Row]) -> Result<TokenCounters, Error> {
    let mut shift = TokenCounters::default();
    if let Some(row) = rows.first() {
        shift.messages(get(row, "messages")?, get(row, "overhead")?);
    }
    for row in rows {
        let Some(number) = get::<Option<i16>>(row, "category")? else {
            continue;
        };
        shift.count(Category::of_number(number)?.into(), get(row, "parts")?, get(row, "tokens")?);
        shift.count(Counter::Pruned, get(row, "pruned")?, get(row, "saved")?);
    }
    Ok(shift)
}
