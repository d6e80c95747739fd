//! I2: only the owner of a session writes to it, under its fencing epoch, and each operation once.

use std::collections::BTreeSet;

use super::{Invariant, Stored, Violation};

pub(super) fn i2(session: &Stored) -> Vec<Violation> {
    [epochs(session), marks(session)].concat()
}

fn violation(name: &'static str, detail: String) -> Violation {
    Violation::new(Invariant::I2, name, detail)
}

/// Epochs never decrease.
fn epochs(session: &Stored) -> Vec<Violation> {
    let pairs = session.events.iter().zip(session.events.iter().skip(1));
    pairs
        .filter(|(one, next)| one.epoch > next.epoch)
        .map(|(one, next)| {
            let detail = format!("epoch {} at seq {} follows epoch {}", next.epoch, next.seq, one.epoch);
            violation("old owner", detail)
        })
        .collect()
}

/// The fence under which an owner wrote, if the owner recorded it in a `usage_recorded` event as
/// `verb/session/epoch/op/n`. The protocol run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark<'a> {
    /// The operation.
    pub verb: &'a str,
    epoch: i64,
    op: i64,
}

/// Parses a mark. Returns `None` if the text is not a mark.
pub fn mark(text: &str) -> Option<Mark<'_>> {
    let [verb, _, epoch, op, _] = text.split('/').collect::<Vec<_>>()[..] else {
        return None;
    };
    Some(Mark { verb, epoch: epoch.parse().ok()?, op: op.parse().ok()? })
}

/// Each write of an owner is stored once, under its epoch, in the order of its operations.
fn marks(session: &Stored) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut newest = (0, -1);
    for event in session.events.iter().filter(|event| event.kind == "usage_recorded") {
        let text = event.refs.first().map(String::as_str).unwrap_or_default();
        let Some(mark) = mark(text) else { continue };
        if mark.epoch != event.epoch {
            let detail = format!("{text} landed under epoch {}", event.epoch);
            found.push(violation("stale write", detail));
        }
        if !seen.insert(text) {
            found.push(violation("doubled write", format!("{text} at seq {}", event.seq)));
        } else if mark.epoch == event.epoch && (mark.epoch, mark.op) <= newest {
            let detail = format!("of one operation: {text} at seq {}", event.seq);
            found.push(violation("two writes", detail));
        }
        newest = newest.max((mark.epoch, mark.op));
    }
    found
}
