//! Replicas that do whatever the protocol lets anybody do, in any order, and each of which may at
//! any time crash, fall asleep with a lease in its hand, or miss the answer to what it wrote.

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

/// How often what gave no answer is repeated.
const TRIES: usize = 3;
/// Longest sleep with a lease in the hand, or between a look and the deed.
const NAP_US: usize = 2_000;

/// What replicas like to do.
#[derive(Debug, Clone)]
pub(super) struct Habits {
    /// As the owner of a turn.
    pub own: Vec<(Own, usize)>,
    /// As anybody else.
    pub visit: Vec<(Visit, usize)>,
    /// Answers of a hundred that are missed.
    pub missed: usize,
    /// What each does in a round.
    pub deeds: usize,
}

/// What the replicas of one round share.
pub(super) struct Scene {
    pub history: History,
    pub sessions: Vec<SessionKey>,
    names: AtomicU64,
}

impl Scene {
    pub(super) fn new(round: usize) -> Arc<Self> {
        let key = |name: &str| {
            SessionKey::new(
                TenantId::new("t"),
                SessionId::new(format!("r{round}{name}")),
            )
        };
        let sessions = vec![key("a"), key("b")];
        Arc::new(Self {
            history: History::default(),
            sessions,
            names: AtomicU64::new(1),
        })
    }

    /// A number that nobody else has.
    pub(super) fn number(&self) -> u64 {
        self.names.fetch_add(1, Ordering::Relaxed)
    }
}

/// A turn that a replica believes to own.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub turn: TurnId,
    pub fence: Fence,
}

impl Hold {
    pub(super) fn right(&self) -> TurnFence<'_> {
        TurnFence {
            turn: &self.turn,
            fence: self.fence,
        }
    }
}

/// A replica.
pub(super) struct Actor {
    pub scene: Arc<Scene>,
    pub store: Store,
    /// A connection besides the stores': for the passing of time, and for what a test reads.
    pub client: Arc<Client>,
    pub dice: Dice,
    pub habits: Arc<Habits>,
    /// By the position of the session.
    pub held: BTreeMap<usize, Hold>,
    /// Epochs that it was granted.
    pub known: BTreeSet<(usize, i64)>,
    /// What its store remembers is compared with what it reads.
    pub compares_memory: bool,
}

impl Actor {
    /// Does what it likes until it has done enough.
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

    /// An id that nobody else gives.
    pub(super) fn name(&self, kind: &str, session: usize) -> String {
        format!(
            "{}-{kind}{}",
            self.scene.sessions[session].session,
            self.scene.number()
        )
    }

    pub(super) fn tell(&self, told: Told) {
        self.scene.history.tell(told);
    }

    /// Takes what it was granted, unless it crashes at this very moment.
    pub(super) fn granted(&mut self, session: usize, grant: Grant, how: &'static str) {
        let id = self.key(session).session.to_string();
        let epoch = grant.fence.epoch;
        self.tell(Told::Granted {
            session: id,
            epoch,
            how,
        });
        self.known.insert((session, epoch));
        if !self.dice.chance(5) {
            self.held.insert(
                session,
                Hold {
                    turn: grant.turn,
                    fence: grant.fence,
                },
            );
        }
    }

    /// Sleeps, as a process that is stopped does.
    pub(super) async fn nap(&mut self) {
        if self.dice.chance(40) {
            let nap = u64::try_from(self.dice.below(NAP_US)).unwrap();
            tokio::time::sleep(Duration::from_micros(nap)).await;
        }
    }

    /// Asks once. None: the answer was missed, or the database could not give it; nobody knows what
    /// became of it.
    pub(super) async fn ask<T>(
        &mut self,
        deed: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
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
                    self.tell(Told::Refused {
                        what: error.to_string(),
                    });
                }
                None
            }
        }
    }

    /// Repeats the same until it is answered, or gives up.
    pub(super) async fn insist<T>(
        &mut self,
        deed: impl AsyncFn() -> Result<T, Error>,
    ) -> Option<T> {
        for _ in 0..TRIES {
            if let Some(answer) = self.ask(deed()).await {
                return Some(answer);
            }
        }
        None
    }

    /// The time of the session's lease and of what it waits for is over.
    pub(super) async fn time_passes(&self, session: usize) {
        let id = self.key(session).session.to_string();
        let sql = [
            "update session_run set version = version + 1, lease_until = now() - interval '1 second' where session_id = $1 and state = 1",
            "update session_run set version = version + 1, tool_deadline = now() - interval '1 second' where session_id = $1 and state = 2",
            "update tool_calls set deadline = now() - interval '1 second' where session_id = $1 and status < 3 and deadline is not null",
        ];
        for sql in sql {
            // An update like any other: it may meet a deadlock.
            let _ = self.client.execute(sql, &[&id]).await;
        }
    }
}
