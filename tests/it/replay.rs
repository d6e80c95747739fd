//! The cost of a replay: how often its content is read from the database, and that it is not written again.

use contextd::{
    config::StreamConfig,
    pb::{self, event::Payload},
};
use prost::Message as _;
use serde_json::json;

use crate::harness::{
    Host, Options,
    events::{all, durable, seqs},
    host::{answering, call},
    proxy::{Link, Way},
    requests::{result, text, tools, turn},
    transcripts::message,
};

/// Number of steps that each end with a large result.
const STEPS: usize = 20;
/// Characters of a result.
const LARGE: usize = 100_000;

/// A replica whose database connections go through a link that counts bytes. It only serves a reader.
async fn counting(host: &Host, link: &Link, stream: StreamConfig) -> Host {
    Host::over(link.database(&host.database), Options { workers: false, stream, ..Options::default() }).await
}

/// Replays all events of a session once.
async fn replay(host: &Host, session: &str) -> Vec<pb::Event> {
    let request = pb::WatchEventsRequest { session_id: session.to_owned(), ..pb::WatchEventsRequest::default() };
    all(&mut host.turns().watch_events(request).await.unwrap().into_inner()).await
}

fn bytes(events: &[pb::Event]) -> u64 {
    events.iter().map(|event| event.encoded_len() as u64).sum()
}

/// A session with many large results, each larger than the buffer of a reader.
async fn with_large_results() -> Host {
    let mut answers = vec![json!([call("look")]); STEPS];
    answers.push(json!([{"text": "Done."}]));
    let host = Host::with(answering(&answers)).await;
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", "scripted/it", "Go") };
    host.run_with(request, |call| result(&call.call_id, &"word ".repeat(LARGE / 5))).await;
    host
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_reads_content_from_the_database_once() {
    let host = with_large_results().await;
    let large = StreamConfig { reader_events: 64, reader_bytes: 1024 * 1024 };
    for stream in [Options::default().stream, StreamConfig { reader_events: 4, reader_bytes: 4096 }, large] {
        let link = Link::to_database(&host.database).await;
        let other = counting(&host, &link, stream).await;
        // Opens connections and prepares statements before the measurement.
        other.session("s").await;
        let before = link.carried(Way::Back);
        let seen = replay(&other, "s").await;
        let read = link.carried(Way::Back) - before;
        let sent = bytes(&seen);
        assert_eq!(seqs(&seen).len(), durable(&host.events("s", "", 0, 100).await).len());
        assert!(sent > 2 * (STEPS * LARGE) as u64, "a result is sent when it comes and with its message: {sent}");
        let ratio = read as f64 / sent as f64;
        eprintln!("{stream:?}: {read} bytes read for {sent} bytes sent, {ratio:.2}");
        assert!(ratio <= 1.2, "{read} bytes were read for {sent} bytes that were sent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_events_reads_content_from_the_database_once() {
    let host = with_large_results().await;
    let link = Link::to_database(&host.database).await;
    let other = counting(&host, &link, Options::default().stream).await;
    other.session("s").await;
    let before = link.carried(Way::Back);
    let seen = other.events("s", "", 0, 100).await;
    let read = link.carried(Way::Back) - before;
    let sent = bytes(&seen);
    eprintln!("{read} bytes read for {sent} bytes listed");
    assert!(read as f64 <= 1.1 * sent as f64, "{read} bytes were read for {sent} bytes that were listed");
}

/// An event that is too large for a client is sent as a preview with a reference to a blob, which the first reader
/// stores.
#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_event_is_stored_as_a_blob_once_however_often_it_is_read() {
    let host = Host::with(Options::default()).await;
    host.create(pb::Session { session_id: "s".to_owned(), ..pb::Session::default() }).await;
    let parts = ["one ", "two ", "six "].map(|word| text(&word.repeat(250_000)));
    host.append("s", vec![message(pb::Role::User, parts.to_vec())]).await;
    let link = Link::to_database(&host.database).await;
    let other = counting(&host, &link, Options::default().stream).await;
    let first = replay(&other, "s").await;
    let preview = first.iter().find_map(|event| match &event.payload {
        Some(Payload::MessageCommitted(committed)) => committed.message.as_ref()?.parts[0].preview_of.clone(),
        _ => None,
    });
    assert_eq!(preview.expect("a preview").size_bytes, 1_000_000);
    let written = link.carried(Way::There);
    assert!(written > 2_000_000, "the first reader stores the whole: {written}");
    for _ in 0..3 {
        assert_eq!(replay(&other, "s").await.len(), first.len());
    }
    let again = link.carried(Way::There) - written;
    assert!(again < 100_000, "{again} bytes went to the database for readers that came later");
}
