//! [`Engine`]: the shared state of the turn engine, one per replica.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    clock::Clock,
    fair::FairSemaphore,
    mcp,
    model::{
        Limits, SessionConfig, SessionKey, TenantId, TenantLimits, ToolSet, command::TurnRequest, config::Policy,
        quota::has_fair_room,
    },
    provider::{Registry, registry::ResolvedModel},
    quota::{Quotas, TenantState},
    store::{NewRequest, Reach, Store, session::Session},
    telemetry::{Metrics, Telemetry, Trace, Traces},
    turn::{
        calibrations::CalibrationMemory,
        error::Error,
        lease::{
            leases::{GrantRequest, Leases},
            postponed::Postponed,
        },
        live::{hub::Hub, sharing::Sharing, wakeups::Wakeups},
        settings::{DEFAULT_POLICY, Rules},
    },
};

/// Least time between two refreshes of one server's models that turns trigger.
const MIN_MODEL_REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// Longest time that a turn waits for such a refresh.
const MODEL_REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// The shared state of the turn engine, one per replica.
#[derive(Debug)]
pub struct Engine {
    pub(super) store: Store,
    pub(super) models: Registry,
    pub(super) mcp: mcp::Servers,
    pub(super) quotas: Arc<Quotas>,
    pub(super) rules: Rules,
    pub(super) hub: Hub,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) leases: Arc<Leases>,
    pub(super) sharing: Sharing,
    pub(super) wakeups: Wakeups,
    pub(super) tasks: TaskTracker,
    pub(super) calibration_memory: CalibrationMemory,
    pub(super) draining: CancellationToken,
    pub(super) aborting: CancellationToken,
    pub(super) uploads: Arc<FairSemaphore>,
    /// Bytes that calls which read whole sessions may hold.
    pub(super) prompt_memory: Arc<FairSemaphore>,
    pub(super) counts: Arc<FairSemaphore>,
    pub(super) postponed: Postponed,
    pub(super) postponed_starts: Postponed,
    pub(super) metrics: Metrics,
    pub(super) traces: Traces,
}

