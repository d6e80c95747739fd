//! [`Capacity`]: what this replica and its tenants may run, and the tasks that run here.

use std::{future::Future, sync::Arc};

use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    model::{SessionKey, TenantId, TenantLimits, quota::has_fair_room},
    quota::{Quotas, TenantState},
    store::{AdmittedAt, NewRequest, Reach},
    telemetry::Trace,
    turn::{
        error::Error,
        lease::{
            leases::{GrantRequest, Leases},
            postponed::Postponed,
        },
    },
};

/// What this replica and its tenants may run, and the tasks that run here.
#[derive(Debug)]
pub struct Capacity {
    /// The limits of tenants and their usage.
    pub quotas: Arc<Quotas>,
    /// The leases that this replica holds or may hold.
    pub leases: Arc<Leases>,
    pub(in crate::turn) tasks: TaskTracker,
    /// Fires when the server shuts down: streams end, and no new work is admitted.
    pub draining: CancellationToken,
    /// Fires when tasks must stop at once.
    pub(in crate::turn) aborting: CancellationToken,
    pub(in crate::turn) postponed: Postponed,
    pub(in crate::turn) postponed_starts: Postponed,
    pub(super) max_running_turns: usize,
    pub(super) is_shared: bool,
}

impl Capacity {
    /// Whether one more turn of the tenant may begin here.
    pub(in crate::turn) fn may_begin(&self, tenant: &TenantId) -> bool {
        self.may_start() && self.check_room(tenant).is_ok()
    }

    /// Whether this replica may run one more turn.
    pub(in crate::turn) fn may_start(&self) -> bool {
        !self.draining.is_cancelled() && self.leases.count() < self.max_running_turns
    }

    /// Refuses a turn if this replica is at its limit of turns, or the tenant at one of its limits.
    pub(in crate::turn) fn check_room(&self, tenant: &TenantId) -> Result<(), Error> {
        let (all, own) = self.leases.running(tenant);
        self.check_running_limits(tenant, all, own)?;
        Ok(self.quotas.check_turn(tenant)?)
    }

    /// Registers a statement that is about to be sent and that begins a turn, if there is room for
    /// the turn.
    pub(in crate::turn) fn request_start(&self, key: &SessionKey) -> Result<GrantRequest, Error> {
        let tenant = &key.tenant;
        self.quotas.check_turn(tenant)?;
        self.leases.request_start(key, |all, own| self.check_running_limits(tenant, all, own))
    }

    /// Checks whether a tenant may run one more turn or compaction, given the counts of all running
    /// ones (`all`) and of the tenant's (`own`).
    pub(in crate::turn) fn check_running_limits(&self, tenant: &TenantId, all: usize, own: usize) -> Result<(), Error> {
        let share = if self.is_shared { own } else { 0 };
        if !has_fair_room(self.max_running_turns, all, share) {
            return Err(Error::Overloaded);
        }
        Ok(self.quotas.check_running(tenant, own)?)
    }

    /// The tenants that cannot begin a turn here now, among those that were recently active.
    pub(in crate::turn) fn tenants_without_room(&self) -> Vec<TenantId> {
        let mut tenants = self.quotas.tenants();
        tenants.extend(self.leases.running_by_tenant().into_keys());
        tenants.sort_unstable();
        tenants.dedup();
        tenants.retain(|tenant| self.check_room(tenant).is_err());
        tenants
    }

    /// Refuses commands of a tenant that is being deleted.
    pub fn check_tenant(&self, tenant: &TenantId) -> Result<(), Error> {
        if self.quotas.is_deleted(tenant) {
            return Err(Error::TenantBeingDeleted(tenant.clone()));
        }
        Ok(())
    }

    /// The limits of a tenant, and its usage.
    pub async fn tenant_state(&self, tenant: &TenantId) -> Result<TenantState, Error> {
        let (_, running) = self.leases.running(tenant);
        Ok(self.quotas.state(tenant, running).await?)
    }

    /// Sets the tenant-specific limits of a tenant, and returns the limits in force.
    pub async fn set_limits(self: &Arc<Self>, tenant: TenantId, limits: TenantLimits) -> Result<TenantLimits, Error> {
        supervised(self, self, async move |capacity| {
            capacity.quotas.set_limits(&tenant, limits).await?;
            Ok(capacity.quotas.limits(&tenant))
        })
        .await
    }

    /// Starts a task that works for a tenant.
    pub(in crate::turn) fn spawn_for(&self, tenant: &TenantId, work: impl Future<Output = ()> + Send + 'static) {
        let admitted = AdmittedAt(self.quotas.last_read().at());
        let work = admitted.scope(Trace::current().scope(work));
        self.tasks.spawn(Reach::Tenant(tenant.clone()).scope(work));
    }
}

/// Runs an operation of a part to completion in a task of the server, even if the caller disconnects.
pub(in crate::turn) async fn supervised<P, T: Send + 'static, F>(
    capacity: &Capacity,
    part: &Arc<P>,
    operation: impl FnOnce(Arc<P>) -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    // Boxed first: the scopes then move a pointer instead of the whole future, which may be too
    // large for a thread's stack.
    let operation = Trace::current().scope(Box::pin(operation(Arc::clone(part))));
    let operation = NewRequest::as_part_of_current(operation);
    joined(capacity.tasks.spawn(Reach::in_current_scope(operation))).await
}

/// The outcome of a task of the server. A panic becomes [`Error::Internal`].
pub(in crate::turn) async fn joined<T>(task: JoinHandle<Result<T, Error>>) -> Result<T, Error> {
    task.await.map_err(|error| Error::Internal(format!("a task failed: {error}")))?
}
