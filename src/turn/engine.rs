//! [`Engine`]: the parts of the turn engine, one of each per replica.
//!
//! A function is a method of the part that it needs: [`Prompts`] reads sessions and builds prompts, [`Live`] notifies
//! readers and other replicas, [`Capacity`] admits work, and [`SessionCommands`] changes sessions with these three.
//! [`Engine`] adds what runs turns.

mod capacity;
mod live;
mod prompts;
mod sessions;

pub(in crate::turn) use capacity::{Capacity, joined, supervised};
pub(in crate::turn) use live::Live;
pub(in crate::turn) use prompts::Prompts;
pub(in crate::turn) use sessions::SessionCommands;

use std::sync::Arc;

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    clock::Clock,
    fair::FairSemaphore,
    mcp,
    provider::Registry,
    quota::Quotas,
    store::Store,
    telemetry::{Metrics, Telemetry, Traces},
    turn::{
        error::Error,
        lease::{leases::Leases, postponed::Postponed},
        live::{hub::Hub, sharing::Sharing, wakeups::Wakeups},
        settings::Rules,
    },
};

/// The turn engine of a replica.
#[derive(Debug)]
pub struct Engine {
    pub prompts: Arc<Prompts>,
    pub live: Arc<Live>,
    pub capacity: Arc<Capacity>,
    pub sessions: Arc<SessionCommands>,
    pub(in crate::turn) store: Store,
    pub(in crate::turn) metrics: Metrics,
    pub(in crate::turn) traces: Traces,
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
        let leases = Arc::<Leases>::default();
        let metrics = telemetry.metrics().clone();
        let capacity = Arc::new(Capacity {
            quotas: Arc::clone(&quotas),
            leases: Arc::clone(&leases),
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
            aborting: CancellationToken::new(),
            postponed: Postponed::default(),
            postponed_starts: Postponed::default(),
            max_running_turns: rules.turn.max_running_turns,
            is_shared: rules.is_shared,
        });
        let live = Arc::new(Live {
            store: store.clone(),
            hub,
            sharing: Sharing::default(),
            wakeups: Wakeups::default(),
            leases,
            metrics: metrics.clone(),
            poll_interval: rules.turn.poll_interval,
            has_other_replicas: rules.has_other_replicas,
        });
        let uploads = FairSemaphore::new(rules.blobs.max_uploads);
        let prompts = Arc::new(Prompts {
            store: store.clone(),
            models,
            mcp,
            clock,
            quotas,
            calibration_memory: Arc::default(),
            prompt_memory: FairSemaphore::new(rules.turn.prompt_memory),
            counts: FairSemaphore::new(rules.max_large_requests),
            rules,
        });
        let sessions = Arc::new(SessionCommands {
            store: store.clone(),
            prompts: Arc::clone(&prompts),
            live: Arc::clone(&live),
            capacity: Arc::clone(&capacity),
            metrics: metrics.clone(),
            uploads,
        });
        let traces = telemetry.traces().clone();
        Arc::new(Self { prompts, live, capacity, sessions, store, metrics, traces })
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

    /// Publishes what tenants use on this replica, and reads what they use on others.
    pub async fn keep_quotas(&self) -> Result<(), Error> {
        let running = self.capacity.leases.running_by_tenant();
        self.capacity.quotas.refresh(&running).await?;
        self.prompts.calibration_memory.forget(&self.capacity.quotas.deleted_tenants());
        Ok(())
    }
}
