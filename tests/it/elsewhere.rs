//! Readers on other replicas than the owner of the turn, and slow readers: they miss no event and no text, and receive
//! nothing twice.

use std::collections::BTreeMap;

use contextd::{
    config::StreamConfig,
    pb::{self, event::Payload, turn_service_client::TurnServiceClient},
};
use serde_json::json;
use tonic::{Streaming, transport::Channel};

use crate::harness::{
    Host, Options, Replica, as_worker,
    events::{
        HeartbeatGuard, completed, content, kind, message_text, messages, next, requested, seqs, until, until_written,
        written,
    },
    host::{MODEL, answering, call, until as eventually},
    requests::{result, tools, turn},
};

/// The state of a client: the durable events, and the text of the open message.
#[derive(Debug, Default)]
struct Screen {
    cursor: i64,
    open: BTreeMap<(String, usize), String>,
    /// Bytes that were shown before they were committed.
    shown: usize,
    over: bool,
    pulse: HeartbeatGuard,
}

impl Screen {
    /// Applies an event like a client. Fails on a gap or a duplicate.
    fn show(&mut self, event: &pb::Event) {
        self.pulse.check(event);
        if event.seq > 0 {
            assert_eq!(event.seq, self.cursor + 1, "a gap or a double: {}", kind(event));
            self.cursor = event.seq;
        }
        match event.payload.as_ref().unwrap() {
            Payload::TextDelta(delta) => self.add(&delta.message_id, delta.part_index, delta.byte_offset, &delta.text),
            Payload::ReasoningDelta(delta) => {
                self.add(&delta.message_id, delta.part_index, delta.byte_offset, &delta.text);
            }
            Payload::ToolInputDelta(delta) => {
                self.add(&delta.message_id, delta.part_index, delta.byte_offset, &delta.text);
            }
            Payload::Sync(sync) => {
                self.open.clear();
                let message = sync.open_message.iter();
                let parts =
                    message.flat_map(|it| it.parts.iter().enumerate().map(|(n, part)| (&it.message_id, n, part)));
                self.open.extend(parts.map(|(id, n, part)| ((id.clone(), n), content(part).to_owned())));
            }
            Payload::MessageCommitted(committed) => self.commit(committed.message.as_ref().unwrap()),
            Payload::TurnRetrying(void) => self.void(&void.voided_message_id),
            Payload::TurnRecovered(void) => self.void(&void.voided_message_id),
            Payload::TurnCompleted(_) | Payload::TurnCancelled(_) | Payload::TurnFailed(_) => {
                assert!(self.open.is_empty(), "words that nobody settled: {:?}", self.open);
                self.over = true;
            }
            _ => {}
        }
    }

    fn add(&mut self, message: &str, part: i32, offset: i32, text: &str) {
        assert!(self.open.keys().all(|(open, _)| open == message), "two messages are open");
        let so_far = self.open.entry((message.to_owned(), usize::try_from(part).unwrap())).or_default();
        assert_eq!(usize::try_from(offset), Ok(so_far.len()), "words are lost or doubled before {text:?}");
        so_far.push_str(text);
    }

    fn commit(&mut self, message: &pb::Message) {
        for ((id, part), so_far) in std::mem::take(&mut self.open) {
            assert_eq!(id, message.message_id, "the words of another message were shown");
            assert!(content(&message.parts[part]).starts_with(&so_far), "{so_far:?} was never said");
            self.shown += so_far.len();
        }
    }

    fn void(&mut self, message: &str) {
        self.open.retain(|(id, _), _| id != message);
    }
}

async fn chunks(host: &Host) -> i64 {
    let client = host.database.client().await;
    client.query_one("select count(*) from partial_chunks", &[]).await.unwrap().get(0)
}

/// Waits until no stored chunk is left, after a sweep of chunks that arrived late.
async fn none_left(host: &Host) {
    eventually("the chunks to be gone", || async {
        as_worker(host.replica.engine.live.sweep_chunks()).await.unwrap();
        chunks(host).await == 0
    })
    .await;
}

