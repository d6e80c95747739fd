//! Tests of the retention of events.

use super::*;

const AGE: Duration = Duration::from_hours(1);

fn at(minutes: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + minutes * 60).unwrap()
}

/// An event written this many minutes before now.
fn event(seq: i64, kind: &str, minutes: i64) -> OldEvent {
    OldEvent { seq: Seq(seq), at: at(-minutes), kind: kind.to_owned(), of_last_step: seq % 2 == 1 }
}

fn remove(events: &[OldEvent], live_from: Option<i64>, is_full: bool) -> (Vec<i64>, i64, i64) {
    let old = OldEvents { first: Seq(5), live_from: live_from.map(Seq), events: events.to_vec(), is_full };
    let removal = old.remove(AGE, at(0));
    let gone = removal.gone.iter().map(|seq| seq.0).collect();
    let minutes = (removal.since.as_second() - at(0).as_second()) / 60;
    (gone, removal.from.0, minutes)
}

#[test]
fn events_go_up_to_the_first_that_is_young_or_of_the_live_turn() {
    let events = [
        event(5, "turn_started", 90),
        event(6, "message_committed", 80),
        event(7, "turn_completed", 40),
        event(8, "turn_started", 70),
    ];
    assert_eq!(remove(&events, None, false), (vec![5, 6], 7, -40));
    assert_eq!(remove(&events, Some(6), false), (vec![5], 6, -50));
    assert_eq!(remove(&events[..2], None, false), (vec![5, 6], 7, 0));
    assert_eq!(remove(&[], None, false), (vec![], 5, 0));
}

#[test]
fn a_session_with_more_old_events_is_looked_at_again_at_once() {
    let events = [event(5, "turn_started", 90), event(6, "turn_ended", 80)];
    assert_eq!(remove(&events, None, true), (vec![5, 6], 7, -80));
    let young = [event(5, "turn_started", 90), event(6, "turn_ended", 30)];
    assert_eq!(remove(&young, None, true), (vec![5], 6, -30));
}

#[test]
fn a_session_whose_live_turn_is_old_is_looked_at_again_after_ten_minutes() {
    let events = [event(5, "turn_started", 90)];
    assert_eq!(remove(&events, Some(5), false), (vec![], 5, -50));
}

#[test]
fn events_that_other_rows_refer_to_stay() {
    let kinds = REFERRED_TO.into_iter().chain(["step_started"; 2]);
    let events: Vec<_> = (5..).zip(kinds).map(|(seq, kind)| event(seq, kind, 90)).collect();
    let (gone, from, _) = remove(&events, None, false);
    assert_eq!((gone, from), (vec![10], 12), "the step that began a turn's last one stays");
}
