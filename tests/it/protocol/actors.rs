//! Replicas that perform any operation of the protocol in any order. Each may at any time crash, pause while it holds a
//! lease, or miss the response to a write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use contextd::{
    model::{Fence, SessionId, SessionKey, TenantId, TurnFence, TurnId},
    store::{Error, Store, grant::Grant},
};
use tokio_postgres::Client;

use crate::harness::dice::{Dice, polled};

use super::{
    history::{History, Told},
    owner::Own,
    visitor::Visit,
};

/// Number of attempts for an operation without a response.
const TRIES: usize = 3;
/// Maximum pause while an actor holds a lease, or between a read and the write based on it.
const NAP_US: usize = 2_000;

/// The probabilities of operations.
#[derive(Debug, Clone)]
pub(super) struct Habits {
    /// Weights of operations as the owner of a turn.
    pub own: Vec<(Own, usize)>,
    /// Weights of operations as any other client or replica.
    pub visit: Vec<(Visit, usize)>,
    /// Percentage of responses that are missed.
    pub missed: usize,
    /// Number of operations per actor and round.
    pub deeds: usize,
}

/// The state that the replicas of a round share.
pub(super) struct Scene {
    pub history: History,
    pub sessions: Vec<SessionKey>,
    names: AtomicU64,
}

impl Scene {
    pub(super) fn new(round: usize) -> Arc<Self> {
        let key = |name: &str| SessionKey::new(TenantId::new("t"), SessionId::new(format!("r{round}{name}")));
        let sessions = vec![key("a"), key("b")];
        Arc::new(Self { history: History::default(), sessions, names: AtomicU64::new(1) })
    }

    /// A unique number.
    pub(super) fn number(&self) -> u64 {
        self.names.fetch_add(1, Ordering::Relaxed)
    }
}

/// A turn that a replica assumes to own.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub turn: TurnId,
    pub fence: Fence,
}

impl Hold {
    pub(super) fn right(&self) -> TurnFence<'_> {
        TurnFence { turn: &self.turn, fence: self.fence }
    }
}

pub(super) struct Actor {
    pub scene: Arc<Scene>,
    pub store: Store,
    /// A connection outside of the stores, which ages leases and reads data for the test.
    pub client: Arc<Client>,
    pub dice: Dice,
    pub habits: Arc<Habits>,
    /// By index of the session.
    pub held: BTreeMap<usize, Hold>,
    /// The epochs that it was granted.
    pub known: BTreeSet<(usize, i64)>,
    /// Whether the session memory of its store is compared with the stored data.
    pub compares_memory: bool,
}

impl Actor {
    /// Performs random operations.
    pub(super) async fn run(&mut self) {
        for _ in 0..self.habits.deeds {
            let held: Vec<usize> = self.held.keys().copied().collect();
            match self.dice.pick(&held).copied() {
                Some(session) if self.dice.chance(65) => {
                    let deed = self.dice.weighed(&self.habits.clone().own);
                    Box::pin(self.own(session, deed)).await;
                }
                Some(_) | None => {
                    let session = self.dice.below(self.scene.sessions.len());
                    let deed = self.dice.weighed(&self.habits.clone().visit);
                    Box::pin(self.visit(session, deed)).await;
                }
            }
        }
    }

    pub(super) fn key(&self, session: usize) -> SessionKey {
        self.scene.sessions[session].clone()
    }

    /// A unique id.
    pub(super) fn name(&self, kind: &str, session: usize) -> String {
        format!("{}-{kind}{}", self.scene.sessions[session].session, self.scene.number())
    }

    pub(super) fn tell(&self, told: Told) {
        self.scene.history.tell(told);
    }

    /// Records a grant, unless the actor crashes at this moment.
    pub(super) fn granted(&mut self, session: usize, grant: Grant, how: &'static str) {
        let id = self.key(session).session.to_string();
        let epoch = grant.fence.epoch;
        self.tell(Told::Granted { session: id, epoch, how });
        self.known.insert((session, epoch));
        if !self.dice.chance(5) {
            self.held.insert(session, Hold { turn: grant.turn, fence: grant.fence });
        }
    }

    /// Pauses sometimes, like a stopped process.
    pub(super) async fn nap(&mut self) {
        if self.dice.chance(40) {
            let nap = u64::try_from(self.dice.below(NAP_US)).unwrap();
            tokio::time::sleep(Duration::from_micros(nap)).await;
        }
    }

    /// Tries once. Returns `None` if the response was missed or the database returned an error; the outcome is then
    /// unknown. An error that is not transient is recorded as a violation.
    pub(super) async fn ask<T>(&mut self, deed: impl Future<Output = Result<T, Error>>) -> Option<T> {
        let answer = if self.dice.chance(self.habits.missed) {
            let polls = 1 + self.dice.below(6);
            polled(deed, polls).await?
        } else {
            deed.await
        };
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                if !error.is_transient() {
                    self.tell(Told::Refused { what: error.to_string() });
                }
                None
            }
        }
    }

    /// Repeats an operation until it gets a response. Returns `None` after [`TRIES`] attempts.
    pub(super) async fn insist<T>(&mut self, deed: impl AsyncFn() -> Result<T, Error>) -> Option<T> {
        for _ in 0..TRIES {
            if let Some(answer) = self.ask(deed()).await {
                return Some(answer);
            }
        }
        None
    }

    /// Expires the lease of the session and its waiting tool calls.
    pub(super) async fn time_passes(&self, session: usize) {
        let id = self.key(session).session.to_string();
        let sql = [
            "update replicas set lease_until = now() - interval '1 second' where $1 <> ''",
            "update session_run set version = version + 1, lease_until = now() - interval '1 second' where session_id = $1 and state = 1",
            "update session_run set version = version + 1, tool_deadline = now() - interval '1 second' where session_id = $1 and state = 2",
            "update tool_calls set deadline = now() - interval '1 second' where session_id = $1 and status < 3 and deadline is not null",
        ];
        for sql in sql {
            // The update may fail with a deadlock, like any other.
            let _ = self.client.execute(sql, &[&id]).await;
        }
    }
}
