//! The connections of one role: how many there are, and what happens where the database has no room
//! for another one.

use std::{
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use deadpool_postgres::{
    Hook, HookError, Manager, Object, Pool, PoolError, QueueMode, Runtime, TimeoutType,
};
use tokio::time::{Instant as Moment, sleep_until, timeout_at};

use super::{
    Error, NewRequest,
    connection_queue::{ConnectionQueue, Permit},
    error::{Outage, refused},
};
use crate::{
    model::TenantId,
    telemetry::metrics::{Metrics, PoolStatus},
};

/// The age at which a connection is closed. Each is closed at another time within the last fifth, so
/// that they are not all replaced at once.
const MOST_AGE: Duration = Duration::from_mins(30);
/// How long to wait before the database is asked for a connection again that it had no room for,
/// where this process has none that could be waited for.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);
/// Failed connects leave at most one line in the log within this time.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Bounds of the connections of one role.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Most connections.
    pub(super) size: usize,
    /// Connections that stay open while nothing uses them.
    pub(super) kept: usize,
    /// How long an operation waits for one.
    pub(super) acquire_timeout: Duration,
    /// How long one may take to be made.
    pub(super) connect_timeout: Duration,
    /// One that nothing has used for this long is closed.
    pub(super) idle_timeout: Duration,
}

/// Connections in one role, and the operations that wait for them.
#[derive(Clone)]
pub(super) struct Connections {
    pool: Pool,
    queue: Arc<ConnectionQueue>,
    kept: usize,
    acquire_timeout: Duration,
    idle_timeout: Duration,
    /// When the log last got a line about a failed connect.
    logged: Arc<Mutex<Option<Instant>>>,
    /// Connections of the same role that lend one at a time while this pool has none and the
    /// database has no room for another one.
    spare: Option<Box<Connections>>,
}

