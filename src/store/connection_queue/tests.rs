//! Tests for the order in which connections are granted.

use std::{future::Future, pin::Pin};

use futures_util::FutureExt as _;

use super::*;

type Entering<'q> = Pin<Box<dyn Future<Output = Result<Permit, Error>> + 'q>>;

/// Starts to wait; asserts that no permit is granted at once.
fn enter<'q>(queue: &'q Arc<ConnectionQueue>, tenant: Option<&'q TenantId>) -> Entering<'q> {
    let mut entering: Entering<'q> = Box::pin(queue.enter(tenant));
    assert!((&mut entering).now_or_never().is_none());
    entering
}

fn taken(queue: &Arc<ConnectionQueue>) -> Permit {
    queue.enter(None).now_or_never().unwrap().unwrap()
}

/// The permit, if it was granted.
fn got(entering: &mut Entering<'_>) -> Option<Permit> {
    entering.now_or_never().map(Result::unwrap)
}

#[test]
fn a_commit_of_a_running_turn_overtakes_five_hundred_new_requests() {
    let queue = ConnectionQueue::new(1);
    let tenant = TenantId::new("busy");
    let held = taken(&queue);
    let mut new: Vec<_> = (0..500).map(|_| enter(&queue, Some(&tenant))).collect();
    let mut commit = enter(&queue, None);
    assert_eq!(queue.len(), 501);
    drop(held);
    let permit = got(&mut commit).expect("it goes ahead");
    assert!(new.iter_mut().all(|request| got(request).is_none()));
    drop(permit);
    assert!(got(&mut new[0]).is_some(), "the oldest is next");
}

#[test]
fn new_requests_get_a_share_while_what_runs_always_waits() {
    let queue = ConnectionQueue::new(1);
    let tenant = TenantId::new("new");
    let mut held = taken(&queue);
    let mut request = enter(&queue, Some(&tenant));
    let mut ahead = 0;
    loop {
        let mut commit = enter(&queue, None);
        drop(held);
        if got(&mut request).is_some() {
            break;
        }
        held = got(&mut commit).unwrap();
        ahead += 1;
    }
    assert_eq!(ahead, NEW_REQUEST_INTERVAL - 1);
}

#[test]
fn tenants_take_turns_however_many_requests_one_of_them_has() {
    let queue = ConnectionQueue::new(1);
    let [busy, calm] = ["busy", "calm"].map(TenantId::new);
    let mut held = taken(&queue);
    let mut many: Vec<_> = (0..100).map(|_| enter(&queue, Some(&busy))).collect();
    let mut one = enter(&queue, Some(&calm));
    for round in 0.. {
        drop(held);
        if got(&mut one).is_some() {
            assert!(round <= 1, "it waited for {round} others");
            break;
        }
        held = many.iter_mut().find_map(got).unwrap();
        drop(many.remove(0));
    }
    assert_eq!(queue.expected_wait(&calm), Duration::ZERO);
}

#[test]
fn the_wait_of_a_tenant_is_that_of_its_own_requests() {
    let queue = ConnectionQueue::new(1);
    let [busy, calm] = ["busy", "calm"].map(TenantId::new);
    let _held = taken(&queue);
    let _request = enter(&queue, Some(&busy));
    let _commit = enter(&queue, None);
    let moment = Duration::from_millis(2);
    while queue.expected_wait(&busy) < moment {
        std::thread::yield_now();
    }
    assert_eq!(queue.expected_wait(&calm), Duration::ZERO);
}

#[test]
fn a_line_that_grows_is_expected_to_take_longer_than_its_oldest_has_waited() {
    let queue = ConnectionQueue::new(1);
    let tenant = TenantId::new("busy");
    let mut held = taken(&queue);
    let mut requests: Vec<_> = (0..1000).map(|_| enter(&queue, Some(&tenant))).collect();
    let begun = Instant::now();
    for request in requests.iter_mut().take(10) {
        drop(held);
        held = got(request).unwrap();
    }
    let waited = begun.elapsed();
    assert!(queue.expected_wait(&tenant) >= 90 * waited);
}

#[test]
fn a_waiter_that_leaves_loses_no_connection() {
    let queue = ConnectionQueue::new(1);
    let tenant = TenantId::new("hasty");
    let held = taken(&queue);
    let leaves = enter(&queue, Some(&tenant));
    let granted = enter(&queue, None);
    let mut stays = enter(&queue, Some(&tenant));
    drop(leaves);
    assert_eq!(queue.len(), 2);
    drop(held);
    // It was granted the permit, but is dropped before it is polled.
    drop(granted);
    drop(got(&mut stays).expect("the permit was passed on"));
    assert_eq!(queue.len(), 0);
    drop(taken(&queue));
}

#[test]
fn rights_to_connections_without_room_are_taken_back_and_granted_again_one_by_one() {
    let queue = ConnectionQueue::new(4);
    let held = taken(&queue);
    let refused = taken(&queue);
    assert!(queue.withhold(refused, 0).is_none());
    assert_eq!(queue.capacity(), 1, "those that are free have no room either");
    let mut waits = enter(&queue, None);
    drop(held);
    let held = got(&mut waits).expect("it waits for the one that there is");
    let mut waits = enter(&queue, None);
    queue.record_accepted();
    let more = taken(&queue);
    assert_eq!(queue.capacity(), 2);
    drop(held);
    assert!(got(&mut waits).is_some());
    drop(more);
}

#[test]
fn the_last_right_is_never_taken_back() {
    let queue = ConnectionQueue::new(2);
    let refused = taken(&queue);
    let last = queue.withhold(refused, 0).expect("there is no other one");
    assert_eq!(queue.capacity(), 1);
    drop(last);
    assert!(queue.enter(None).now_or_never().is_some());
}

#[test]
fn rights_to_idle_connections_stay() {
    let queue = ConnectionQueue::new(4);
    let refused = taken(&queue);
    assert!(queue.withhold(refused, 2).is_none());
    assert_eq!(queue.capacity(), 2);
}
