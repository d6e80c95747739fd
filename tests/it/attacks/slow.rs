//! Slow clients: clients that never open a flow-control window, never finish a handshake, or never make a call.

use std::time::Duration;

use contextd::{
    auth::secret,
    model::derive::hex,
    pb::{self, session_service_client::SessionServiceClient},
};
use prost::Message as _;
use tempfile::TempDir;
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    time::{Instant, sleep},
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig};

use super::{
    siege::{Client, Siege, Target, place},
    wire::{
        DATA, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, Tally, Wire, call, field, frame, message, setting,
    },
};
use crate::harness::{TestDatabase, host::until, transcripts::says};

/// How long the server may take to close a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same timeout while other tests use the machine.
const LONG_PATIENCE: Duration = Duration::from_secs(30);

/// The share of one of two tenants in 64 concurrent requests and 100 open streams. Any response beyond them took the
/// place of a response that was dropped.
const PLACES: usize = 58 + 90;

/// Creates a session with 256 kB of messages.
async fn large_session(client: &Client) {
    let mut sessions = SessionServiceClient::new(client.channel.clone());
    let session = pb::Session { session_id: "large".to_owned(), ..pb::Session::default() };
    let create = pb::CreateSessionRequest { session: Some(session), ..pb::CreateSessionRequest::default() };
    sessions.create_session(client.request(create)).await.unwrap();
    let append = pb::AppendMessagesRequest {
        session_id: "large".to_owned(),
        messages: vec![says(pb::Role::User, &"words ".repeat(44_000))],
        ..pb::AppendMessagesRequest::default()
    };
    sessions.append_messages(client.request(append)).await.unwrap();
}

/// Calls whose responses cannot be sent because the client opens no window.
async fn calls_without_window(target: Target, key: String) -> Tally {
    const STREAMS: usize = 5;
    let list = pb::ListMessagesRequest { session_id: "large".to_owned(), ..pb::ListMessagesRequest::default() };
    let watch =
        pb::WatchEventsRequest { session_id: "large".to_owned(), follow: true, ..pb::WatchEventsRequest::default() };
    let requests = [
        ("contextd.v1.SessionService/ListMessages", list.encode_to_vec()),
        ("contextd.v1.TurnService/WatchEvents", watch.encode_to_vec()),
    ];
    let no_window = setting(INITIAL_WINDOW_SIZE, 0);
    let mut tally = Tally::default();
    let mut wires = Vec::new();
    for _ in 0..4 {
        wires.push(Wire::connect(target.address, &no_window).await.unwrap());
    }
    let mut id = 1;
    // Continue at least until responses were dropped for others.
    let last = target.until + LONG_PATIENCE;
    let begun = |wires: &[Wire]| {
        let answers = wires.iter().map(|wire| wire.hears(|heard| heard.answers));
        answers.sum::<usize>()
    };
    while Instant::now() < target.until || (begun(&wires) <= PLACES && Instant::now() < last) {
        let mut burst = Vec::new();
        for _ in 0..STREAMS {
            for (rpc, request) in &requests {
                let authorization = field("authorization", &format!("Bearer {key}"));
                let headers = [call(rpc), authorization].concat();
                burst.extend(frame(HEADERS, END_HEADERS, id, &headers));
                burst.extend(frame(DATA, END_STREAM, id, &message(request)));
                id += 2;
            }
        }
        for wire in &mut wires {
            wire.send(&burst, last).await;
        }
        sleep(Duration::from_millis(100)).await;
    }
    for wire in wires {
        tally.note(&wire.ended(Duration::ZERO).await);
    }
    tally
}

/// Row I11
/// A slow client holds none of the four database connections. One tenant cannot use all of the 64 concurrent requests.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_open_no_window_hold_neither_memory_nor_connections_to_the_database() {
    let files = TempDir::new().unwrap();
    let keys = files.path().join("keys.toml");
    let mut entries = String::new();
    let [attacker, victim] = ["attacker", "victim"].map(|tenant| {
        let (key, hash) = secret::generate().unwrap();
        let hash = hex(&hash.0);
        entries += &format!("[[keys]]\nname = '{tenant}'\ntenant = '{tenant}'\naccess = 'write'\nsha256 = '{hash}'\n");
        key
    });
    std::fs::write(&keys, entries).unwrap();
    let settings = format!(
        "[server]\nmax_requests = 64\nmax_open_streams = 100\nanswer_timeout = '100ms'\n\
         [database]\npool_size = 4\n[auth]\nrequired = true\nkeys_file = '{}'\n",
        keys.display()
    );
    let place = place(&settings);
    let database = TestDatabase::new().await;
    let served = place.serve_over(&database).await;
    let channel = served.channel().await;
    let of = |key: &String| Client { channel: channel.clone(), key: Some(key.clone()) };
    large_session(&of(&attacker)).await;
    let client = of(&victim);
    let siege = Siege::of("streams without a window", place, database, served, client);
    let attack = |target| calls_without_window(target, attacker);
    let tally = siege.growing(200).attacked(attack).await;
    // Responses beyond the limit followed responses that were dropped.
    assert!(tally.answers > PLACES, "unread answers keep their places: {tally:?}");
}