impl Connections {
    /// They are made when they are needed.
    pub(super) fn new(manager: Manager, bounds: Bounds) -> Result<Self, Error> {
        let Bounds {
            size,
            kept,
            acquire_timeout,
            connect_timeout,
            idle_timeout,
        } = bounds;
        let pool = Pool::builder(manager)
            .max_size(size)
            .wait_timeout(Some(acquire_timeout))
            .create_timeout(Some(connect_timeout))
            // The others become idle, and are closed then.
            .queue_mode(QueueMode::Lifo)
            .pre_recycle(Hook::sync_fn(|_, metrics| {
                let old = metrics.age() >= most_age(metrics.created);
                if old {
                    Err(HookError::message("the connection is old"))
                } else {
                    Ok(())
                }
            }))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self {
            pool,
            queue: ConnectionQueue::new(size),
            kept,
            acquire_timeout,
            idle_timeout,
            logged: Arc::default(),
            spare: None,
        })
    }

    /// The same with spare connections of the same role.
    #[must_use]
    pub(super) fn with_spare(self, spare: &Self) -> Self {
        Self {
            spare: Some(Box::new(spare.clone())),
            ..self
        }
    }

    /// A connection, as soon as it is this operation's turn.
    pub(super) async fn get(&self, metrics: &Metrics) -> Result<Held, Error> {
        self.get_within(self.acquire_timeout, metrics).await
    }

    /// The same with another time to wait for.
    pub(super) async fn get_within(
        &self,
        within: Duration,
        metrics: &Metrics,
    ) -> Result<Held, Error> {
        let end = Moment::now() + within;
        let new = NewRequest::waiting();
        let tenant = new.as_ref().map(|request| &request.tenant);
        let mut permit = self.enter(tenant, end).await?;
        let held = loop {
            permit = match self.connect(permit, metrics).await? {
                Got::Held(held) => break held,
                Got::Smaller => self.enter(tenant, end).await?,
                Got::None(permit, error) => match self.borrow(permit, end, metrics).await {
                    Ok(held) => break held,
                    Err(permit) => {
                        let again = Moment::now() + NO_ROOM_PAUSE;
                        if again >= end {
                            return Err(error);
                        }
                        sleep_until(again).await;
                        permit
                    }
                },
            };
        };
        if let Some(request) = new {
            request.begin();
        }
        Ok(held)
    }

    /// Waits for the right to a connection.
    async fn enter(&self, tenant: Option<&TenantId>, end: Moment) -> Result<Permit, Error> {
        let entered = timeout_at(end, self.queue.enter(tenant)).await;
        entered.map_err(|_| Error::Busy)?
    }

    /// Takes or makes the connection that there is a right to.
    async fn connect(&self, permit: Permit, metrics: &Metrics) -> Result<Got, Error> {
        let error = match self.pool.get().await {
            Ok(object) => {
                if Object::metrics(&object).recycle_count == 0 {
                    self.queue.has_room();
                }
                return Ok(Got::Held(Held {
                    object,
                    permit,
                    spare: None,
                }));
            }
            Err(PoolError::Timeout(TimeoutType::Wait)) => return Err(Error::Busy),
            Err(PoolError::Backend(error)) => refused(&error),
            Err(
                error @ (PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle)
                | PoolError::Closed
                | PoolError::NoRuntimeSpecified
                | PoolError::PostCreateHook(_)),
            ) => Error::Unavailable(error.to_string()),
        };
        metrics.connect_failed(error.kind());
        self.log_failure(&error);
        if error.outage() != Some(Outage::NoConnectionLeft) {
            return Err(error);
        }
        Ok(
            match self.queue.withhold(permit, self.pool.status().available) {
                None => Got::Smaller,
                Some(permit) => Got::None(permit, error),
            },
        )
    }

    /// Operations may still get a connection that is free, so no other line need say it.
    fn log_failure(&self, error: &Error) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|last| last.elapsed() >= BETWEEN_LINES) {
            *logged = Some(Instant::now());
            tracing::warn!(error.type = error.kind(), %error, "no new connection to the database");
        }
    }

    /// One of the spare connections, if there is any. The right to an own one stays taken meanwhile,
    /// so that no more than one is lent.
    async fn borrow(&self, permit: Permit, end: Moment, metrics: &Metrics) -> Result<Held, Permit> {
        let Some(spare) = &self.spare else {
            return Err(permit);
        };
        if spare.pool.status().size == 0 {
            return Err(permit);
        }
        let Ok(right) = spare.enter(None, end).await else {
            return Err(permit);
        };
        match spare.connect(right, metrics).await {
            Ok(Got::Held(held)) => Ok(Held {
                spare: Some(held.permit),
                permit,
                object: held.object,
            }),
            Ok(Got::Smaller | Got::None(..)) | Err(_) => Err(permit),
        }
    }

    /// After how long without a use a connection is closed.
    pub(super) fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }

    /// Closes the connections that nothing has used for a while, but for those that are kept.
    pub(super) fn close_idle(&self) {
        let mut open = self.pool.status().size;
        let closed = self.pool.retain(|_, metrics| {
            let is_kept = open <= self.kept || metrics.last_used() < self.idle_timeout;
            if !is_kept {
                open -= 1;
            }
            is_kept
        });
        drop(closed);
    }

    /// How long a new request of a tenant would wait for a connection; zero if there is one, or if
    /// they are still being made, as after a start.
    pub(super) fn expected_wait(&self, tenant: &TenantId) -> Duration {
        if self.pool.status().size < self.queue.capacity() {
            return Duration::ZERO;
        }
        self.queue.expected_wait(tenant)
    }

    pub(super) fn status(&self, name: &'static str) -> PoolStatus {
        let status = self.pool.status();
        PoolStatus {
            name,
            max: status.max_size,
            used: status.size.saturating_sub(status.available),
            idle: status.available,
            pending: self.queue.len() + status.waiting,
        }
    }
}

/// What came of an attempt to get a connection.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is made"
)]
enum Got {
    /// It is there.
    Held(Held),
    /// The database has no room for another one; those that there are can be waited for.
    Smaller,
    /// It has no room, and there is none to wait for: the right to the only one.
    None(Permit, Error),
}

/// A connection with the right to it. The right ends after the connection is back, where the next
/// operation finds it.
pub(super) struct Held {
    pub(super) object: Object,
    permit: Permit,
    /// The right to the spare connection that it is.
    spare: Option<Permit>,
}

impl Held {
    /// Closes the connection. Its place in the pool is free then.
    pub(super) fn close(self) {
        let Self {
            object,
            permit,
            spare,
        } = self;
        drop(Object::take(object));
        drop((permit, spare));
    }
}

/// The age at which a connection is closed that was made then: between four fifths of [`MOST_AGE`]
/// and all of it.
fn most_age(created: Instant) -> Duration {
    let share = BuildHasherDefault::<DefaultHasher>::default().hash_one(created) % 1000;
    MOST_AGE.mul_f64(0.8 + 0.0002 * share as f64)
}