impl Engine {
    /// Creates the engine of a replica.
    pub fn new(
        store: Store,
        (models, mcp): (Registry, mcp::Servers),
        quotas: Arc<Quotas>,
        rules: Rules,
        hub: Hub,
        clock: Arc<dyn Clock>,
        telemetry: &Telemetry,
    ) -> Arc<Self> {
        let uploads = FairSemaphore::new(rules.blobs.max_uploads);
        let prompt_memory = FairSemaphore::new(rules.turn.prompt_memory);
        let counts = FairSemaphore::new(rules.max_large_requests);
        Arc::new(Self {
            store,
            models,
            mcp,
            quotas,
            rules,
            hub,
            clock,
            leases: Arc::default(),
            sharing: Sharing::default(),
            wakeups: Wakeups::default(),
            tasks: TaskTracker::new(),
            calibration_memory: CalibrationMemory::default(),
            draining: CancellationToken::new(),
            aborting: CancellationToken::new(),
            uploads,
            prompt_memory,
            counts,
            postponed: Postponed::default(),
            postponed_starts: Postponed::default(),
            metrics: telemetry.metrics().clone(),
            traces: telemetry.traces().clone(),
        })
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The instruments of this replica.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Creates the spans of this replica.
    pub fn traces(&self) -> &Traces {
        &self.traces
    }

    /// The live channels of sessions.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// The wall-clock time, for display only.
    pub fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// The leases that this replica holds or may hold.
    pub fn leases(&self) -> &Arc<Leases> {
        &self.leases
    }

    /// The limits of tenants and their usage.
    pub fn quotas(&self) -> &Arc<Quotas> {
        &self.quotas
    }

    /// Settings from the configuration.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Fires when the server shuts down: streams end, and no new work is admitted.
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Reads a session.
    ///
    /// # Errors
    ///
    /// [`Error::SessionNotFound`] if the tenant has no such session.
    pub async fn session(&self, key: &SessionKey) -> Result<Session, Error> {
        self.store.session(key).await?.ok_or_else(|| Error::SessionNotFound(key.session.clone()))
    }

    /// Resolves a model reference.
    ///
    /// # Errors
    ///
    /// [`Error::ModelNotFound`] if no configured provider has the model.
    pub fn model(&self, reference: &str) -> Result<ResolvedModel, Error> {
        self.models.resolve(reference).ok_or_else(|| Error::ModelNotFound(self.models.missing(reference)))
    }

    /// Like [`Engine::model`], for a model that is about to be called. If the context window of a
    /// model on a local server is unknown, the server's models are refreshed first: the model may
    /// not have been loaded when they were listed.
    pub(super) async fn model_to_call(&self, reference: &str, config: &SessionConfig) -> Result<ResolvedModel, Error> {
        let model = self.model(reference)?;
        if model.info.context_window.is_some()
            || !model.provider.is_local()
            || !self.rules.models.discover
            || self.policy(config)?.context.context_window.is_some()
        {
            return Ok(model);
        }
        let asking = model.provider.refresh(self.now(), MIN_MODEL_REFRESH_INTERVAL);
        // If the refresh takes longer, a later step gets the window from the worker's refresh.
        let _ = tokio::time::timeout(MODEL_REFRESH_TIMEOUT, asking).await;
        self.model(reference)
    }

    /// Whether one more turn of the tenant may begin here.
    pub(in crate::turn) fn may_begin(&self, tenant: &TenantId) -> bool {
        self.may_start() && self.check_room(tenant).is_ok()
    }

    /// Whether this replica may run one more turn.
    pub(in crate::turn) fn may_start(&self) -> bool {
        !self.draining.is_cancelled() && self.leases.count() < self.rules.turn.max_running_turns
    }

    /// Refuses a turn if this replica is at its limit of turns, or the tenant at one of its limits.
    pub(super) fn check_room(&self, tenant: &TenantId) -> Result<(), Error> {
        let (all, own) = self.leases.running(tenant);
        self.check_running_limits(tenant, all, own)?;
        Ok(self.quotas.check_turn(tenant)?)
    }

    /// Registers a statement that is about to be sent and that begins a turn, if there is room for
    /// the turn.
    pub(super) fn request_start(&self, key: &SessionKey) -> Result<GrantRequest, Error> {
        let tenant = &key.tenant;
        self.quotas.check_turn(tenant)?;
        let admit = |all, own| self.check_running_limits(tenant, all, own);
        self.leases.request_start(key, admit)
    }

    /// Checks whether a tenant may run one more turn or compaction, given the counts of all running
    /// ones (`all`) and of the tenant's (`own`).
    pub(super) fn check_running_limits(&self, tenant: &TenantId, all: usize, own: usize) -> Result<(), Error> {
        let share = if self.rules.is_shared { own } else { 0 };
        if !has_fair_room(self.rules.turn.max_running_turns, all, share) {
            return Err(Error::Overloaded);
        }
        Ok(self.quotas.check_running(tenant, own)?)
    }

    /// The tenants that cannot begin a turn here now, among those that were recently active.
    pub(super) fn tenants_without_room(&self) -> Vec<TenantId> {
        let mut tenants = self.quotas.tenants();
        tenants.extend(self.leases.running_by_tenant().into_keys());
        tenants.sort_unstable();
        tenants.dedup();
        tenants.retain(|tenant| self.check_room(tenant).is_err());
        tenants
    }

    /// Publishes what tenants use on this replica, and reads what they use on others.
    pub async fn keep_quotas(&self) -> Result<(), Error> {
        let running = self.leases.running_by_tenant();
        self.quotas.refresh(&running).await?;
        self.calibration_memory.forget(&self.quotas.deleted_tenants());
        Ok(())
    }

    /// The limits of a tenant, and its usage.
    pub async fn tenant_state(&self, tenant: &TenantId) -> Result<TenantState, Error> {
        let (_, running) = self.leases.running(tenant);
        Ok(self.quotas.state(tenant, running).await?)
    }

    /// Sets the tenant-specific limits of a tenant, and returns the limits in force.
    pub async fn set_limits(self: &Arc<Self>, tenant: TenantId, limits: TenantLimits) -> Result<TenantLimits, Error> {
        self.supervised(async move |engine| {
            engine.quotas.set_limits(&tenant, limits).await?;
            Ok(engine.quotas.limits(&tenant))
        })
        .await
    }

    /// Measures the stored bytes of tenants that have a storage limit.
    pub async fn measure_storage(&self) -> Result<(), Error> {
        Ok(self.quotas.measure().await?)
    }

    /// Refuses references to unknown models.
    pub(super) fn check_models(&self, references: &[String]) -> Result<(), Error> {
        references.iter().try_for_each(|reference| self.model(reference).map(drop))
    }

    /// Adds the tools that the tenant's MCP servers list to a tool set.
    pub(in crate::turn) async fn resolve_tools(&self, tenant: &TenantId, set: &mut ToolSet) -> Result<(), Error> {
        Ok(self.mcp.resolve(tenant, set).await?)
    }

    /// Refreshes the model lists of all providers.
    pub async fn refresh_models(&self) -> Result<(), Error> {
        if self.rules.models.discover {
            // Less than the interval: two rounds are not exactly one interval apart.
            let age = self.rules.models.refresh_interval / 2;
            self.models.refresh(self.now(), age).await;
        }
        Ok(())
    }

    /// The models that providers list by name, ordered by reference.
    pub fn models(&self) -> Vec<ResolvedModel> {
        self.models.models()
    }

    /// The policy of a session with the session's overrides applied.
    ///
    /// # Errors
    ///
    /// [`Error::PolicyNotFound`] if the configuration no longer has the policy.
    pub fn policy(&self, config: &SessionConfig) -> Result<Policy, Error> {
        let named =
            self.rules.policies.get(&config.policy).ok_or_else(|| Error::PolicyNotFound(config.policy.clone()))?;
        Ok(named.with(&config.overrides))
    }

    /// Like [`Engine::policy`], but falls back to the server's default policy if the session's is
    /// no longer configured.
    pub(super) fn policy_or_default(&self, config: &SessionConfig) -> Result<Policy, Error> {
        let default = || SessionConfig { policy: DEFAULT_POLICY.to_owned(), ..config.clone() };
        self.policy(config).or_else(|_| self.policy(&default()))
    }

    /// The limits in force: those of the turn override those of the session, which override the
    /// server's.
    pub fn limits(&self, config: &SessionConfig, request: &TurnRequest) -> Limits {
        request.limits.over(config.limits.over(self.rules.turn.limits()))
    }

    /// Runs an operation to completion in a task of the server, even if the caller disconnects.
    pub(super) async fn supervised<T: Send + 'static, F>(
        self: &Arc<Self>,
        operation: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        // Boxed first: each scope would otherwise contain the whole future again, too much for a
        // thread's stack.
        let operation = Trace::current().scope(Box::pin(operation(Arc::clone(self))));
        let operation = NewRequest::as_part_of_current(operation);
        joined(self.tasks.spawn(Reach::in_current_scope(operation))).await
    }
}

/// The outcome of a task of the server. A panic becomes [`Error::Internal`].
pub(super) async fn joined<T>(task: JoinHandle<Result<T, Error>>) -> Result<T, Error> {
    task.await.map_err(|error| Error::Internal(format!("a task failed: {error}")))?
}
