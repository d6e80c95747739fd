//! A commit without the guard of a race.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::protocol::guards::without_version_in;

/// A statement in place of another one.
pub(super) type Replace = fn(&'static str) -> &'static str;

/// Whoever changes a session does not see that it was written since it was read, and is slow to commit.
pub(super) fn without_version(sql: &'static str) -> &'static str {
    if is(sql, "commit::session:") {
        return changed(sql, |sql| {
            format!(
                "{}, pg_sleep(0.005)::text as slept",
                without_version_in(sql)
            )
        });
    }
    sql
}

fn is(sql: &str, name: &str) -> bool {
    sql.trim_start().starts_with(&format!("-- store::{name}"))
}

/// Another text in place of a statement's, kept for good.
fn changed(sql: &'static str, change: impl FnOnce(&str) -> String) -> &'static str {
    static CHANGED: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());
    let changed = change(sql);
    let mut all = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(changed)
        .or_insert_with_key(|changed| changed.clone().leak())
}
