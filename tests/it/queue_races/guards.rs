//! Statements without the guard of a race, and slow where somebody else gets a chance by that.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::protocol::guards::without_comparison;

/// A statement in place of another one.
pub(super) type Replace = fn(&'static str) -> &'static str;

/// Time goes by between what a take sees of the queue and its lock on the row.
const SLOWLY: (&str, &str) = (
    "from (select (select coalesce",
    "from (select (select 0 from pg_sleep(0.2)) + (select coalesce",
);

/// The gate is not taken, and whoever ends a turn or queues a message is slow to commit.
pub(super) fn without_gate(sql: &'static str) -> &'static str {
    if is(sql, "turn::gate") {
        return "-- store::turn::gate, not taken
            select 1 from sessions where tenant_id = $1 and session_id = $2";
    }
    if is(sql, "turn::session_used") || is(sql, "turn::stop_turn") {
        return changed(sql, |sql| {
            format!("{sql} and pg_sleep(0.1)::text is not null")
        });
    }
    if is(sql, "queue::enqueue") {
        let met = "queue_met($1, $2, q.pos) m";
        let slow =
            format!("{met} cross join lateral (select m.state, pg_sleep(0.005) offset 0) slow");
        return changed(sql, |sql| replaced(sql, &[(met, &slow)]));
    }
    sql
}

/// A take does not see that something moved since it looked, and is slow to get to the row.
pub(super) fn without_next_seq(sql: &'static str) -> &'static str {
    if is(sql, "take::take:") {
        return changed(sql, |sql| {
            replaced(&without(sql, "r.next_seq = $"), &[SLOWLY])
        });
    }
    sql
}

/// A take sees neither that, which a takeover moves too, nor that the turn has another owner.
pub(super) fn without_fence(sql: &'static str) -> &'static str {
    if is(sql, "take::take:") {
        return changed(sql, |sql| {
            let blind = ["r.epoch = $", "r.op = $", "r.next_seq = $"]
                .iter()
                .fold(sql.to_owned(), |sql, comparison| without(&sql, comparison));
            without_comparison(&replaced(&blind, &[SLOWLY]), "r.owner = $", "text")
                .expect("a take compares the owner")
        });
    }
    sql
}

/// A take without a number that it compares.
fn without(sql: &str, comparison: &str) -> String {
    without_comparison(sql, comparison, "bigint")
        .unwrap_or_else(|| panic!("no «{comparison}» in {sql}"))
}

fn is(sql: &str, name: &str) -> bool {
    sql.trim_start().starts_with(&format!("-- store::{name}"))
}

/// A text with other clauses; each of them was there.
fn replaced(sql: &str, clauses: &[(&str, &str)]) -> String {
    clauses
        .iter()
        .fold(sql.to_owned(), |sql, (clause, instead)| {
            assert!(sql.contains(clause), "no «{clause}» in {sql}");
            sql.replacen(clause, instead, 1)
        })
}

/// Another text in place of a statement's, kept for good.
fn changed(sql: &'static str, change: impl FnOnce(&str) -> String) -> &'static str {
    static CHANGED: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());
    let changed = change(sql);
    let mut all = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(changed)
        .or_insert_with_key(|changed| changed.clone().leak())
}
