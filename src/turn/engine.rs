//! The turn engine: everything that turns need, one per replica.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    clock::Clock,
    fair::FairGate,
    mcp,
    model::{
        Limits, SessionConfig, SessionKey, TenantId, TenantLimits, command::TurnRequest,
        config::Policy, quota::has_fair_room,
    },
    provider::{Registry, registry::Resolved},
    quota::{Quotas, TenantState},
    store::{NewRequest, Reach, Store},
    telemetry::{Metrics, Telemetry, Trace, Traces},
    turn::{
        Error,
        context::learn::memory::CalibrationMemory,
        lease::{
            leases::{GrantRequest, Leases},
            postponed::Postponed,
        },
        live::{hub::Hub, sharing::Sharing, wakeups::Wakeups},
        settings::{DEFAULT_POLICY, Rules},
    },
};

/// Longest time, after the drain, for handing turns over and for what calls taught.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// The least time between two questions of turns for the window of a model of one server.
const ASKED_AGAIN: Duration = Duration::from_secs(5);

/// How long a turn waits for one.
const WINDOW_PATIENCE: Duration = Duration::from_secs(2);

/// Everything that turns need; one per replica.
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
    pub(super) uploads: Arc<FairGate>,
    /// Bytes that calls may hold which read whole sessions.
    pub(super) prompt_memory: Arc<FairGate>,
    pub(super) counts: Arc<FairGate>,
    pub(super) postponed: Postponed,
    pub(super) postponed_starts: Postponed,
    pub(super) metrics: Metrics,
    pub(super) traces: Traces,
}

