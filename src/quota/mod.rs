//! How much tenants may use: their limits, and how much of them is used, on one replica.
//!
//! Nothing here asks the database on behalf of a request. Limits, and what other replicas use, are
//! read every few seconds, so that a limit that several replicas share can be exceeded by what they
//! admit meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{
    model::{Exceeded, Quota, TenantId, TenantLimits, quota::Allowance},
    store::{self, Store, quota::Used},
};

/// How often limits and use are read from the database, and this replica's use is reported to it. A
/// changed limit is promised within 5 s.
pub const REFRESH: Duration = Duration::from_secs(2);
/// How often it is looked whether a tenant's storage is to be measured.
pub const MEASURE: Duration = Duration::from_secs(5);
/// How old the measure of a tenant's storage gets.
const MEASURED_WITHIN: Duration = Duration::from_secs(30);
/// Requests of so long a time may come at once.
const REQUEST_BURST: Duration = Duration::from_secs(1);
/// Tokens of so long a time may be spent at once.
const TOKEN_BURST: Duration = Duration::from_mins(1);
/// When to come again where a running turn has to end first.
const RETRY_TURN: Duration = Duration::from_secs(1);
/// After so long without a request a tenant's use is no longer followed.
const FORGET: Duration = Duration::from_mins(10);

/// What a tenant has used lately, as far as it is limited.
#[derive(Debug)]
struct Use {
    requests: Allowance,
    tokens: Allowance,
    /// What the tokens that were spent here cost, since the last report.
    unreported: Duration,
    running_elsewhere: u64,
    stored: Option<u64>,
    asked: Instant,
}

/// A tenant's limits and what it uses of them, as one replica knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantState {
    /// Its own limits.
    pub own: TenantLimits,
    /// The limits in force.
    pub in_force: TenantLimits,
    /// What it uses.
    pub used: TenantUse,
}

/// What a tenant uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantUse {
    /// Turns that run, here and elsewhere.
    pub running_turns: u64,
    /// How long it takes until the tokens that were spent are paid for. `None`: they are not limited.
    pub tokens_owed: Option<Duration>,
    /// Bytes that are stored. `None`: they are not limited, or not measured yet.
    pub stored_bytes: Option<u64>,
}

/// The limits of tenants and what they use, on one replica.
#[derive(Debug)]
pub struct Quotas {
    store: Store,
    defaults: TenantLimits,
    /// The tenants' own limits, and their version once they were read.
    own: RwLock<Arc<HashMap<TenantId, TenantLimits>>>,
    /// The tenants that are being deleted, which may use nothing.
    deleted: RwLock<Arc<BTreeSet<TenantId>>>,
    version: tokio::sync::Mutex<Option<i64>>,
    used: Mutex<HashMap<TenantId, Use>>,
    /// Fires when limits or use may allow what they did not.
    changed: Notify,
    origin: Instant,
}

impl Quotas {
    /// With these limits for tenants that have none of their own.
    pub fn new(store: Store, defaults: TenantLimits) -> Self {
        Self {
            store,
            defaults,
            own: RwLock::default(),
            deleted: RwLock::default(),
            version: tokio::sync::Mutex::default(),
            used: Mutex::default(),
            changed: Notify::new(),
            origin: Instant::now(),
        }
    }

    /// The limits of a tenant.
    pub fn limits(&self, tenant: &TenantId) -> TenantLimits {
        self.own_limits(tenant).over(self.defaults)
    }

    /// Those that are its own.
    fn own_limits(&self, tenant: &TenantId) -> TenantLimits {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        own.get(tenant).copied().unwrap_or_default()
    }

    /// Whether a tenant is being deleted.
    pub fn is_deleted(&self, tenant: &TenantId) -> bool {
        self.deleted_tenants().contains(tenant)
    }