/// Connections that complete the HTTP/2 preface and then send nothing, not even a response to a PING.
async fn silent_connections(target: Target) -> Tally {
    const CONNECTIONS: usize = 200;
    let mut tally = Tally::default();
    let mut wires = Vec::new();
    for _ in 0..CONNECTIONS {
        wires.push(Wire::connect(target.address, &[]).await.unwrap());
    }
    for wire in wires {
        tally.note(&wire.ended(PATIENCE).await);
    }
    assert_eq!((tally.connections, tally.ended()), (CONNECTIONS, CONNECTIONS));
    tally
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_whose_client_does_not_answer_are_closed() {
    let settings = "[server]\nkeepalive_interval = '500ms'\nkeepalive_timeout = '500ms'\n";
    let siege = Siege::begin("half-open connections", settings).await;
    siege.attacked(silent_connections).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_calls_are_closed() {
    let settings = "[server]\nmax_connection_idle = '500ms'\n";
    let siege = Siege::begin("idle connections", settings).await;
    siege.attacked(silent_connections).await;
}

/// A call with a key, which identifies the caller of the connection.
fn authenticated_call(key: &str) -> Vec<u8> {
    let authorization = field("authorization", &format!("Bearer {key}"));
    let headers = [call("contextd.v1.SessionService/GetSession"), authorization].concat();
    let headers = frame(HEADERS, END_HEADERS, 1, &headers);
    [headers, frame(DATA, END_STREAM, 1, &message(&[]))].concat()
}

/// Waits until the server has closed this many connections.
async fn closed(wires: &[Wire], number: usize) {
    let closed = || wires.iter().filter(|wire| wire.hears(|heard| heard.closed));
    until("connections to be closed", || async { closed().count() >= number }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_an_authenticated_call_are_closed_and_others_are_not() {
    let settings = "unauthenticated_connection_timeout = '2s'\n";
    let (siege, key) = Siege::guarded("connections of strangers", settings).await;
    let attack = |target: Target| async move {
        let mut known = Wire::connect(target.address, &[]).await.unwrap();
        let call = authenticated_call(&key);
        known.send(&call, Instant::now() + LONG_PATIENCE).await;
        let tally = silent_connections(target).await;
        assert!(!known.hears(|heard| heard.closed), "of a known caller");
        tally
    };
    siege.attacked(attack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_has_few_connections_without_an_authenticated_call() {
    const MOST: usize = 10;
    const CONNECTIONS: usize = 50;
    let settings = "max_unauthenticated_connections_per_peer = 10\n";
    let (siege, _) = Siege::guarded("strangers of one peer", settings).await;
    let attack = |target: Target| async move {
        let mut wires = Vec::new();
        for _ in 0..CONNECTIONS {
            wires.push(Wire::connect(target.address, &[]).await.unwrap());
        }
        closed(&wires, CONNECTIONS - MOST).await;
        let mut tally = Tally::default();
        for wire in wires {
            tally.note(&wire.ended(Duration::ZERO).await);
        }
        assert_eq!(tally.ended(), CONNECTIONS - MOST, "{tally:?}");
        tally
    };
    siege.attacked(attack).await;
}

/// The first bytes of a TLS handshake that is never completed.
const HALF_HELLO: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

async fn connect(target: Target, tls: ClientTlsConfig) -> Channel {
    Channel::from_shared(format!("https://{}", target.address))
        .unwrap()
        .tls_config(tls)
        .unwrap()
        .connect()
        .await
        .unwrap()
}

/// A thousand TLS handshakes that never complete while another client connects.
async fn half_handshakes(target: Target, tls: ClientTlsConfig) -> Tally {
    const AT_ONCE: usize = 1_000;
    let mut tally = Tally::default();
    let mut halves = std::collections::VecDeque::new();
    let half = async || {
        let mut stream = TcpStream::connect(target.address).await.unwrap();
        let _ = stream.write_all(HALF_HELLO).await;
        stream
    };
    while Instant::now() < target.until {
        while halves.len() < AT_ONCE {
            halves.push_back(half().await);
            tally.connections += 1;
        }
        connect(target, tls.clone()).await;
        tally.answers += 1;
        for old in halves.drain(..AT_ONCE / 10) {
            let closed = old.try_read(&mut [0; 64]);
            if !closed.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock) {
                *tally.ends.entry("closed".to_owned()).or_default() += 1;
            }
        }
    }
    assert!(tally.answers > 0, "no client connected meanwhile");
    tally
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_that_do_not_end_keep_no_client_out() {
    let files = TempDir::new().unwrap();
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| files.path().join(name));
    std::fs::write(&certificate, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let place = place(&format!("[tls]\ncert_file = '{}'\nkey_file = '{}'\n", certificate.display(), key.display()));
    let database = TestDatabase::new().await;
    let served = place.serve_over(&database).await;
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pair.cert.pem())).domain_name("localhost");
    let target = Target { address: served.address, until: Instant::now() };
    let client = Client { channel: connect(target, tls.clone()).await, key: None };
    let siege = Siege::of("half TLS handshakes", place, database, served, client);
    let attack = move |target| half_handshakes(target, tls);
    let tally = siege.attacked(attack).await;
    assert!(tally.ended() > 0, "{tally:?}");
}
