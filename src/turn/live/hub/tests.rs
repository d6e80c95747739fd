//! What readers are sent of an unfinished message, written on this replica or another one.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    codec,
    model::{SessionId, TenantId},
    store::chunk::Chunk,
};

fn key() -> SessionKey {
    SessionKey::new(TenantId::new("t"), SessionId::new("s"))
}

fn live(after: i64, what: LiveKind) -> LiveOutput {
    LiveOutput { after: Seq(after), turn: TurnId::new("turn"), at: at(after), kind: what }
}

/// The position in the turn after an event: each attempt follows another event.
fn at(after: i64) -> StepPosition {
    StepPosition { step: 1, attempt: u32::try_from(after).unwrap() }
}

fn delta(message: &str, part: u32, text: &str) -> Delta {
    Delta { message: MessageId::new(message), part, offset: 0, text: text.to_owned(), kind: DeltaKind::Text }
}

fn say(channel: &Channel, after: i64, message: &str, part: u32, text: &str) {
    channel.show(live(after, LiveKind::Delta(delta(message, part, text))));
}

fn texts(open: Option<OpenMessage>) -> Vec<String> {
    open.map(|open| open.parts.into_values().map(|(_, text)| text).collect()).unwrap_or_default()
}

fn words(live: Vec<LiveOutput>) -> Vec<(u32, u32, String)> {
    let delta = |live: LiveOutput| match live.kind {
        LiveKind::Thinking { model } => (u32::MAX, 0, model),
        LiveKind::Delta(delta) => (delta.part, delta.offset, delta.text),
    };
    live.into_iter().map(delta).collect()
}

/// What another replica stored after an event: chunks starting at `from`, each with one text for
/// the first part.
fn elsewhere(after: i64, message: &str, from: i32, words: &[&str]) -> RemoteSession {
    let stretch = |text: &&str| DeltaBatch {
        after: Seq(after),
        turn: TurnId::new("turn"),
        at: at(after),
        deltas: vec![delta(message, 0, text)],
    };
    let chunks = words.iter().zip(from..).map(|(word, n)| Chunk { n, stretch: stretch(word) });
    RemoteSession {
        key: key(),
        last_seq: Seq(after),
        state: SessionState::Running,
        at: at(after),
        committed: false,
        chunks: chunks.collect(),
    }
}

#[test]
fn a_newcomer_gets_the_text_so_far_and_then_exactly_what_follows() {
    let channel = Hub::default().enter(&key());
    say(&channel, 3, "m", 0, "one ");
    say(&channel, 3, "m", 0, "two");
    say(&channel, 3, "m", 1, "three");
    let mut reader = channel.subscribe();
    assert_eq!(texts(reader.open_message(|_| true)), ["one two", "three"]);
    say(&channel, 3, "m", 1, " four");
    assert_eq!(words(reader.more_after(|_| true)), [(1, 5, " four".to_owned())]);
    assert_eq!(reader.more_after(|_| true), []);
}

#[test]
fn an_attached_reader_gets_all_deltas_however_late_it_reads() {
    let channel = Hub::default().enter(&key());
    let mut reader = channel.subscribe();
    channel.show(live(3, LiveKind::Thinking { model: "m".to_owned() }));
    for _ in 0..1000 {
        say(&channel, 3, "m", 0, "é");
    }
    channel.close_message(&MessageId::new("m"));
    assert_eq!(words(reader.more_after(|_| true)), [(u32::MAX, 0, "m".to_owned()), (0, 0, "é".repeat(1000))]);
    assert_eq!(reader.more_after(|_| true), []);
    assert!(channel.subscribe().open_message(|_| true).is_none(), "a newcomer sees the commit");
    assert_eq!(channel.subscribe().more_after(|_| true), []);
}

#[test]
fn the_text_of_a_committed_message_stays_a_second_for_readers_that_lag() {
    let channel = Hub::default().enter(&key());
    let mut readers = [channel.subscribe(), channel.subscribe()];
    say(&channel, 3, "m", 0, "text");
    channel.close_message(&MessageId::new("m"));
    let now = Instant::now();
    for after in [Duration::ZERO, Duration::from_millis(999)] {
        channel.tidy(now + after);
    }
    let [late, later] = &mut readers;
    assert_eq!(words(late.more_after(|_| true)), [(0, 0, "text".to_owned())]);
    channel.tidy(now + LINGER);
    assert_eq!(later.more_after(|_| true), []);
}