/// The text of each part of the open message, in order.
fn open(screen: &Screen) -> Vec<&str> {
    screen.open.values().map(String::as_str).collect()
}

/// Reads until the open message has these texts.
async fn read_until(stream: &mut Streaming<pb::WatchEventsResponse>, screen: &mut Screen, texts: &[&str]) {
    while open(screen) != texts {
        screen.show(&next(stream).await.unwrap().expect("the stream ended too early"));
    }
}

/// Reads to the end of the turn.
async fn read_to_end(stream: &mut Streaming<pb::WatchEventsResponse>, screen: &mut Screen) {
    while !screen.over {
        screen.show(&next(stream).await.unwrap().expect("the stream ended too early"));
    }
}

// --- Other replicas
// ------------------------------------------------------------------------------------------------

fn speaks() -> Options {
    answering(&[
        json!([
            {"reasoning": "Hm."}, {"text": "One ☂"}, {"wait_for": "more"}, {"text": " and more", "chunk_chars": 1},
            call("look"), {"wait_for": "end"}
        ]),
        json!([{"text": "Done."}]),
    ])
}

fn asks(session: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn(session, MODEL, "Go") }
}

/// Row D3
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_on_another_replica_gets_deltas_live() {
    let host = Host::with(speaks()).await;
    let other = host.beside(speaks()).await;
    let mut own = host.execute(asks("s")).await;
    let mut seen = until_written(&mut own, "One ☂").await;
    let mut stream = other.watch("s", "", 0).await;
    let mut screen = Screen::default();
    read_until(&mut stream, &mut screen, &["Hm.", "One ☂"]).await;
    host.release("more");
    read_until(&mut stream, &mut screen, &["Hm.", "One ☂ and more", "{}"]).await;
    assert_eq!(host.messages("s").await.len(), 1, "nothing but the input is committed");
    host.release("end");
    seen.extend(until(&mut own, |payload| matches!(payload, Payload::ActionRequired(_))).await);
    assert_eq!(chunks(&host).await, 0, "what was written down, as the other replica saw, is gone with the commit");
    other.submit("s", vec![result(&requested(&seen)[0], "fine")]).await;
    read_to_end(&mut stream, &mut screen).await;
    assert!(screen.shown > 0);
    none_left(&host).await;
}

