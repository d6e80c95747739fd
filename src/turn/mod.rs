//! The deed of contextd: joins thinking, memory and voice.
//!
//! A turn is admitted in one statement that also grants the lease ([`execute`]); then it is a supervised task that reads what is
//! committed, asks [`next`] what to do, and does it ([`run`]). When tools are open it ends: whoever answers the last call
//! ([`submit`]), cancels it ([`cancel`]) or finds it overdue becomes its next owner. No state changes in a request's future: what
//! a caller asks for runs to its end also when the caller has left.

pub mod answer;
mod attendance;
mod batch;
pub mod cancel;
pub mod compact;
pub mod count;
pub mod delete;
pub mod error;
pub mod execute;
pub mod following;
pub mod fork;
mod gather;
pub mod hub;
pub mod import;
mod learn;
pub mod leases;
mod media;
pub mod next;
mod prepare;
mod prune;
pub mod queue;
mod reasoning;
mod record;
pub mod recover;
pub mod render;
pub mod retention;
pub mod retry;
pub mod run;
pub mod sessions;
pub mod share;
mod size;
pub mod stats;
pub mod submit;
pub mod update;
pub mod upload;
mod verdict;
pub mod wakeups;
mod wishes;
mod written;

pub use error::Error;
pub use hub::Hub;
pub use retention::Retention;
pub use upload::UploadBounds;

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    clock::Clock,
    model::{Limits, SessionConfig, SessionKey, command::TurnRequest, config::Policy},
    provider::{Registry, registry::Resolved},
    store::Store,
};
use learn::Lessons;
use leases::Leases;
use retry::Retries;

/// What the server's configuration says about turns.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Model of sessions that name none.
    pub default_model: String,
    /// Policies by name; `default` is one of them.
    pub policies: BTreeMap<String, Policy>,
    /// Bounds of turns that set none.
    pub limits: Limits,
    /// Owners that may fail on one step before the turn is given up.
    pub max_takeovers: u32,
    /// Turns that run on this replica at once.
    pub max_running: usize,
    /// Deltas within this time go out together.
    pub delta_flush: Duration,
    /// Bytes of one answer of a model.
    pub max_answer_bytes: usize,
    /// How failed calls of models are repeated.
    pub retries: Retries,
    /// How often text on its way is shared with other replicas; none: there are no others.
    pub share_interval: Option<Duration>,
    /// Within what time the database is asked for what nobody told.
    pub poll_interval: Duration,
    /// Bounds of uploads.
    pub uploads: UploadBounds,
    /// Bytes of media in one prompt.
    pub max_prompt_media_bytes: u64,
    /// For how long what is kept.
    pub retention: Retention,
}

/// Name of the policy of sessions that name none.
pub const DEFAULT_POLICY: &str = "default";

/// Everything that turns need; one per replica.
#[derive(Debug)]
pub struct Engine {
    store: Store,
    models: Registry,
    rules: Rules,
    hub: Hub,
    clock: Arc<dyn Clock>,
    leases: Arc<Leases>,
    sharing: share::Sharing,
    wakeups: wakeups::Wakeups,
    tasks: TaskTracker,
    lessons: Lessons,
    draining: CancellationToken,
    aborting: CancellationToken,
    uploads: Semaphore,
    renderings: Semaphore,
    stuck: following::Stuck,
    postponed: recover::Postponed,
}

impl Engine {
    /// Joins the parts.
    pub fn new(store: Store, models: Registry, rules: Rules, hub: Hub, clock: Arc<dyn Clock>) -> Arc<Self> {
        let uploads = Semaphore::new(rules.uploads.max_at_once);
        Arc::new(Self {
            store,
            models,
            rules,
            hub,
            clock,
            leases: Arc::default(),
            sharing: share::Sharing::default(),
            wakeups: wakeups::Wakeups::default(),
            tasks: TaskTracker::new(),
            lessons: Lessons::default(),
            draining: CancellationToken::new(),
            aborting: CancellationToken::new(),
            uploads,
            renderings: Semaphore::new(render::AT_ONCE),
            stuck: following::Stuck::default(),
            postponed: recover::Postponed::default(),
        })
    }

    /// The memory.
    pub fn store(&self) -> &Store {
        &self.store
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
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// What the configuration says.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Fires when the server shuts down: streams end, and nothing new begins.
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Lets turns come to a step boundary, for at most `patience`, and hands the rest over. Ends when nothing runs any more.
    pub async fn drain(&self, patience: Duration) {
        self.draining.cancel();
        self.tasks.close();
        if tokio::time::timeout(patience, self.tasks.wait()).await.is_err() {
            self.aborting.cancel();
            // Handing over is one statement per turn; a database that gives no answer must not hold the process.
            let _ = tokio::time::timeout(Duration::from_secs(5), self.tasks.wait()).await;
        }
        // What the last calls taught, which nobody else knows.
        match tokio::time::timeout(Duration::from_secs(5), self.keep_lessons()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "what calls taught about sizes was not written"),
            Err(_) => tracing::warn!("what calls taught about sizes was not written in time"),
        }
    }

    /// The model that a reference names.
    pub fn model(&self, reference: &str) -> Result<Resolved, Error> {
        self.models.resolve(reference).ok_or_else(|| Error::ModelNotFound(reference.to_owned()))
    }

    /// The models that providers know by name, in order of their references.
    pub fn models(&self) -> Vec<Resolved> {
        self.models.models()
    }

    /// The policy of a session, with its changes.
    pub fn policy(&self, config: &SessionConfig) -> Result<Policy, Error> {
        let named =
            self.rules.policies.get(&config.policy).ok_or_else(|| Error::PolicyNotFound(config.policy.clone()))?;
        Ok(named.with(&config.overrides))
    }

    /// The same; where the policy is no longer configured, the server's default.
    fn policy_or_default(&self, config: &SessionConfig) -> Result<Policy, Error> {
        let default = || SessionConfig { policy: DEFAULT_POLICY.to_owned(), ..config.clone() };
        self.policy(config).or_else(|_| self.policy(&default()))
    }

    /// The bounds in force: the turn's over the session's over the server's.
    pub fn limits(&self, config: &SessionConfig, request: &TurnRequest) -> Limits {
        request.limits.over(config.limits.over(self.rules.limits))
    }

    /// Does what a caller asked for to its end, also when the caller has left.
    async fn supervised<T: Send + 'static>(
        &self,
        deed: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.tasks.spawn(deed).await.map_err(|error| Error::Internal(format!("a task ended early: {error}")))?
    }

    /// Runs a turn that this replica was just granted.
    fn start(self: &Arc<Self>, key: SessionKey, grant: crate::store::grant::Grant, sent: std::time::Instant) {
        let lease = self.leases.hold(&key, &grant.turn, grant.fence.epoch, sent);
        let channel = self.hub.enter(&key);
        channel.advance(grant.last_seq);
        // The statement that granted it wrote events, and readers on other replicas may wait for them.
        self.wake(wakeups::Wakeup::News(key.clone()));
        let running = Running { engine: Arc::clone(self), key, lease };
        self.tasks.spawn(async move {
            Box::pin(run::run(&running.engine, &running.key, &grant, &running.lease, &channel)).await;
        });
    }
}

/// A turn that runs here. When its task ends, by a panic too, nothing keeps its lease alive any more.
struct Running {
    engine: Arc<Engine>,
    key: SessionKey,
    lease: Arc<leases::Lease>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.engine.leases.forget(&self.key, &self.lease);
    }
}
