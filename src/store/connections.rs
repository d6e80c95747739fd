//! The connections of one database role: their number, and the handling of a database that accepts no further
//! connection.

use std::{
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use deadpool_postgres::{Hook, HookError, Manager, Object, Pool, PoolError, QueueMode, Runtime, TimeoutType};
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

/// The maximum age of a connection. Each connection is closed at a different time within the last fifth, so that they
/// are not all replaced at once.
const MAX_CONNECTION_AGE: Duration = Duration::from_mins(30);
/// Pause before another attempt to connect after the database refused a connection for lack of room, if this process
/// has no other connection to wait for.
const CONNECT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Minimum interval between two log lines about failed connects.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Limits for the connections of one role.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolLimits {
    /// Maximum number of connections.
    pub(super) size: usize,
    /// Number of connections that stay open when idle.
    pub(super) kept: usize,
    /// How long an operation waits for a connection.
    pub(super) acquire_timeout: Duration,
    /// Connect timeout.
    pub(super) connect_timeout: Duration,
    /// Connections idle for this long are closed.
    pub(super) idle_timeout: Duration,
}

/// The connections of one role, with the queue of operations that wait for them.
#[derive(Clone)]
pub(super) struct Connections {
    pool: Pool,
    queue: Arc<ConnectionQueue>,
    pub(super) limits: PoolLimits,
    /// When a failed connect was last logged.
    logged: Arc<Mutex<Option<Instant>>>,
    /// A pool of the same role that lends one connection at a time while this pool has none and the database accepts no
    /// further connection.
    spare: Option<Box<Connections>>,
}

impl Connections {
    /// Creates the pool. Connections are opened on demand.
    pub(super) fn new(manager: Manager, limits: PoolLimits) -> Result<Self, Error> {
        let pool = Pool::builder(manager)
            .max_size(limits.size)
            .wait_timeout(Some(limits.acquire_timeout))
            .create_timeout(Some(limits.connect_timeout))
            // With LIFO order surplus connections become idle and are then closed.
            .queue_mode(QueueMode::Lifo)
            .pre_recycle(Hook::sync_fn(|_, metrics| {
                let old = metrics.age() >= max_age(metrics.created);
                if old { Err(HookError::message("the connection exceeded its maximum age")) } else { Ok(()) }
            }))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self { pool, queue: ConnectionQueue::new(limits.size), limits, logged: Arc::default(), spare: None })
    }

    /// Returns the pool with spare connections of the same role.
    #[must_use]
    pub(super) fn with_spare(self, spare: &Self) -> Self {
        Self { spare: Some(Box::new(spare.clone())), ..self }
    }

    /// Waits for a connection.
    pub(super) async fn get(&self, metrics: &Metrics) -> Result<PooledConnection, Error> {
        self.get_within(self.limits.acquire_timeout, metrics).await
    }

    /// Like [`Connections::get`], with another timeout.
    pub(super) async fn get_within(&self, within: Duration, metrics: &Metrics) -> Result<PooledConnection, Error> {
        let end = Moment::now() + within;
        let new = NewRequest::waiting();
        let tenant = new.as_ref().map(|request| &request.tenant);
        let mut permit = self.enter(tenant, end).await?;
        let held = loop {
            permit = match self.connect(permit, metrics).await? {
                ConnectAttempt::Held(held) => break held,
                ConnectAttempt::PermitWithheld => self.enter(tenant, end).await?,
                ConnectAttempt::None(permit, error) => match self.borrow(permit, end, metrics).await {
                    Ok(held) => break held,
                    Err(permit) => {
                        let again = Moment::now() + CONNECT_RETRY_DELAY;
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

    /// Waits for a permit.
    async fn enter(&self, tenant: Option<&TenantId>, end: Moment) -> Result<Permit, Error> {
        let entered = timeout_at(end, self.queue.enter(tenant)).await;
        entered.map_err(|_| Error::Busy)?
    }

    /// Takes an idle connection or opens one, with a permit.
    async fn connect(&self, permit: Permit, metrics: &Metrics) -> Result<ConnectAttempt, Error> {
        let error = match self.pool.get().await {
            Ok(object) => {
                if Object::metrics(&object).recycle_count == 0 {
                    self.queue.record_accepted();
                }
                return Ok(ConnectAttempt::Held(PooledConnection { object, permit, spare: None }));
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
        Ok(match self.queue.withhold(permit, self.pool.status().available) {
            None => ConnectAttempt::PermitWithheld,
            Some(permit) => ConnectAttempt::None(permit, error),
        })
    }

    /// Logs a failed connect, with a rate limit. Operations may still get a free connection, so their failure does not
    /// always appear in the log.
    fn log_failure(&self, error: &Error) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|last| last.elapsed() >= LOG_INTERVAL) {
            *logged = Some(Instant::now());
            tracing::warn!(error.type = error.kind(), %error, "cannot open a database connection");
        }
    }

    /// Borrows a spare connection, if one is available. The pool's own permit stays taken, so that at most one is
    /// borrowed.
    async fn borrow(&self, permit: Permit, end: Moment, metrics: &Metrics) -> Result<PooledConnection, Permit> {
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
            Ok(ConnectAttempt::Held(held)) => {
                Ok(PooledConnection { spare: Some(held.permit), permit, object: held.object })
            }
            Ok(ConnectAttempt::PermitWithheld | ConnectAttempt::None(..)) | Err(_) => Err(permit),
        }
    }

    /// Closes connections that were idle for too long, except for those that are kept.
    pub(super) fn close_idle(&self) {
        let mut open = self.pool.status().size;
        let closed = self.pool.retain(|_, metrics| {
            let is_kept = open <= self.limits.kept || metrics.last_used() < self.limits.idle_timeout;
            if !is_kept {
                open -= 1;
            }
            is_kept
        });
        drop(closed);
    }

    /// Estimates how long a new request of a tenant would wait for a connection. Zero while fewer connections are open
    /// than allowed, as after a start.
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

/// Result of an attempt to get a connection.
#[expect(clippy::large_enum_variant, reason = "it is destructured where it is created")]
enum ConnectAttempt {
    Held(PooledConnection),
    /// The database accepts no further connection; an operation can wait for the open ones.
    PermitWithheld,
    /// The database accepts no further connection, and there is no other to wait for. Contains the only permit.
    None(Permit, Error),
}

/// A connection with its permit. The permit is dropped after the connection is back in the pool, where the next
/// operation finds it.
pub(super) struct PooledConnection {
    pub(super) object: Object,
    permit: Permit,
    /// The permit of the spare pool, for a borrowed connection.
    spare: Option<Permit>,
}

impl PooledConnection {
    /// Closes the connection. Its place in the pool then becomes free.
    pub(super) fn close(self) {
        let Self { object, permit, spare } = self;
        drop(Object::take(object));
        drop((permit, spare));
    }
}

/// The age at which a connection created at `created` is closed: between four fifths of [`MAX_CONNECTION_AGE`] and all of it.
fn max_age(created: Instant) -> Duration {
    let share = BuildHasherDefault::<DefaultHasher>::default().hash_one(created) % 1000;
    MAX_CONNECTION_AGE.mul_f64(0.8 + 0.0002 * share as f64)
}
