//! Tracks connections that have made no authenticated call, the oldest first. At the limit, a new connection
//! displaces the oldest of its peer, or of all: clients make their first call within a round trip or two, so
//! the oldest is the least likely to make one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

/// The bits of an IPv6 address that one subscriber can choose freely.
const OWN_BITS: u32 = 64;

/// The unauthenticated connections of one listener.
#[derive(Debug, Default)]
pub(super) struct UnauthenticatedConnections(Mutex<TrackedConnections>);

#[derive(Debug, Default)]
struct TrackedConnections {
    next: u64,
    by_age: BTreeMap<u64, (Option<IpAddr>, CancellationToken)>,
    by_peer: HashMap<IpAddr, BTreeSet<u64>>,
}

/// An unauthenticated connection; tracked until it is dropped or a caller is authenticated.
#[derive(Debug)]
pub(super) struct UnauthenticatedConnection {
    all: Arc<UnauthenticatedConnections>,
    number: u64,
    is_authenticated: AtomicBool,
    health_streams: AtomicUsize,
    displaced: CancellationToken,
}

/// An open health stream on a connection; counted until it is dropped.
#[derive(Debug)]
pub(super) struct HealthStream(Arc<UnauthenticatedConnection>);

impl Drop for HealthStream {
    fn drop(&mut self) {
        self.0.health_streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl UnauthenticatedConnections {
    /// Adds a connection. If its peer already has `most_per_peer`, the oldest of them is closed.
    pub(super) fn add(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        most_per_peer: usize,
    ) -> Arc<UnauthenticatedConnection> {
        let peer = address.map(peer);
        let displaced = CancellationToken::new();
        let mut waiting = self.lock();
        let number = waiting.next;
        waiting.next += 1;
        if let Some(peer) = peer {
            let of_peer = waiting.by_peer.entry(peer).or_default();
            let oldest = of_peer.first().copied();
            let is_full = of_peer.len() >= most_per_peer;
            of_peer.insert(number);
            if let Some(oldest) = oldest.filter(|_| is_full) {
                waiting.end(oldest);
            }
        }
        waiting.by_age.insert(number, (peer, displaced.clone()));
        drop(waiting);
        Arc::new(UnauthenticatedConnection {
            all: Arc::clone(self),
            number,
            is_authenticated: AtomicBool::new(false),
            health_streams: AtomicUsize::new(0),
            displaced,
        })
    }

    /// Closes the oldest connection, if there is one.
    pub(super) fn displace_oldest(&self) {
        let mut waiting = self.lock();
        if let Some((oldest, _)) = waiting.by_age.first_key_value() {
            let oldest = *oldest;
            waiting.end(oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, TrackedConnections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrackedConnections {
    fn end(&mut self, number: u64) {
        if let Some(displaced) = self.remove(number) {
            displaced.cancel();
        }
    }

    fn remove(&mut self, number: u64) -> Option<CancellationToken> {
        let (peer, displaced) = self.by_age.remove(&number)?;
        if let Some(peer) = peer
            && let Some(of_peer) = self.by_peer.get_mut(&peer)
        {
            of_peer.remove(&number);
            if of_peer.is_empty() {
                self.by_peer.remove(&peer);
            }
        }
        Some(displaced)
    }
}

impl UnauthenticatedConnection {
    /// Records that a caller was authenticated, which ends the tracking.
    pub(super) fn mark_authenticated(&self) {
        if !self.is_authenticated.swap(true, Ordering::Relaxed) {
            self.all.lock().remove(self.number);
        }
    }

    /// Whether a caller was authenticated.
    pub(super) fn is_authenticated(&self) -> bool {
        self.is_authenticated.load(Ordering::Relaxed)
    }

    /// Counts a health stream, which needs no authenticated caller.
    pub(super) fn begin_health_stream(self: &Arc<Self>) -> HealthStream {
        self.health_streams.fetch_add(1, Ordering::Relaxed);
        HealthStream(Arc::clone(self))
    }

    /// Whether the connection has an open health stream.
    pub(super) fn has_health_stream(&self) -> bool {
        self.health_streams.load(Ordering::Relaxed) > 0
    }

    /// Fires when another connection has displaced this one.
    pub(super) fn displaced(&self) -> &CancellationToken {
        &self.displaced
    }
}

impl Drop for UnauthenticatedConnection {
    fn drop(&mut self) {
        self.mark_authenticated();
    }
}

/// The peer at an address. All IPv6 addresses of one subscriber are one peer.
fn peer(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => IpAddr::V4(mapped),
            None => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> OWN_BITS << OWN_BITS)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    fn ended(strangers: &[&Arc<UnauthenticatedConnection>]) -> Vec<bool> {
        let ended = |it: &&Arc<UnauthenticatedConnection>| it.displaced().is_cancelled();
        strangers.iter().map(ended).collect()
    }

    #[test]
    fn a_new_connection_takes_the_place_of_the_oldest_of_its_peer() {
        let all = Arc::new(UnauthenticatedConnections::default());
        let other = all.add(address("192.0.2.1"), 2);
        let first = all.add(address("2001:db8::1"), 2);
        let second = all.add(address("2001:db8::2"), 2);
        assert_eq!(ended(&[&other, &first, &second]), [false; 3]);
        let third = all.add(address("2001:db8::3"), 2);
        assert_eq!(ended(&[&other, &first, &second, &third]), [false, true, false, false]);
        // An authenticated connection is not counted and cannot be displaced.
        second.mark_authenticated();
        let fourth = all.add(address("2001:db8::4"), 2);
        assert_eq!(ended(&[&second, &third, &fourth]), [false; 3]);
        all.displace_oldest();
        assert_eq!(ended(&[&other, &second, &third]), [true, false, false]);
        drop((other, first, second, third, fourth));
        let waiting = all.lock();
        assert_eq!((waiting.by_age.len(), waiting.by_peer.len()), (0, 0));
    }
}