/// Row D3
#[tokio::test(flavor = "multi_thread")]
async fn a_new_reader_on_another_replica_gets_the_text_so_far_and_then_deltas() {
    let host = Host::with(speaks()).await;
    let other = host.beside(Options::default()).await;
    let mut own = host.execute(asks("s")).await;
    until_written(&mut own, "One ☂").await;
    // The first reader on another replica makes the owner store the text.
    let _first = other.watch("s", "", 0).await;
    eventually("the text to be written down", || async { chunks(&host).await > 0 }).await;
    let mut stream = other.watch("s", "", 0).await;
    let mut screen = Screen::default();
    let head = until(&mut stream, |payload| matches!(payload, Payload::Sync(_))).await;
    let Some(Payload::Sync(sync)) = &head.last().unwrap().payload else { unreachable!() };
    assert!(sync.open_message.is_some(), "no text so far");
    assert_eq!((sync.last_seq, sync.state()), (3, pb::SessionState::Running));
    head.iter().for_each(|event| screen.show(event));
    read_until(&mut stream, &mut screen, &["Hm.", "One ☂"]).await;
    let request = pb::WatchEventsRequest {
        session_id: "s".to_owned(),
        follow: true,
        stream: Some(pb::StreamOptions { omit_deltas: true, ..pb::StreamOptions::default() }),
        ..pb::WatchEventsRequest::default()
    };
    let mut plain = other.turns().watch_events(request).await.unwrap().into_inner();
    host.release("more");
    host.release("end");
    let whole = until(&mut plain, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    assert_eq!(written(&whole), BTreeMap::new(), "deltas were not wanted");
    while screen.cursor < *seqs(&whole).last().unwrap() {
        screen.show(&next(&mut stream).await.unwrap().unwrap());
    }
    assert!(screen.open.is_empty());
}

/// Row D3
#[tokio::test(flavor = "multi_thread")]
async fn partial_text_is_stored_only_while_another_replica_has_a_reader() {
    let host = Host::with(speaks()).await;
    let other = host.beside(speaks()).await;
    for host in [&host, &other] {
        eventually("the replica to hear wake-ups", || async { host.replica.engine.live.receives_wakeups() }).await;
    }
    let mut own = host.execute(asks("s")).await;
    until_written(&mut own, "One ☂").await;
    for _ in 0..3 {
        as_worker(host.replica.engine.live.share()).await.unwrap();
        assert_eq!(chunks(&host).await, 0, "text is written down for no reader");
    }
    let mut stream = other.watch("s", "", 0).await;
    let mut screen = Screen::default();
    read_until(&mut stream, &mut screen, &["Hm.", "One ☂"]).await;
    assert!(chunks(&host).await > 0);
    host.release("more");
    read_until(&mut stream, &mut screen, &["Hm.", "One ☂ and more", "{}"]).await;
}

/// Row D3: partial text of a dead replica is void and is replaced by the text of its successor.
#[tokio::test(flavor = "multi_thread")]
async fn partial_text_of_a_dead_replica_is_voided_on_every_other() {
    let gone = Host::with(speaks()).await;
    let first = gone.beside(speaks()).await;
    let second = gone.beside(speaks()).await;
    let mut own = gone.execute(asks("s")).await;
    until_written(&mut own, "One ☂").await;
    let mut readers = Vec::new();
    for host in [&first, &second] {
        let mut stream = host.watch("s", "", 0).await;
        let mut screen = Screen::default();
        read_until(&mut stream, &mut screen, &["Hm.", "One ☂"]).await;
        readers.push((stream, screen));
    }
    gone.simulate_crash().await;
    for (stream, screen) in &mut readers {
        let lost = screen.open.keys().next().unwrap().0.clone();
        while open(screen) == ["Hm.", "One ☂"] {
            screen.show(&next(stream).await.unwrap().unwrap());
        }
        read_until(stream, screen, &["Hm.", "One ☂"]).await;
        assert_ne!(screen.open.keys().next().unwrap().0, lost, "the words of the lost replica are still shown");
    }
    for host in [&gone, &first, &second] {
        host.release("more");
        host.release("end");
    }
    for (stream, screen) in &mut readers {
        while !screen.open.is_empty() {
            screen.show(&next(stream).await.unwrap().unwrap());
        }
    }
    assert_eq!(message_text(messages(&first.events("s", "", 0, 100).await)[1]), "One ☂ and more");
    gone.at_rest().await;
    none_left(&first).await;
}

// --- Any point, any replica
// ----------------------------------------------------------------------------------------

/// A small generator of numbers below a bound. The sequence depends only on the seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// A client that reads a few events, disconnects, and reconnects to a random replica, until the turn has ended.
async fn restless(hosts: &[Host], session: &str, dice: &mut Dice, dies_after: Option<usize>) -> (Screen, usize) {
    let mut screen = Screen::default();
    let mut visits = 0;
    let mut alive = 0;
    while !screen.over {
        if dies_after == Some(visits) {
            hosts[0].simulate_crash().await;
            alive = 1;
        }
        visits += 1;
        let host = &hosts[alive + dice.below(hosts.len() - alive)];
        let mut stream = host.watch(session, "", screen.cursor).await;
        for _ in 0..=dice.below(6) {
            let event = next(&mut stream).await.unwrap().unwrap();
            screen.show(&event);
            let calls = match &event.payload {
                Some(Payload::Sync(sync)) => {
                    sync.pending_calls.iter().map(|it| it.call.as_ref().unwrap().call_id.clone()).collect()
                }
                Some(Payload::ActionRequired(action)) => action.result_call_ids.clone(),
                _ => Vec::new(),
            };
            if !calls.is_empty() {
                host.submit(session, calls.iter().map(|id| result(id, "fine")).collect()).await;
            }
            if screen.over {
                break;
            }
        }
    }
    (screen, visits)
}

/// Row D3: I1, including deltas. The output names the seed of a failure; the timing of a run is not determined by the
/// seed.
#[tokio::test(flavor = "multi_thread")]
async fn no_event_or_delta_is_lost_or_duplicated_when_a_reader_switches_replicas() {
    const WORDS: &str = "All the words of a long answer, one after the other — and not one of them twice ☂.";
    let options = || {
        answering(&[
            json!([{"reasoning": "Let me think.", "delay_ms": 2}, {"text": WORDS, "chunk_chars": 2, "delay_ms": 5}, call("look")]),
            json!([{"text": WORDS, "chunk_chars": 3, "delay_ms": 5}]),
        ])
    };
    let mut shown = 0;
    let mut most = 0;
    for seed in 0..8 {
        let first = Host::with(options()).await;
        let hosts = [first.beside(options()).await, first.beside(options()).await, first];
        let mut dice = Dice(seed);
        // With every second seed, the replica that runs the turn dies during the test.
        let dies_after = (seed % 2 == 1).then(|| 1 + dice.below(6));
        eprintln!("seed {seed}, the owner dies after {dies_after:?} visits");
        hosts[0].execute(asks("s")).await;
        let (screen, visits) = restless(&hosts, "s", &mut dice, dies_after).await;
        let told = hosts[1].events("s", "", 0, 100).await;
        assert_eq!(i64::try_from(told.len()), Ok(screen.cursor));
        completed(&told);
        shown += screen.shown;
        most = most.max(visits);
    }
    assert!(shown > WORDS.len(), "words were shown before they were committed: {shown}");
    assert!(most > 8, "the readers moved: {most}");
}

// --- Slow readers
// --------------------------------------------------------------------------------------------------

/// A connection whose windows are too small for a stream to buffer much.
async fn narrow(replica: &Replica) -> TurnServiceClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{}", replica.address)).unwrap();
    let endpoint = endpoint.initial_stream_window_size(1024).initial_connection_window_size(65_535);
    TurnServiceClient::new(endpoint.connect().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_reader_blocks_nobody_and_gets_everything_later() {
    let long = json!([{"text": "Hear "}, {"repeat": {"text": "word ", "times": 20_000}}]);
    let options = Options { stream: StreamConfig { reader_events: 4, reader_bytes: 4096 }, ..answering(&[long]) };
    let host = Host::with(options).await;
    host.ask("s", "Hello").await;
    let mut stalled = Vec::new();
    for _ in 0..8 {
        let request = pb::WatchEventsRequest { session_id: "s".to_owned(), follow: true, ..Default::default() };
        stalled.push(narrow(&host.replica).await.watch_events(request).await.unwrap().into_inner());
    }
    let mut quick = host.watch("s", "", 0).await;
    let mut screen = Screen::default();
    for n in 0..12 {
        let seen = host.ask("s", "Again").await;
        assert_eq!(message_text(messages(&seen)[1]).len(), 5 + 5 * 20_000);
        let last = *seqs(&seen).last().unwrap();
        while screen.cursor < last {
            screen.show(&next(&mut quick).await.unwrap().unwrap());
        }
        assert_eq!(screen.cursor, 6 * (n + 2));
    }
    for stream in &mut stalled {
        let mut late = Screen::default();
        while late.cursor < screen.cursor {
            late.show(&next(stream).await.unwrap().unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_stream_sends_heartbeats() {
    let host = Host::scripted(&[json!([{"text": "Hello."}])]).await;
    host.ask("s", "Hello").await;
    let request = pb::WatchEventsRequest {
        session_id: "s".to_owned(),
        after_seq: 6,
        follow: true,
        stream: Some(pb::StreamOptions {
            heartbeat_interval: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
            ..pb::StreamOptions::default()
        }),
        ..pb::WatchEventsRequest::default()
    };
    let mut stream = host.turns().watch_events(request).await.unwrap().into_inner();
    let seen = until(&mut stream, |payload| matches!(payload, Payload::Heartbeat(_))).await;
    let Some(Payload::Heartbeat(beat)) = &seen.last().unwrap().payload else { unreachable!() };
    assert_eq!((beat.last_seq, seqs(&seen)), (6, Vec::new()));
}
