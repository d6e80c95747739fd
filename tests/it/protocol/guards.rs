//! The guards of the protocol, and what a transaction looks like without one of them.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

/// A guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// A change is written to the session that it was decided from.
    Version,
    /// So is a message that joins the queue: it waits in the turn that it was told of.
    VersionOfEnqueue,
    /// A request is remembered with what it did.
    IdempotencyRow,
    /// The model that a turn goes on with is stored with the attempt that calls it.
    FallbackInRetry,
}

/// The statement that compares the version.
const SESSION: &str = "store::commit::session:";

/// The statement that writes the session as it becomes, whoever wrote it since it was read.
pub(crate) fn without_version_in(session: &str) -> String {
    let (clause, instead) = ("and r.version = ", "and -1::bigint <> ");
    assert!(session.contains(clause), "no «{clause}» in {session}");
    session.replacen(clause, instead, 1)
}

impl Guard {
    /// What the checker says where it is off: how a violation begins.
    pub(super) fn missed(self) -> &'static [&'static str] {
        match self {
            Self::Version | Self::VersionOfEnqueue => &[
                "I4 asked twice",
                "I4 results",
                "owners",
                "I4 batch",
                "I4 recount",
                "recount",
                "I2 ",
                "I3 message",
                "message",
                "lost ",
            ],
            Self::IdempotencyRow => &["request"],
            Self::FallbackInRetry => &["I1 model"],
        }
    }

    /// A transaction without this guard. None: it is not the one that has it.
    fn off(self, transaction: &[String]) -> Option<Vec<String>> {
        let has = |name: &str| {
            transaction
                .iter()
                .position(|statement| statement.contains(name))
        };
        let without = |name: &str, clauses: &[(&str, &str)]| {
            let at = has(name)?;
            let mut other = transaction.to_vec();
            for (clause, instead) in clauses {
                assert!(other[at].contains(clause), "{name} has no «{clause}»");
                other[at] = other[at].replace(clause, instead);
            }
            Some(other)
        };
        let unversioned = || {
            let at = has(SESSION)?;
            let mut other = transaction.to_vec();
            other[at] = without_version_in(&other[at]);
            Some(other)
        };
        match self {
            Self::Version => unversioned(),
            Self::VersionOfEnqueue => has("store::commit::queued").and_then(|_| unversioned()),
            Self::FallbackInRetry => without(
                "store::commit::turn:",
                &[("request = coalesce(", "request = coalesce(t.request, ")],
            ),
            Self::IdempotencyRow => {
                without(SESSION, &[("i.request_id = ", "false and i.request_id = ")])
            }
        }
    }
}

/// What a transaction is sent as: without the guard.
pub(super) fn rewrite(statements: &[&'static str], off: Option<Guard>) -> Vec<&'static str> {
    let whole: Vec<String> = statements.iter().map(|it| (*it).to_owned()).collect();
    let sent = off.and_then(|guard| guard.off(&whole)).unwrap_or(whole);
    sent.into_iter().map(kept).collect()
}

/// The text, which stays for as long as the process: there are few.
fn kept(text: String) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    match texts.get(text.as_str()) {
        Some(known) => known,
        None => {
            let text: &'static str = text.leak();
            texts.insert(text);
            text
        }
    }
}