#[test]
fn a_reader_that_comes_after_the_commit_is_not_shown_the_message() {
    let channel = Hub::default().enter(&key());
    channel.show(live(3, LiveKind::Thinking { model: "m".to_owned() }));
    say(&channel, 3, "m", 0, "text");
    channel.close_message(&MessageId::new("m"));
    let mut reader = channel.subscribe();
    assert_eq!(reader.more_after(|_| true), []);
    channel.show(live(9, LiveKind::Thinking { model: "m".to_owned() }));
    say(&channel, 9, "n", 0, "new");
    assert_eq!(words(reader.more_after(|_| true)), [(u32::MAX, 0, "m".to_owned()), (0, 0, "new".to_owned())]);
}

#[test]
fn a_finished_message_is_not_sent_to_new_readers() {
    let channel = Hub::default().enter(&key());
    say(&channel, 3, "m", 0, "text");
    channel.close_message(&MessageId::new("m"));
    assert!(channel.subscribe().open_message(|_| true).is_none());
    say(&channel, 4, "n", 0, "new");
    channel.close_message(&MessageId::new("m"));
    assert_eq!(texts(channel.subscribe().open_message(|_| true)), ["new"]);
}

#[test]
fn text_of_a_stale_owner_is_not_shown() {
    let channel = Hub::default().enter(&key());
    let mut reader = channel.subscribe();
    channel.apply_chunks(elsewhere(5, "new", 1, &["right"]));
    say(&channel, 3, "old", 0, "wrong");
    channel.show(live(3, LiveKind::Thinking { model: "wrong".to_owned() }));
    assert_eq!(words(reader.more_after(|_| true)), [(0, 0, "right".to_owned())]);
}

#[test]
fn remote_chunks_are_applied_once_and_in_order() {
    let channel = Hub::default().enter(&key());
    let mut reader = channel.subscribe();
    channel.apply_chunks(elsewhere(3, "m", 1, &["one ", "two "]));
    assert_eq!(channel.applied_chunk(), (Some(MessageId::new("m")), 2));
    channel.apply_chunks(elsewhere(3, "m", 1, &["one ", "two ", "three "]));
    channel.apply_chunks(elsewhere(3, "m", 5, &["five "]));
    assert_eq!(words(reader.more_after(|_| true)), [(0, 0, "one two three ".to_owned())]);
    channel.apply_chunks(elsewhere(3, "m", 4, &["four "]));
    assert_eq!(words(reader.more_after(|_| true)), [(0, 14, "four ".to_owned())]);
    channel.apply_chunks(elsewhere(2, "older", 1, &["void"]));
    assert_eq!(reader.more_after(|_| true), []);
}

#[test]
fn a_remote_message_is_closed_by_the_state_of_session_run() {
    let open = || elsewhere(3, "m", 2, &[]);
    let table = [
        ("nothing new", open(), true),
        ("committed", RemoteSession { committed: true, ..open() }, false),
        ("waiting", RemoteSession { state: SessionState::AwaitingTools, ..open() }, false),
        ("the next attempt", RemoteSession { at: at(4), ..open() }, false),
    ];
    for (what, seen, stays) in table {
        let channel = Hub::default().enter(&key());
        channel.apply_chunks(elsewhere(3, "m", 1, &["words"]));
        channel.apply_chunks(seen);
        assert_eq!(channel.subscribe().open_message(|_| true).is_some(), stays, "{what}");
    }
}

#[test]
fn only_local_text_is_shared_with_other_replicas() {
    let channel = Hub::default().enter(&key());
    let mut shown = SentPosition::default();
    say(&channel, 3, "m", 0, "one ");
    let offsets = |stretch: Option<DeltaBatch>| stretch.map(|it| (it.deltas[0].offset, it.deltas[0].text.clone()));
    assert_eq!(offsets(channel.take_unshared_text(&mut shown)), Some((0, "one ".to_owned())));
    assert_eq!(offsets(channel.take_unshared_text(&mut shown)), None);
    say(&channel, 3, "m", 0, "two");
    assert_eq!(offsets(channel.take_unshared_text(&mut shown)), Some((4, "two".to_owned())));
    channel.apply_chunks(elsewhere(5, "n", 1, &["three"]));
    assert_eq!(offsets(channel.take_unshared_text(&mut shown)), None);
}

