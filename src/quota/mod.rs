//! How much tenants may use: their limits, and how much of them is used, on one replica.
//!
//! Limits, and what other replicas use, are read every few seconds, and before the first request of a
//! tenant that this replica does not know; nothing else here asks the database on behalf of a request. So a
//! limit that several replicas share can be exceeded by what they admit meanwhile.

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
    store::{self, Store, admitted::LastRead, quota::Used},
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
    /// What the calls of models that are under way here are expected to cost.
    reserved: Duration,
    /// The same of other replicas.
    reserved_elsewhere: Duration,
    /// What the tokens that were spent here cost, since the last report.
    unreported: Duration,
    running_elsewhere: u64,
    /// Bytes stored as the database has them; what this replica wrote since then is counted by its store.
    stored: u64,
    /// What other replicas and earlier times used has been read.
    is_known: bool,
    asked: Instant,
}

impl Use {
    /// How long it takes until less than a burst is owed and reserved.
    fn token_wait(&self, now: Duration) -> Duration {
        let reserved = self.reserved.saturating_add(self.reserved_elsewhere);
        let owed = self.tokens.owed(now).saturating_add(reserved);
        owed.saturating_sub(TOKEN_BURST)
    }
}

/// Tokens that a call of a model may take. When it is dropped, those that it took are charged in
/// their place.
#[derive(Debug)]
pub struct TokenReservation {
    quotas: Arc<Quotas>,
    tenant: TenantId,
    reserved: Duration,
    charged: u64,
}

impl TokenReservation {
    /// Sets what is charged when the call ends, as far as it is known by now.
    pub fn charge(&mut self, tokens: u64) {
        self.charged = tokens;
    }
}

impl Drop for TokenReservation {
    fn drop(&mut self) {
        self.quotas
            .charge(&self.tenant, self.reserved, self.charged);
    }
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
    /// Time until a model may be called again: zero while the spent tokens are within the limit.
    /// `None`: they are not limited.
    pub tokens_owed: Option<Duration>,
    /// Bytes that are stored. `None`: they are not limited, or not measured yet.
    pub stored_bytes: Option<u64>,
}

/// What was read of the limits.
#[derive(Debug, Default)]
struct Known {
    /// Their version. `None`: they were not read yet.
    version: Option<i64>,
    /// When the newest reading began.
    read_at: Option<Instant>,
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
    known: tokio::sync::Mutex<Known>,
    /// When limits and deletions were read.
    read: LastRead,
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
            known: tokio::sync::Mutex::default(),
            read: LastRead::default(),
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