    /// The tenants that are being deleted.
    pub fn deleted_tenants(&self) -> Arc<BTreeSet<TenantId>> {
        Arc::clone(&self.deleted.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The limits of a tenant and what it uses, of which so many turns run here.
    pub async fn state(
        &self,
        tenant: &TenantId,
        running: usize,
    ) -> Result<TenantState, store::Error> {
        self.read_limits().await?;
        let in_force = self.limits(tenant);
        let found = self.store.tenant_use(&[tenant.as_str()]).await?;
        let found = found.get(tenant).copied().unwrap_or_default();
        let used = TenantUse {
            running_turns: running as u64 + found.running_elsewhere,
            tokens_owed: in_force.tokens_per_minute.map(|_| {
                let unreported = self.lock().get(tenant).map(|used| used.unreported);
                found
                    .tokens_owed
                    .saturating_add(unreported.unwrap_or_default())
            }),
            stored_bytes: in_force.stored_bytes.and(found.stored_bytes),
        };
        Ok(TenantState {
            own: self.own_limits(tenant),
            in_force,
            used,
        })
    }

    /// Takes one request of a tenant.
    pub fn request(&self, tenant: &TenantId) -> Result<(), Exceeded> {
        let Some(limit) = self.limits(tenant).requests_per_second else {
            return Ok(());
        };
        let exceeded = |retry_after| Exceeded {
            quota: Quota::RequestsPerSecond,
            limit,
            retry_after,
        };
        let cost = cost(1, limit, REQUEST_BURST).ok_or_else(|| exceeded(None))?;
        let taken = self.with(tenant, |used, now| {
            used.requests.take(now, cost, REQUEST_BURST)
        });
        taken.map_err(|wait| exceeded(Some(wait)))
    }

    /// Whether a tenant that runs so many turns here may begin one more.
    pub fn check_turn(&self, tenant: &TenantId, running: usize) -> Result<(), Exceeded> {
        self.check_storage(tenant)?;
        if let Some(limit) = self.limits(tenant).running_turns {
            let elsewhere = self.with(tenant, |used, _| used.running_elsewhere);
            if running as u64 + elsewhere >= limit {
                return Err(Exceeded {
                    quota: Quota::RunningTurns,
                    limit,
                    retry_after: (limit > 0).then_some(RETRY_TURN),
                });
            }
        }
        self.check_tokens(tenant)
    }

    /// Whether a tenant may have a model called.
    pub fn check_tokens(&self, tenant: &TenantId) -> Result<(), Exceeded> {
        let Some(limit) = self.limits(tenant).tokens_per_minute else {
            return Ok(());
        };
        let retry_after = self.token_wait(tenant);
        if limit > 0 && retry_after.is_none() {
            return Ok(());
        }
        Err(Exceeded {
            quota: Quota::TokensPerMinute,
            limit,
            retry_after: retry_after.filter(|_| limit > 0),
        })
    }

    /// Whether a tenant may store more.
    pub fn check_storage(&self, tenant: &TenantId) -> Result<(), Exceeded> {
        let Some(limit) = self.limits(tenant).stored_bytes else {
            return Ok(());
        };
        let stored = self.with(tenant, |used, _| used.stored);
        if limit > 0 && stored.is_none_or(|stored| stored < limit) {
            return Ok(());
        }
        Err(Exceeded {
            quota: Quota::StoredBytes,
            limit,
            retry_after: None,
        })
    }

    /// Notes that a tenant stored so much, until it is measured again.
    pub fn stored(&self, tenant: &TenantId, bytes: u64) {
        if self.limits(tenant).stored_bytes.is_some() {
            self.with(tenant, |used, _| {
                used.stored = used.stored.map(|stored| stored.saturating_add(bytes));
            });
        }
    }

    /// Notes tokens that a call of a model took.
    pub fn spent(&self, tenant: &TenantId, tokens: u64) {
        if self.is_deleted(tenant) {
            return;
        }
        let limit = self.limits(tenant).tokens_per_minute;
        let Some(cost) = limit.and_then(|limit| cost(tokens, limit, TOKEN_BURST)) else {
            return;
        };
        self.with(tenant, |used, now| {
            used.tokens.owe(now, cost);
            used.unreported = used.unreported.saturating_add(cost);
        });
    }

    /// How long a tenant has to wait before it may call a model again.
    pub fn token_wait(&self, tenant: &TenantId) -> Option<Duration> {
        self.limits(tenant).tokens_per_minute?;
        let wait = self.with(tenant, |used, now| used.tokens.wait(now, TOKEN_BURST));
        (!wait.is_zero()).then_some(wait)
    }

    /// Waits until a tenant may call a model again.
    pub async fn tokens_available(&self, tenant: &TenantId) {
        loop {
            let changed = self.changed.notified();
            let Some(wait) = self.token_wait(tenant) else {
                return;
            };
            tokio::select! {
                () = changed => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Reads limits that changed, and tells and reads what tenants use, of which so many turns run
    /// here.
    pub async fn refresh(&self, running: &BTreeMap<TenantId, u64>) -> Result<(), store::Error> {
        self.read_limits().await?;
        let shared = self.followed(|limits| {
            limits.running_turns.is_some()
                || limits.tokens_per_minute.is_some()
                || limits.stored_bytes.is_some()
        });
        if shared.is_empty() {
            return Ok(());
        }
        let is_limited = |tenant: &&TenantId| {
            self.limits(tenant).running_turns.is_some() && !self.is_deleted(tenant)
        };
        let running = running.keys().filter(is_limited).map(|tenant| {
            let turns = running.get(tenant).copied().unwrap_or_default();
            (tenant.clone(), turns)
        });
        let spent = self.take_unreported();
        let told = self.store.report_use(&running.collect(), &spent).await;
        if let Err(error) = told {
            self.put_back(spent);
            return Err(error);
        }
        let tenants: Vec<&str> = shared.iter().map(TenantId::as_str).collect();
        for (tenant, found) in self.store.tenant_use(&tenants).await? {
            self.take_in(&tenant, found);
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Measures what tenants with such a limit have stored, if no replica did lately.
    pub async fn measure(&self) -> Result<(), store::Error> {
        let limited = self.followed(|limits| limits.stored_bytes.is_some());
        if limited.is_empty() {
            return Ok(());
        }
        let tenants: Vec<&str> = limited.iter().map(TenantId::as_str).collect();
        let claimed = self
            .store
            .claim_measuring(&tenants, MEASURED_WITHIN)
            .await?;
        for tenant in claimed {
            self.store.measure_storage(&tenant).await?;
        }
        Ok(())
    }

    /// Sets a tenant's own limits: in force here when it returns. Tokens that were owed are forgiven.
    pub async fn set_limits(
        &self,
        tenant: &TenantId,
        limits: TenantLimits,
    ) -> Result<(), store::Error> {
        self.store.set_tenant_limits(tenant, &limits).await?;
        if let Some(used) = self.lock().get_mut(tenant) {
            used.tokens = Allowance::default();
        }
        self.read_limits().await
    }

    /// Reads the limits of tenants, and which are being deleted, if either has changed.
    pub async fn read_limits(&self) -> Result<(), store::Error> {
        let mut known = self.version.lock().await;
        // The version is read first: a change that comes between is seen once more.
        let version = self.store.limits_version().await?;
        if *known == Some(version) {
            return Ok(());
        }
        let own: HashMap<_, _> = self.store.tenant_limits().await?.into_iter().collect();
        let deleted: BTreeSet<_> = self.store.erasures().await?.into_iter().collect();
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(own);
        self.lock().retain(|tenant, _| !deleted.contains(tenant));
        *self.deleted.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(deleted);
        *known = Some(version);
        self.changed.notify_waiters();
        Ok(())
    }

    /// The tenants that asked lately for something that is limited.
    pub fn tenants(&self) -> Vec<TenantId> {
        self.lock().keys().cloned().collect()
    }

    /// The tenants that asked for something lately and have such limits. Others are forgotten.
    fn followed(&self, has: impl Fn(&TenantLimits) -> bool) -> Vec<TenantId> {
        let mut used = self.lock();
        let deleted = self.deleted_tenants();
        used.retain(|tenant, used| used.asked.elapsed() < FORGET && !deleted.contains(tenant));
        let tenants: Vec<TenantId> = used.keys().cloned().collect();
        drop(used);
        let limited = |tenant: &TenantId| has(&self.limits(tenant));
        tenants.into_iter().filter(limited).collect()
    }

    fn take_unreported(&self) -> BTreeMap<TenantId, Duration> {
        let mut used = self.lock();
        let spenders = used
            .iter_mut()
            .filter(|(_, used)| !used.unreported.is_zero());
        spenders
            .map(|(tenant, used)| (tenant.clone(), std::mem::take(&mut used.unreported)))
            .collect()
    }

    fn put_back(&self, spent: BTreeMap<TenantId, Duration>) {
        for (tenant, cost) in spent {
            self.with(&tenant, |used, _| {
                used.unreported = used.unreported.saturating_add(cost);
            });
        }
    }

    fn take_in(&self, tenant: &TenantId, found: Used) {
        let now = self.origin.elapsed();
        if let Some(used) = self.lock().get_mut(tenant) {
            used.running_elsewhere = found.running_elsewhere;
            // What was spent while the answer was on its way is not in it.
            used.tokens
                .set_owed(now, found.tokens_owed.saturating_add(used.unreported));
            used.stored = found.stored_bytes;
        }
    }

    /// Does something with what is known of a tenant's use, at this moment.
    fn with<T>(&self, tenant: &TenantId, act: impl FnOnce(&mut Use, Duration) -> T) -> T {
        let mut all = self.lock();
        let used = all.entry(tenant.clone()).or_insert_with(|| Use {
            requests: Allowance::default(),
            tokens: Allowance::default(),
            unreported: Duration::ZERO,
            running_elsewhere: 0,
            stored: None,
            asked: Instant::now(),
        });
        used.asked = Instant::now();
        act(used, self.origin.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Use>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long it takes until so many are paid for, at so many in that time. `None` at none.
fn cost(many: u64, limit: u64, time: Duration) -> Option<Duration> {
    let seconds = time.as_secs_f64() * many as f64 / limit as f64;
    (limit > 0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_one_is_the_time_that_its_limit_gives_it() {
        let second = Duration::from_secs(1);
        let check = |many, limit, time, expected| assert_eq!(cost(many, limit, time), expected);
        check(1, 1, second, Some(second));
        check(1, 1_000, second, Some(Duration::from_millis(1)));
        check(
            600,
            60,
            Duration::from_mins(1),
            Some(Duration::from_mins(10)),
        );
        check(0, 60, second, Some(Duration::ZERO));
        check(1, 0, second, None);
    }
}
