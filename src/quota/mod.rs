//! Tenant quotas on one replica: the limits and the current use.
//!
//! Limits, and the use of other replicas, are read from the database every few seconds, and before the first request of
//! a tenant that is new to this replica. No other function here queries the database for a request. Therefore a limit
//! shared by several replicas can be exceeded by requests that they admit between two reads.

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
    model::{Exceeded, Quota, TenantId, TenantLimits, quota::RateLimiter},
    store::{self, Store, admitted::LastRead, quota::Used},
};

/// Interval at which limits and use are read from the database and this replica's use is reported. A changed limit must
/// be in force within 5 s.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which the replica checks for tenants whose storage must be measured.
pub const MEASURE_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum age of a storage measurement.
const MAX_MEASUREMENT_AGE: Duration = Duration::from_secs(30);
/// Request burst, as the time in which the rate limit allows that many requests.
const REQUEST_BURST: Duration = Duration::from_secs(1);
/// Token burst, as the time in which the rate limit allows that many tokens.
const TOKEN_BURST: Duration = Duration::from_mins(1);
/// Suggested retry delay when a running turn must end first.
const RETRY_TURN: Duration = Duration::from_secs(1);
/// A tenant's use is dropped from memory after this time without a request.
const IDLE_TENANT_TIMEOUT: Duration = Duration::from_mins(10);

/// A tenant's recent use of its limits.
#[derive(Debug)]
struct Use {
    requests: RateLimiter,
    tokens: RateLimiter,
    /// Expected cost of the model calls in progress on this replica.
    reserved: Duration,
    /// Expected cost of the model calls in progress on other replicas.
    reserved_elsewhere: Duration,
    /// Cost of tokens spent on this replica since the last report.
    unreported: Duration,
    running_elsewhere: u64,
    /// Stored bytes according to the database. Bytes this replica wrote since then are counted by its store.
    stored: u64,
    /// Whether use by other replicas and past use were read.
    is_known: bool,
    asked: Instant,
}

impl Use {
    /// Time until the owed and reserved tokens are within one burst.
    fn token_wait(&self, now: Duration) -> Duration {
        let reserved = self.reserved.saturating_add(self.reserved_elsewhere);
        let owed = self.tokens.owed(now).saturating_add(reserved);
        owed.saturating_sub(TOKEN_BURST)
    }
}

/// Reservation of tokens for a model call. When it is dropped, the tokens actually used are charged instead.
#[derive(Debug)]
pub struct TokenReservation {
    quotas: Arc<Quotas>,
    tenant: TenantId,
    reserved: Duration,
    charged: u64,
}

impl TokenReservation {
    /// Sets the number of tokens to charge when the call ends, as known so far.
    pub fn charge(&mut self, tokens: u64) {
        self.charged = tokens;
    }
}

impl Drop for TokenReservation {
    fn drop(&mut self) {
        self.quotas.charge(&self.tenant, self.reserved, self.charged);
    }
}

/// A tenant's limits and its use of them, as known to one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantState {
    /// The tenant's own limits, without the defaults.
    pub own: TenantLimits,
    /// The effective limits: the tenant's own limits over the defaults.
    pub in_force: TenantLimits,
    pub used: TenantUse,
}

/// A tenant's use of its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantUse {
    /// Running turns on all replicas.
    pub running_turns: u64,
    /// Time until a model may be called again; zero while the spent tokens are within the limit. `None` if tokens are
    /// not limited.
    pub tokens_owed: Option<Duration>,
    /// Stored bytes. `None` if storage is not limited or was not measured yet.
    pub stored_bytes: Option<u64>,
}

/// State of the limits that were read.
#[derive(Debug, Default)]
struct Known {
    /// Version of the limits. `None` if they were not read yet.
    version: Option<i64>,
    /// When the newest read began.
    read_at: Option<Instant>,
}

/// Limits and use of all tenants on one replica.
#[derive(Debug)]
pub struct Quotas {
    store: Store,
    defaults: TenantLimits,
    /// Limits set per tenant; other tenants have the defaults.
    own: RwLock<Arc<HashMap<TenantId, TenantLimits>>>,
    /// Tenants that are being deleted. They may not use anything.
    deleted: RwLock<Arc<BTreeSet<TenantId>>>,
    known: tokio::sync::Mutex<Known>,
    /// When limits and deletions were last read.
    read: LastRead,
    used: Mutex<HashMap<TenantId, Use>>,
    /// Notified when limits or use change, so that waiting calls check again.
    changed: Notify,
    origin: Instant,
}