    /// When limits and deletions were last read.
    pub fn last_read(&self) -> &LastRead {
        &self.read
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
                let elsewhere = found.tokens_owed.saturating_sub(TOKEN_BURST);
                self.known_wait(tenant).unwrap_or(elsewhere)
            }),
            stored_bytes: in_force.stored_bytes.and(found.stored_bytes).map(|stored| {
                let unreported = self.store.written().of(tenant);
                stored.saturating_add_signed(unreported)
            }),
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

    /// Whether a tenant may store and spend what a turn does.
    pub fn check_turn(&self, tenant: &TenantId) -> Result<(), Exceeded> {
        self.check_storage(tenant)?;
        self.check_tokens(tenant)
    }

    /// Whether a tenant with this many running turns and compactions here may begin one more.
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
        self.check_storage_for(tenant, 0)
    }

    /// Whether a tenant may store this many bytes and one.
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
        Err(Exceeded {
            quota: Quota::StoredBytes,
            limit,
            retry_after: None,
        })
    }

    /// Notes that bytes which were counted when they were written are stored no more.
    pub fn removed(&self, tenant: &TenantId, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.store.written().add(tenant, -bytes);
    }

    /// Notes bytes that the database copied.
    pub fn copied(&self, tenant: &TenantId, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.store.written().add(tenant, bytes);
    }

    /// Reads what a tenant uses elsewhere and used before, when this replica meets it for the first time:
    /// its limits would hold for nothing else until the next round.
    pub async fn learn(&self, tenant: &TenantId) -> Result<(), store::Error> {
        if !is_shared(&self.limits(tenant)) || self.with(tenant, |used, _| used.is_known) {
            return Ok(());
        }
        self.store.written().follow(tenant);
        for (tenant, found) in self.store.tenant_use(&[tenant.as_str()]).await? {
            self.take_in(&tenant, found);
        }
        Ok(())
    }

    /// Reserves what a call of a model may take, for as long as it is under way, or says how long
    /// that is not possible because of what the tenant has used and reserved. `input` is charged when
    /// the reservation is dropped, unless [`TokenReservation::charge`] names another number.
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

    /// The same, as soon as it is possible.
    pub async fn reserved(
        self: &Arc<Self>,
        tenant: &TenantId,
        input: u32,
        most_output: u32,
    ) -> TokenReservation {
        loop {
            match self.reserve(tenant, input, most_output) {
                Ok(reservation) => return reservation,
                Err(_) => self.tokens_available(tenant).await,
            }
        }
    }

    /// Ends a reservation: what was used takes its place.
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

    /// How long a tenant has to wait before it may call a model again.
    pub fn token_wait(&self, tenant: &TenantId) -> Option<Duration> {
        self.limits(tenant).tokens_per_minute?;
        let wait = self.with(tenant, |used, now| used.token_wait(now));
        (!wait.is_zero()).then_some(wait)
    }

    /// The same, as requests are refused by it here. `None`: this replica does not know what the tenant
    /// uses.
    fn known_wait(&self, tenant: &TenantId) -> Option<Duration> {
        let now = self.origin.elapsed();
        let all = self.lock();
        let used = all.get(tenant).filter(|used| used.is_known)?;
        Some(used.token_wait(now))
    }

    /// Waits until a tenant may call a model again.
    pub async fn tokens_available(&self, tenant: &TenantId) {
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

    /// Reads limits that changed, and tells and reads what tenants use, of which so many turns run
    /// here.
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

    /// Tells other replicas what is used here.
    async fn report(&self, running: &BTreeMap<TenantId, u64>) -> Result<(), store::Error> {
        let is_limited = |tenant: &&TenantId| {
            self.limits(tenant).running_turns.is_some() && !self.is_deleted(tenant)
        };
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
                // Until it is read back.
                self.with(tenant, |used, _| {
                    used.stored = used.stored.saturating_add_signed(*bytes)
                });
            }
        }
        Ok(())
    }

    /// Measures what tenants with such a limit have stored, if no replica did lately. One that cannot be
    /// measured does not hold up the others; the first error is returned.
    pub async fn measure(&self) -> Result<(), store::Error> {
        let known_at = self.read.at();
        let limited = self.followed(|limits| limits.stored_bytes.is_some());
        if limited.is_empty() {
            return Ok(());
        }
        let tenants: Vec<&str> = limited.iter().map(TenantId::as_str).collect();
        let claimed = self
            .store
            .claim_measuring(known_at, &tenants, MEASURED_WITHIN)
            .await?;
        let mut first = Ok(());
        for tenant in claimed {
            if let Err(error) = self.measure_one(&tenant).await {
                tracing::warn!(tenant.id = %tenant, %error, "the storage of a tenant was not measured");
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
        self.store
            .end_measure(tenant, measuring, is_complete)
            .await?;
        measured
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

    /// Whether a tenant is still being deleted, by the database: for a call that is about to be
    /// refused, since the deletion may be done and the id free. Calls that ask at the same time
    /// share one reading.
    pub async fn is_still_deleted(&self, tenant: &TenantId) -> bool {
        let asked = Instant::now();
        let mut known = self.known.lock().await;
        if known.read_at.is_none_or(|read_at| read_at < asked)
            && let Err(error) = self.read_changed(&mut known).await
        {
            tracing::debug!(tenant.id = %tenant, %error, "deletions of tenants not read");
        }
        self.is_deleted(tenant)
    }

    /// Reads the limits of tenants, and which are being deleted, if either has changed.
    pub async fn read_limits(&self) -> Result<(), store::Error> {
        let mut known = self.known.lock().await;
        self.read_changed(&mut known).await
    }

    async fn read_changed(&self, known: &mut Known) -> Result<(), store::Error> {
        known.read_at = Some(Instant::now());
        // The version is read first: a change that comes between is seen once more.
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
        // What is known of a tenant from before its deletion must not outlast it.
        self.lock()
            .retain(|tenant, _| !deleted.contains(tenant) && !ended.contains(tenant));
        for tenant in deleted.iter().chain(&ended) {
            self.store.written().forget(tenant);
        }
        *self.deleted.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(deleted);
        known.version = Some(version);
        self.read.note(read);
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
        used.retain(|tenant, used| {
            let in_use = !used.reserved.is_zero() || self.store.written().of(tenant) != 0;
            let is_recent = used.asked.elapsed() < FORGET || in_use;
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

    /// What calls of models that are under way here are expected to cost.
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
            used.reserved_elsewhere = found.reserved_elsewhere;
            // What was spent while the answer was on its way is not in it.
            used.tokens
                .set_owed(now, found.tokens_owed.saturating_add(used.unreported));
            used.stored = found.stored_bytes.unwrap_or(found.written_bytes);
            used.is_known = true;
        }
    }

    /// Does something with what is known of a tenant's use, at this moment.
    fn with<T>(&self, tenant: &TenantId, act: impl FnOnce(&mut Use, Duration) -> T) -> T {
        let mut all = self.lock();
        let used = all.entry(tenant.clone()).or_insert_with(|| Use {
            requests: Allowance::default(),
            tokens: Allowance::default(),
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

/// Whether there is a limit that replicas share.
fn is_shared(limits: &TenantLimits) -> bool {
    let TenantLimits {
        running_turns,
        requests_per_second: _,
        tokens_per_minute,
        stored_bytes,
    } = limits;
    running_turns.is_some() || tokens_per_minute.is_some() || stored_bytes.is_some()
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