impl Engine {
    /// Joins the parts.
    pub fn new(
        store: Store,
        (models, mcp): (Registry, mcp::Servers),
        quotas: Arc<Quotas>,
        rules: Rules,
        hub: Hub,
        clock: Arc<dyn Clock>,
        telemetry: &Telemetry,
    ) -> Arc<Self> {
        let uploads = FairGate::new(rules.uploads.max_at_once);
        let prompt_memory = FairGate::new(rules.prompt_memory);
        let counts = FairGate::new(rules.counts_at_once);
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

    /// The memory.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What is measured.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What makes spans.
    pub fn traces(&self) -> &Traces {
        &self.traces
    }

    /// What is live.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// The time of day, for display only.
    pub fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// The leases of this replica.
    pub fn leases(&self) -> &Arc<Leases> {
        &self.leases
    }

    /// What tenants may use.
    pub fn quotas(&self) -> &Arc<Quotas> {
        &self.quotas
    }

    /// What the configuration says.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Fires when the server shuts down: streams end, and nothing new begins.
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Lets turns come to a step boundary, for at most `patience`, and hands the rest over. Ends
    /// when nothing runs any more.
    pub async fn drain(&self, patience: Duration) {
        self.draining.cancel();
        self.tasks.close();
        let drained = tokio::time::timeout(patience, self.tasks.wait()).await;
        // A database that gives no answer must not hold the process.
        let end = tokio::time::Instant::now() + LAST_WRITES;
        if drained.is_err() {
            self.aborting.cancel();
            let _ = tokio::time::timeout_at(end, self.tasks.wait()).await;
        }
        // What the last calls taught, which only this replica knows. A count that takes long is given up.
        let counting = self.calibration_memory.counted();
        let _ = tokio::time::timeout_at(end - LAST_WRITES / 2, counting).await;
        match tokio::time::timeout_at(end, self.save_calibrations()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "calibration not saved")
            }
            Err(_) => tracing::warn!("calibration not saved in time"),
        }
    }

    /// The model that a reference names.
    pub fn model(&self, reference: &str) -> Result<Resolved, Error> {
        self.models
            .resolve(reference)
            .ok_or_else(|| Error::ModelNotFound(self.models.missing(reference)))
    }

    /// The same, to be called: a server of one's own is asked for the window of the model where that
    /// is not known. It was not loaded, or is started, when its models were listed.
    pub(super) async fn model_to_call(
        &self,
        reference: &str,
        config: &SessionConfig,
    ) -> Result<Resolved, Error> {
        let model = self.model(reference)?;
        if model.info.context_window.is_some()
            || !model.provider.is_local()
            || self.rules.models_refresh.is_none()
            || self.policy(config)?.context.context_window.is_some()
        {
            return Ok(model);
        }
        let asking = model.provider.refresh(self.now(), ASKED_AGAIN);
        // Where it takes longer, a later step will know from the worker.
        let _ = tokio::time::timeout(WINDOW_PATIENCE, asking).await;
        self.model(reference)
    }

    /// Refuses a turn of a tenant for which there is no room: on this replica, or by its limits.
    pub(super) fn check_room(&self, tenant: &TenantId) -> Result<(), Error> {
        let (all, own) = self.leases.running(tenant);
        self.has_room(tenant, all, own)?;
        Ok(self.quotas.check_turn(tenant)?)
    }

    /// Notes that a statement is about to be sent that begins a turn, for which there has to be room.
    pub(super) fn request_start(&self, key: &SessionKey) -> Result<GrantRequest, Error> {
        let tenant = &key.tenant;
        self.quotas.check_turn(tenant)?;
        let admit = |all, own| self.has_room(tenant, all, own);
        self.leases.request_start(key, admit)
    }

    /// Whether one more turn or compaction of a tenant may run beside these.
    pub(super) fn has_room(&self, tenant: &TenantId, all: usize, own: usize) -> Result<(), Error> {
        let share = if self.rules.is_shared { own } else { 0 };
        if !has_fair_room(self.rules.max_running, all, share) {
            return Err(Error::Overloaded);
        }
        Ok(self.quotas.check_running(tenant, own)?)
    }

    /// The tenants that may begin no turn here now, among those that asked for something lately.
    pub(super) fn tenants_without_room(&self) -> Vec<TenantId> {
        let mut tenants = self.quotas.tenants();
        tenants.extend(self.leases.running_by_tenant().into_keys());
        tenants.sort_unstable();
        tenants.dedup();
        tenants.retain(|tenant| self.check_room(tenant).is_err());
        tenants
    }

    /// Tells other replicas what tenants use here, and reads what they use there.
    pub async fn keep_quotas(&self) -> Result<(), Error> {
        let running = self.leases.running_by_tenant();
        self.quotas.refresh(&running).await?;
        self.calibration_memory
            .forget(&self.quotas.deleted_tenants());
        Ok(())
    }

    /// The limits of a tenant, and what it uses.
    pub async fn tenant_state(&self, tenant: &TenantId) -> Result<TenantState, Error> {
        let (_, running) = self.leases.running(tenant);
        Ok(self.quotas.state(tenant, running).await?)
    }

    /// Sets a tenant's own limits, and returns those in force.
    pub async fn set_limits(
        self: &Arc<Self>,
        tenant: TenantId,
        limits: TenantLimits,
    ) -> Result<TenantLimits, Error> {
        self.supervised(async move |engine| {
            engine.quotas.set_limits(&tenant, limits).await?;
            Ok(engine.quotas.limits(&tenant))
        })
        .await
    }

    /// Measures what tenants with such a limit have stored.
    pub async fn measure_storage(&self) -> Result<(), Error> {
        Ok(self.quotas.measure().await?)
    }

    /// Refuses a reference that names no model.
    pub(super) fn check_models(&self, references: &[String]) -> Result<(), Error> {
        references
            .iter()
            .try_for_each(|reference| self.model(reference).map(drop))
    }

    /// Asks all services for their lists of models.
    pub async fn refresh_models(&self) -> Result<(), Error> {
        if let Some(interval) = self.rules.models_refresh {
            // Less than from one round to the next, which are not exactly as far apart.
            self.models.refresh(self.now(), interval / 2).await;
        }
        Ok(())
    }

    /// The models that providers know by name, in order of their references.
    pub fn models(&self) -> Vec<Resolved> {
        self.models.models()
    }

    /// The policy of a session, with its changes.
    pub fn policy(&self, config: &SessionConfig) -> Result<Policy, Error> {
        let named = self
            .rules
            .policies
            .get(&config.policy)
            .ok_or_else(|| Error::PolicyNotFound(config.policy.clone()))?;
        Ok(named.with(&config.overrides))
    }

    /// The same; where the policy is no longer configured, the server's default.
    pub(super) fn policy_or_default(&self, config: &SessionConfig) -> Result<Policy, Error> {
        let default = || SessionConfig {
            policy: DEFAULT_POLICY.to_owned(),
            ..config.clone()
        };
        self.policy(config).or_else(|_| self.policy(&default()))
    }

    /// The bounds in force: the turn's over the session's over the server's.
    pub fn limits(&self, config: &SessionConfig, request: &TurnRequest) -> Limits {
        request.limits.over(config.limits.over(self.rules.limits))
    }

    /// Does what a caller asked for to its end, also when the caller has left.
    pub(super) async fn supervised<T: Send + 'static, F>(
        self: &Arc<Self>,
        operation: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        // Boxed first: each scope would hold the whole of it again, too much for a thread's stack.
        let operation = Trace::current().scope(Box::pin(operation(Arc::clone(self))));
        let operation = NewRequest::kept(operation);
        joined(self.tasks.spawn(Reach::kept(operation))).await
    }
}

/// The outcome of a task of the server's.
pub(super) async fn joined<T>(task: JoinHandle<Result<T, Error>>) -> Result<T, Error> {
    task.await
        .map_err(|error| Error::Internal(format!("a task ended early: {error}")))?
}