#[test]
fn hub_head_only_moves_forward() {
    let channel = Hub::default().enter(&key());
    let reader = channel.subscribe();
    channel.advance(Seq(5));
    channel.advance(Seq(4));
    assert_eq!(reader.head.borrow().seq, Seq(5));
}

#[test]
fn a_channel_lives_as_long_as_it_is_held() {
    let hub = Hub::default();
    let channel = hub.enter(&key());
    assert!(Arc::ptr_eq(&channel, &hub.enter(&key())));
    assert_eq!(hub.channels().len(), 1);
    drop(channel);
    assert!(hub.get(&key()).is_none());
    assert!(hub.channels().is_empty());
}

#[test]
fn a_reader_after_the_end_gets_a_new_channel() {
    let hub = Hub::default();
    let old = hub.enter(&key());
    old.advance(Seq(9));
    old.end();
    let new = hub.enter(&key());
    assert!(old.subscribe().head.borrow().is_deleted);
    assert_eq!(*new.subscribe().head.borrow(), Head::default());
    old.end();
    drop(old);
    assert!(Arc::ptr_eq(&new, &hub.enter(&key())), "the old one took nothing with it");
}

// --- Any parts, any reader
// -----------------------------------------------------------------------------------------

/// A reader, and the text of the message that it shows.
struct Screen {
    place: Subscription,
    parts: BTreeMap<u32, String>,
}

impl Screen {
    /// A new reader, with the text so far.
    fn new(channel: &Arc<Channel>) -> Self {
        let mut place = channel.subscribe();
        let open = place.open_message(|_| true).map(|open| open.parts).unwrap_or_default();
        Self { place, parts: open.into_iter().map(|(part, (_, text))| (part, text)).collect() }
    }

    /// Reads new deltas. Each delta must start where the text ends.
    fn look(&mut self) {
        for (part, offset, text) in words(self.place.more_after(|_| true)) {
            let shown = self.parts.entry(part).or_default();
            assert_eq!(usize::try_from(offset), Ok(shown.len()), "a gap or an overlap in part {part}");
            shown.push_str(&text);
        }
    }
}

/// Sends the new text to another replica, encoded as in the database.
fn share(channel: &Channel, shown: &mut SentPosition, n: &mut i32, other: &Channel) {
    let Some(stretch) = channel.take_unshared_text(shown) else {
        return;
    };
    *n += 1;
    let stretch = codec::delta::decode_stretch(&codec::delta::encode_stretch(&stretch)).unwrap();
    other.apply_chunks(RemoteSession { chunks: vec![Chunk { n: *n, stretch }], ..elsewhere(3, "m", 1, &[]) });
}

/// A delta of some part, and what happens after it.
#[derive(Debug, Clone)]
struct Piece {
    part: u32,
    text: String,
    looks: bool,
    shares: bool,
    looks_there: bool,
    comes: bool,
}

fn piece() -> impl Strategy<Value = Piece> {
    (0..6_u32, "[a-cé☂]{0,3}", any::<[bool; 3]>(), 0..8).prop_map(|(part, text, [looks, shares, looks_there], dice)| {
        Piece { part, text, looks, shares, looks_there, comes: dice == 0 }
    })
}

proptest! {
    /// Indices arrive in any order and may be missing: calls are written in parallel, and a part
    /// that the provider hides has no text.
    #[test]
    fn deltas_add_up_to_the_message_for_every_reader_on_every_replica(pieces in vec(piece(), 1..40)) {
        let here = Hub::default().enter(&key());
        let there = Hub::default().enter(&key());
        let mut readers = vec![Screen::new(&here)];
        let mut remote = vec![Screen::new(&there)];
        let mut shown = SentPosition::default();
        let mut n = 0;
        let mut written = BTreeMap::<u32, String>::new();
        for Piece { part, text, looks, shares, looks_there, comes } in pieces {
            written.entry(part).or_default().push_str(&text);
            say(&here, 3, "m", part, &text);
            if looks {
                readers[0].look();
            }
            if shares {
                share(&here, &mut shown, &mut n, &there);
            }
            if looks_there {
                remote[0].look();
            }
            if comes {
                readers.push(Screen::new(&here));
                remote.push(Screen::new(&there));
            }
        }
        share(&here, &mut shown, &mut n, &there);
        for reader in readers.iter_mut().chain(&mut remote) {
            reader.look();
            prop_assert_eq!(&reader.parts, &written);
        }
    }
}
