//! The guards of the protocol, and what a transaction looks like without one of them.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

/// A guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// An owner writes under its own lease only: its epoch and its name. (That the epoch alone
    /// refuses it too is a test of the store's.)
    Lease,
    /// An owner's write happens once.
    Op,
    /// A take finds the queue as it was looked at.
    NextSeqInTake,
    /// No user's message between calls and their results.
    OpenCallsInTake,
    /// The end of a turn waits for enqueues that have not committed.
    Gate,
    /// An enqueue lets the end of a turn wait.
    KeyShare,
    /// So do ends that look at no queue.
    GateInStop,
    /// A change is written to the session that it was decided from.
    Version,
    /// A request is remembered with what it did.
    IdempotencyRow,
    /// The model that a turn goes on with is stored with the attempt that calls it.
    FallbackInRetry,
}

/// Fenced statements of an owner.
const OWNED: [&str; 3] = [FINISH, "store::turn::stop:", "store::take::take:"];
/// The fence of a finish.
const FINISH: &str = "store::turn::finish:";

/// The text with a comparison that always holds in place of the first that begins like this and
/// compares with a parameter of that type.
pub(crate) fn without_comparison(statement: &str, comparison: &str, kind: &str) -> Option<String> {
    let at = statement.find(comparison)?;
    let number: String = statement[at + comparison.len()..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    Some(statement.replacen(
        &format!("{comparison}{number}"),
        &format!("${number}::{kind} is not null"),
        1,
    ))
}

/// A fenced statement that takes whoever owns the turn for its owner.
fn without_owner(statement: &str) -> String {
    OWNED
        .iter()
        .any(|name| statement.contains(*name))
        .then(|| without_comparison(statement, "r.owner = $", "text"))
        .flatten()
        .unwrap_or_else(|| statement.to_owned())
}

/// A lock that locks nothing.
const NO_LOCK: &str = "select 1 where $1::text is not null and $2::text is not null";

impl Guard {
    /// What the checker says where it is off: how a violation begins.
    pub(super) fn missed(self) -> &'static [&'static str] {
        match self {
            Self::Lease => &["I2 stale write", "I2 old owner", "I2 two writes"],
            Self::Op => &["I2 doubled write"],
            Self::NextSeqInTake => &["I3 message", "message"],
            Self::OpenCallsInTake => &["I4 batch"],
            Self::Gate | Self::KeyShare => &["lost wake-up"],
            Self::GateInStop => &["lost start"],
            Self::Version => &[
                "I4 asked twice",
                "I4 results",
                "owners",
                "I4 batch",
                "I4 recount",
                "recount",
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
        let unlocked = |lock: &str| {
            let at = has(lock).expect("the transaction takes that lock");
            let mut other = transaction.to_vec();
            NO_LOCK.clone_into(&mut other[at]);
            Some(other)
        };
        let owned = |names: &[&str], comparison: &str| {
            let at = names.iter().find_map(|name| has(name))?;
            let mut other = transaction.to_vec();
            other[at] = without_comparison(&other[at], comparison, "bigint")
                .unwrap_or_else(|| panic!("{} has no «{comparison}»", other[at]));
            Some(other)
        };
        match self {
            Self::Lease => {
                let statements = owned(&OWNED, "r.epoch = $")?;
                Some(
                    statements
                        .iter()
                        .map(|statement| without_owner(statement))
                        .collect(),
                )
            }
            Self::Op => owned(&OWNED, "r.op = $"),
            Self::NextSeqInTake => owned(&["store::take::take:"], "r.next_seq = $"),
            Self::OpenCallsInTake => without("store::take::take:", &[("and r.open_calls = 0", "")]),
            Self::Gate => has(FINISH).and_then(|_| unlocked("store::turn::gate")),
            Self::KeyShare => without("store::queue::enqueue", &[(" for key share)", ")")]),
            Self::GateInStop => {
                has("store::turn::stop").and_then(|_| unlocked("store::turn::gate"))
            }
            Self::Version => {
                let at = has("store::commit::session:")?;
                let mut other = transaction.to_vec();
                for (comparison, kind) in [
                    ("r.xmin::text = $", "text"),
                    ("r.epoch = $", "bigint"),
                    ("r.op = $", "bigint"),
                    ("r.next_seq = $", "bigint"),
                ] {
                    other[at] = without_comparison(&other[at], comparison, kind)
                        .unwrap_or_else(|| panic!("{} has no «{comparison}»", other[at]));
                }
                Some(other)
            }
            Self::FallbackInRetry => without(
                "store::commit::turn:",
                &[("request = coalesce(", "request = coalesce(t.request, ")],
            ),
            Self::IdempotencyRow => without(
                "store::queue::enqueue",
                &[("$3 from known", "$3 from (select 1) always")],
            )
            .or_else(|| {
                let at = has("store::admission::admit:")?;
                let mut other = transaction.to_vec();
                assert!(other[at].contains("or not exists (select from idempotency"));
                other[at] = other[at].replace(
                    "or not exists (select from idempotency",
                    "or true or not exists (select from idempotency",
                );
                if let Some(at) = has("store::admission::request") {
                    other[at].push_str(" on conflict do nothing");
                }
                Some(other)
            }),
        }
    }
}

/// A moment within a statement that holds a lock or has its snapshot, in which others get a chance.
const MOMENT: &str = "(select pg_sleep(0.003 * random())) moment";
/// The same, behind the look at what a message meets.
const LATER: &str = "(select m.state, pg_sleep(0.003 * random()) offset 0) moment";
const MET: &str = "queue_met($1, $2, q.pos) m";

/// What a transaction is sent as: slower where others may come in between, and without the guard.
pub(super) fn rewrite(statements: &[&'static str], off: Option<Guard>) -> Vec<&'static str> {
    let slow: Vec<String> = statements
        .iter()
        .map(|statement| slower(statement))
        .collect();
    let sent = off.and_then(|guard| guard.off(&slow)).unwrap_or(slow);
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

fn slower(statement: &str) -> String {
    let at = [
        (
            "store::queue::enqueue",
            MET,
            format!("{MET} cross join lateral {LATER}"),
        ),
        (
            "store::queue::unqueue",
            "from f, picked p order by",
            format!("from f, {MOMENT}, picked p order by"),
        ),
        (
            "store::queue::start_idle",
            "select f.* from f",
            "select f.* from (select pg_sleep(0.003 * random()) as slept offset 0) s
               left join f on s.slept is not null where f.epoch is not null"
                .to_owned(),
        ),
    ];
    for (name, place, with) in at {
        if statement.contains(name) {
            assert!(statement.contains(place), "{name} has no «{place}»");
            return statement.replacen(place, &with, 1);
        }
    }
    statement.to_owned()
}
