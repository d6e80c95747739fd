//! Compares what a store caches of a turn with what it reads from the database.

use std::time::Duration;

use contextd::{
    model::{CallId, SessionKey, TurnFence},
    store::{Store, owned::OwnedTurn, session_memory::PrepareInput},
};

/// Maximum time between the two looks.
const MOST_APART: Duration = Duration::from_secs(20);

/// Whether the store caches the pending calls of the turn. Fails if they differ from what it reads.
pub async fn remembers_calls(store: &Store, key: &SessionKey, calls: &[&str]) -> bool {
    let calls: Vec<CallId> = calls.iter().map(|call| CallId::new(*call)).collect();
    let Some(waiting) = store.cached_waiting_turn(key, &calls) else {
        return false;
    };
    assert_eq!(waiting.calls, store.calls(key, &calls).await.unwrap());
    let turn = &waiting.calls[&calls[0]].turn;
    let turn = store.turn(key, turn).await.unwrap().unwrap();
    assert_eq!(waiting.request, turn.request);
    assert_eq!(waiting.totals, turn.so_far.total_usage);
    assert!(waiting.elapsed.abs_diff(turn.so_far.elapsed) < MOST_APART);
    let read = PrepareInput::from(store.session(key).await.unwrap().unwrap());
    assert_eq!(format!("{:#?}", waiting.basis), format!("{read:#?}"));
    true
}

/// Whether the store caches the turn as this owner's last write left it. Fails if it differs from what it reads, unless
/// another replica has written to the session since.
pub async fn remembers(store: &Store, key: &SessionKey, right: TurnFence<'_>) -> bool {
    let Some((mut known, seen)) = store.cached_turn(key, right, usize::MAX) else {
        return false;
    };
    let reading = store.owned_with_transcript(key, right.turn, right.fence.epoch, usize::MAX);
    let Ok((Some(read), transcript)) = reading.await else {
        return false;
    };
    let is_one = transcript.context_version.is_none_or(|version| version == read.context_version);
    let of_others = |it: &OwnedTurn| (it.last_seq, it.cancel.clone(), it.waiting);
    let is_as_left = of_others(&known) == of_others(&read);
    if !is_one || !is_as_left || read.newer.is_some() {
        return false;
    }
    let apart = known.time_left.abs_diff(read.time_left);
    assert!(apart < MOST_APART, "{apart:?} apart");
    (known.time_left, known.overtime) = (read.time_left, read.overtime);
    known.read_at = read.read_at;
    assert_eq!(format!("{known:#?}"), format!("{read:#?}"));
    assert_eq!(seen, transcript);
    true
}