impl Quotas {
    /// Creates the quotas. Tenants without their own limits have `defaults`.
    pub fn new(store: Store, defaults: TenantLimits) -> Self {
        Self {
            store,
            defaults,
            own: RwLock::default(),
            deleted: RwLock::default(),
            known: tokio::sync::Mutex::default(),
            read: LastRead::default(),
            used: Mutex::default(),
            changed: Notify::new(),
            origin: Instant::now(),
        }
    }

    /// Returns the effective limits of a tenant.
    pub fn limits(&self, tenant: &TenantId) -> TenantLimits {
        self.own_limits(tenant).over(self.defaults)
    }

    /// The limits that are set for this tenant, without the defaults.
    fn own_limits(&self, tenant: &TenantId) -> TenantLimits {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        own.get(tenant).copied().unwrap_or_default()
    }

    /// Whether a tenant is being deleted.
    pub fn is_deleted(&self, tenant: &TenantId) -> bool {
        self.deleted_tenants().contains(tenant)
    }

    /// Returns the tenants that are being deleted.
    pub fn deleted_tenants(&self) -> Arc<BTreeSet<TenantId>> {
        Arc::clone(&self.deleted.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns when limits and deletions were last read.
    pub fn last_read(&self) -> &LastRead {
        &self.read
    }

    /// Reads the limits of a tenant and its use from the database. `running` is its number of running turns on this
    /// replica.
    pub async fn state(&self, tenant: &TenantId, running: usize) -> Result<TenantState, store::Error> {
        self.read_limits().await?;
        let in_force = self.limits(tenant);
        let found = self.store.tenant_use(&[tenant.as_str()]).await?;
        let found = found.get(tenant).copied().unwrap_or_default();
        let used = TenantUse {
            running_turns: running as u64 + found.running_elsewhere,
            tokens_owed: in_force.tokens_per_minute.map(|_| {
                let elsewhere = found.tokens_owed.saturating_sub(TOKEN_BURST);
                self.known_wait(tenant).unwrap_or(elsewhere)
            }),
            stored_bytes: in_force.stored_bytes.and(found.stored_bytes).map(|stored| {
                let unreported = self.store.written().of(tenant);
                stored.saturating_add_signed(unreported)
            }),
        };
        Ok(TenantState { own: self.own_limits(tenant), in_force, used })
    }

    /// Counts one request of a tenant against its rate limit, or returns the limit that it exceeds.
    pub fn request(&self, tenant: &TenantId) -> Result<(), Exceeded> {
        let Some(limit) = self.limits(tenant).requests_per_second else {
            return Ok(());
        };
        let exceeded = |retry_after| Exceeded { quota: Quota::RequestsPerSecond, limit, retry_after };
        let cost = cost(1, limit, REQUEST_BURST).ok_or_else(|| exceeded(None))?;
        let taken = self.with(tenant, |used, now| used.requests.take(now, cost, REQUEST_BURST));
        taken.map_err(|wait| exceeded(Some(wait)))
    }

    /// Checks the storage and token limits before a turn starts.
    pub fn check_turn(&self, tenant: &TenantId) -> Result<(), Exceeded> {
        self.check_storage(tenant)?;
        self.check_tokens(tenant)
    }

    /// Checks whether a tenant with `running` turns and compactions on this replica may start another one.
    pub fn check_running(&self, tenant: &TenantId, running: usize) -> Result<(), Exceeded> {
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
        Ok(())
    }

    /// Checks whether a tenant may call a model.
    pub fn check_tokens(&self, tenant: &TenantId) -> Result<(), Exceeded> {
        let Some(limit) = self.limits(tenant).tokens_per_minute else {
            return Ok(());
        };
        let retry_after = self.token_wait(tenant);
        if limit > 0 && retry_after.is_none() {
            return Ok(());
        }
        Err(Exceeded { quota: Quota::TokensPerMinute, limit, retry_after: retry_after.filter(|_| limit > 0) })
    }

    /// Checks whether a tenant may store more.
    pub fn check_storage(&self, tenant: &TenantId) -> Result<(), Exceeded> {
        self.check_storage_for(tenant, 0)
    }

    /// Checks whether a tenant may store `more` bytes and at least one byte after them.
    pub fn check_storage_for(&self, tenant: &TenantId, more: u64) -> Result<(), Exceeded> {
        let Some(limit) = self.limits(tenant).stored_bytes else {
            return Ok(());
        };
        self.store.written().follow(tenant);
        let stored = self.with(tenant, |used, _| used.stored);
        let stored = stored.saturating_add_signed(self.store.written().of(tenant));
        if stored.saturating_add(more) < limit {
            return Ok(());
        }
        Err(Exceeded { quota: Quota::StoredBytes, limit, retry_after: None })
    }

    /// Subtracts bytes that were counted when they were written and have been removed since.
    pub fn removed(&self, tenant: &TenantId, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.store.written().add(tenant, -bytes);
    }

    /// Adds bytes that the database copied.
    pub fn copied(&self, tenant: &TenantId, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.store.written().add(tenant, bytes);
    }

    /// Reads a tenant's use on other replicas and its past use when this replica sees the tenant for the first time.
    /// Without it the limits would cover only this replica's use until the next refresh.
    pub async fn load_use(&self, tenant: &TenantId) -> Result<(), store::Error> {
        if !is_shared(&self.limits(tenant)) || self.with(tenant, |used, _| used.is_known) {
            return Ok(());
        }
        self.store.written().follow(tenant);
        for (tenant, found) in self.store.tenant_use(&[tenant.as_str()]).await? {
            self.take_in(&tenant, found);
        }
        Ok(())
    }

    /// Reserves the maximum tokens of a model call for its duration. Returns the time to wait if used and reserved
    /// tokens do not allow it now. `input` is charged when the reservation is dropped, unless
    /// [`TokenReservation::charge`] sets another number.
    pub fn reserve(
        self: &Arc<Self>,
        tenant: &TenantId,
        input: u32,
        most_output: u32,
    ) -> Result<TokenReservation, Duration> {
        let most = u64::from(input) + u64::from(most_output);
        let limit = self.limits(tenant).tokens_per_minute;
        let reserved = limit.and_then(|limit| cost(most, limit, TOKEN_BURST));
        if let Some(cost) = reserved {
            self.with(tenant, |used, now| {
                let wait = used.token_wait(now);
                if !wait.is_zero() {
                    return Err(wait);
                }
                used.reserved = used.reserved.saturating_add(cost);
                Ok(())
            })?;
        }
        Ok(TokenReservation {
            quotas: Arc::clone(self),
            tenant: tenant.clone(),
            reserved: reserved.unwrap_or_default(),
            charged: u64::from(input),
        })
    }

    /// Like [`Quotas::reserve`], but waits until the tokens are available.
    pub async fn reserve_when_available(
        self: &Arc<Self>,
        tenant: &TenantId,
        input: u32,
        most_output: u32,
    ) -> TokenReservation {
        loop {
            match self.reserve(tenant, input, most_output) {
                Ok(reservation) => return reservation,
                Err(_) => self.wait_for_tokens(tenant).await,
            }
        }
    }

    /// Replaces a reservation by the tokens that were used.
    fn charge(&self, tenant: &TenantId, reserved: Duration, tokens: u64) {
        if self.is_deleted(tenant) {
            return;
        }
        let limit = self.limits(tenant).tokens_per_minute;
        let used = limit.and_then(|limit| cost(tokens, limit, TOKEN_BURST));
        if used.is_none() && reserved.is_zero() {
            return;
        }
        let cost = used.unwrap_or_default();
        self.with(tenant, |used, now| {
            used.reserved = used.reserved.saturating_sub(reserved);
            used.tokens.owe(now, cost);
            used.unreported = used.unreported.saturating_add(cost);
        });
        self.changed.notify_waiters();
    }

    /// Returns how long a tenant must wait before it may call a model again, or `None` if it need not wait.
    pub fn token_wait(&self, tenant: &TenantId) -> Option<Duration> {
        self.limits(tenant).tokens_per_minute?;
        let wait = self.with(tenant, |used, now| used.token_wait(now));
        (!wait.is_zero()).then_some(wait)
    }

    /// The wait that this replica enforces. Returns `None` if this replica does not know the tenant's use.
    fn known_wait(&self, tenant: &TenantId) -> Option<Duration> {
        let now = self.origin.elapsed();
        let all = self.lock();
        let used = all.get(tenant).filter(|used| used.is_known)?;
        Some(used.token_wait(now))
    }

    /// Waits until a tenant may call a model again.
    pub async fn wait_for_tokens(&self, tenant: &TenantId) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let Some(wait) = self.token_wait(tenant) else {
                return;
            };
            tokio::select! {
                () = changed => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Reads changed limits, reports this replica's use and reads the use of other replicas. `running` has the number
    /// of running turns per tenant on this replica.
    pub async fn refresh(&self, running: &BTreeMap<TenantId, u64>) -> Result<(), store::Error> {
        self.read_limits().await?;
        let shared = self.followed(is_shared);
        if shared.is_empty() {
            return Ok(());
        }
        self.report(running).await?;
        let tenants: Vec<&str> = shared.iter().map(TenantId::as_str).collect();
        for (tenant, found) in self.store.tenant_use(&tenants).await? {
            self.take_in(&tenant, found);
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Reports this replica's use, for the other replicas.
    async fn report(&self, running: &BTreeMap<TenantId, u64>) -> Result<(), store::Error> {
        let is_limited = |tenant: &&TenantId| self.limits(tenant).running_turns.is_some() && !self.is_deleted(tenant);
        let mut here: BTreeMap<TenantId, (u64, Duration)> = running
            .keys()
            .filter(is_limited)
            .map(|tenant| {
                let turns = running.get(tenant).copied().unwrap_or_default();
                (tenant.clone(), (turns, Duration::ZERO))
            })
            .collect();
        for (tenant, reserved) in self.reservations() {
            here.entry(tenant).or_default().1 = reserved;
        }
        let spent = self.take_unreported();
        let known_at = self.read.at();
        let told = self.store.report_use(known_at, &here, &spent).await;
        if let Err(error) = told {
            self.put_back(spent);
            return Err(error);
        }
        let written = self.store.written();
        let unreported = written.unreported();
        if !unreported.is_empty() {
            self.store.report_written(known_at, &unreported).await?;
            for (tenant, bytes) in &unreported {
                written.add(tenant, -bytes);
                // Counted here until the next read from the database includes it.
                self.with(tenant, |used, _| used.stored = used.stored.saturating_add_signed(*bytes));
            }
        }
        Ok(())
    }

    /// Measures the storage of tenants with a storage limit, if no replica measured it recently. A failure for one
    /// tenant does not stop the others; the first error is returned.
    pub async fn measure(&self) -> Result<(), store::Error> {
        let known_at = self.read.at();
        let limited = self.followed(|limits| limits.stored_bytes.is_some());
        if limited.is_empty() {
            return Ok(());
        }
        let tenants: Vec<&str> = limited.iter().map(TenantId::as_str).collect();
        let claimed = self.store.claim_measuring(known_at, &tenants, MAX_MEASUREMENT_AGE).await?;
        let mut first = Ok(());
        for tenant in claimed {
            if let Err(error) = self.measure_one(&tenant).await {
                tracing::warn!(tenant.id = %tenant, %error, "failed to measure the storage of a tenant");
                first = first.and(Err(error));
            }
        }
        first
    }

    async fn measure_one(&self, tenant: &TenantId) -> Result<(), store::Error> {
        let mut measuring = self.store.begin_measure(tenant).await?;
        let measured = loop {
            match self.store.measure_sessions(tenant, &mut measuring).await {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let is_complete = measured.is_ok();
        self.store.end_measure(tenant, measuring, is_complete).await?;
        measured
    }

    /// Sets a tenant's own limits. They are in force on this replica when it returns. Owed tokens are forgiven.
    pub async fn set_limits(&self, tenant: &TenantId, limits: TenantLimits) -> Result<(), store::Error> {
        self.store.set_tenant_limits(tenant, &limits).await?;
        if let Some(used) = self.lock().get_mut(tenant) {
            used.tokens = RateLimiter::default();
        }
        self.read_limits().await
    }

    /// Checks in the database whether a tenant is still being deleted. Used before a call is rejected, because the
    /// deletion may be complete and the id available again. Concurrent calls share one read.
    pub async fn is_still_deleted(&self, tenant: &TenantId) -> bool {
        let asked = Instant::now();
        let mut known = self.known.lock().await;
        if known.read_at.is_none_or(|read_at| read_at < asked)
            && let Err(error) = self.read_changed(&mut known).await
        {
            tracing::debug!(tenant.id = %tenant, %error, "failed to read the deletions of tenants");
        }
        self.is_deleted(tenant)
    }

    /// Reads the tenants' limits and which tenants are being deleted, if either has changed.
    pub async fn read_limits(&self) -> Result<(), store::Error> {
        let mut known = self.known.lock().await;
        self.read_changed(&mut known).await
    }

    async fn read_changed(&self, known: &mut Known) -> Result<(), store::Error> {
        known.read_at = Some(Instant::now());
        // The version is read first: a change between the two reads is then read again next time.
        let (version, read) = self.store.limits_version().await?;
        if known.version == Some(version) {
            self.read.note(read);
            return Ok(());
        }
        let own: HashMap<_, _> = self.store.tenant_limits().await?.into_iter().collect();
        let erasures = self.store.erasures(self.read.at()).await?;
        let (ended, deleted): (Vec<_>, Vec<_>) = erasures.into_iter().partition(|it| it.is_done);
        let ended: BTreeSet<_> = ended.into_iter().map(|it| it.tenant).collect();
        let deleted: BTreeSet<_> = deleted.into_iter().map(|it| it.tenant).collect();
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(own);
        // State from before a tenant's deletion must not be kept.
        self.lock().retain(|tenant, _| !deleted.contains(tenant) && !ended.contains(tenant));
        for tenant in deleted.iter().chain(&ended) {
            self.store.written().forget(tenant);
        }
        *self.deleted.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(deleted);
        known.version = Some(version);
        self.read.note(read);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Returns the tenants with recent requests for limited resources.
    pub fn tenants(&self) -> Vec<TenantId> {
        self.lock().keys().cloned().collect()
    }

    /// The tenants with recent requests for which `has` accepts the limits. Tenants without recent requests are
    /// dropped.
    fn followed(&self, has: impl Fn(&TenantLimits) -> bool) -> Vec<TenantId> {
        let mut used = self.lock();
        let deleted = self.deleted_tenants();
        used.retain(|tenant, used| {
            let in_use = !used.reserved.is_zero() || self.store.written().of(tenant) != 0;
            let is_recent = used.asked.elapsed() < IDLE_TENANT_TIMEOUT || in_use;
            let stays = is_recent && !deleted.contains(tenant);
            if !stays {
                self.store.written().forget(tenant);
            }
            stays
        });
        let tenants: Vec<TenantId> = used.keys().cloned().collect();
        drop(used);
        let limited = |tenant: &TenantId| has(&self.limits(tenant));
        tenants.into_iter().filter(limited).collect()
    }

    /// The expected cost of model calls in progress on this replica, per tenant.
    fn reservations(&self) -> Vec<(TenantId, Duration)> {
        let used = self.lock();
        let mut reserved: Vec<_> = used
            .iter()
            .filter(|(_, used)| !used.reserved.is_zero())
            .map(|(tenant, used)| (tenant.clone(), used.reserved))
            .collect();
        reserved.sort_unstable();
        reserved
    }

    fn take_unreported(&self) -> BTreeMap<TenantId, Duration> {
        let mut used = self.lock();
        let spenders = used.iter_mut().filter(|(_, used)| !used.unreported.is_zero());
        spenders.map(|(tenant, used)| (tenant.clone(), std::mem::take(&mut used.unreported))).collect()
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
            used.reserved_elsewhere = found.reserved_elsewhere;
            // The value read does not include tokens that were spent since and not reported yet.
            used.tokens.set_owed(now, found.tokens_owed.saturating_add(used.unreported));
            used.stored = found.stored_bytes.unwrap_or(found.written_bytes);
            used.is_known = true;
        }
    }

    /// Runs `act` with the tenant's use and the current time.
    fn with<T>(&self, tenant: &TenantId, act: impl FnOnce(&mut Use, Duration) -> T) -> T {
        let mut all = self.lock();
        let used = all.entry(tenant.clone()).or_insert_with(|| Use {
            requests: RateLimiter::default(),
            tokens: RateLimiter::default(),
            reserved: Duration::ZERO,
            reserved_elsewhere: Duration::ZERO,
            unreported: Duration::ZERO,
            running_elsewhere: 0,
            stored: 0,
            is_known: false,
            asked: Instant::now(),
        });
        used.asked = Instant::now();
        act(used, self.origin.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Use>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether there is a limit that is shared by all replicas.
fn is_shared(limits: &TenantLimits) -> bool {
    let TenantLimits { running_turns, requests_per_second: _, tokens_per_minute, stored_bytes } = limits;
    running_turns.is_some() || tokens_per_minute.is_some() || stored_bytes.is_some()
}

/// The time in which a rate of `limit` per `time` allows `many`. Returns `None` if the limit is 0.
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
        check(600, 60, Duration::from_mins(1), Some(Duration::from_mins(10)));
        check(0, 60, second, Some(Duration::ZERO));
        check(1, 0, second, None);
    }
}
