//! Requests that are cheap to send: that never end, that are large in memory, or that take long to validate. The
//! callers have no credential, or one with read access only.

use std::time::Duration;

use contextd::pb::{self, json_schema, media, part};
use prost::Message as _;
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tonic::{Code, Status, transport::Channel};

use super::{
    siege::{Siege, Target},
    wire::{DATA, END_HEADERS, END_STREAM, HEADERS, SETTINGS, Tally, Wire, call, field, frame, message},
};
use crate::harness::{
    raw,
    requests::input,
    upstream::{Reply, Upstream},
};

const CHECK: &str = "grpc.health.v1.Health/Check";
const WATCH: &str = "grpc.health.v1.Health/Watch";
const GET: &str = "contextd.v1.SessionService/GetSession";
const COUNT: &str = "contextd.v1.ContextService/CountTokens";
/// How long the server may take to respond while other tests use the machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// MiB by which the server may grow while large requests are received and decoded: the value of
/// `server.max_request_memory_bytes` plus the large requests that are decoded concurrently.
const LARGE_GROWTH: usize = 256;

fn authorization(key: &str) -> Vec<u8> {
    field("authorization", &format!("Bearer {key}"))
}

/// A connection whose flow-control window the server has opened. Sending more before that is a flow-control error.
async fn connected(target: Target) -> Wire {
    let wire = Wire::connect(target.address, &[]).await.unwrap();
    let opened = async {
        while wire.hears(|heard| heard.windows == 0) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, opened).await.expect("no window");
    wire
}

/// The streams of one connection, each with the beginning of a message that is never completed.
fn stalled(headers: &[u8], streams: u32, begun: usize) -> Vec<u8> {
    const PIECE: usize = 16 * 1024;
    let mut bytes = Vec::new();
    for id in (1..).step_by(2).take(streams as usize) {
        bytes.extend(frame(HEADERS, END_HEADERS, id, headers));
        let mut body = vec![0, 0, 0x3d, 0x09, 0];
        body.resize(begun, 0);
        for piece in body.chunks(PIECE) {
            bytes.extend(frame(DATA, 0, id, piece));
        }
    }
    bytes
}

/// Connections without a credential, each with unfinished health checks that fill its window.
#[tokio::test(flavor = "multi_thread")]
async fn health_checks_that_do_not_end_hold_no_memory() {
    let (siege, _) = Siege::guarded("stalled health checks", "").await;
    let attack = |target: Target| async move {
        let mut tally = Tally::default();
        let mut wires = Vec::new();
        let bytes = stalled(&call(CHECK), 15, 64 * 1024);
        for _ in 0..200 {
            let mut wire = connected(target).await;
            wire.send(&bytes, target.until + PATIENCE).await;
            wires.push(wire);
        }
        tokio::time::sleep_until(target.until).await;
        for wire in wires {
            tally.note(&wire.ended(Duration::ZERO).await);
        }
        tally
    };
    siege.attacked(attack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_health_without_a_credential_are_few() {
    const STREAMS: u32 = 900;
    let (siege, _) = Siege::guarded("anonymous health streams", "").await;
    let attack = |target: Target| async move {
        let mut wire = Wire::connect(target.address, &[]).await.unwrap();
        let mut burst = Vec::new();
        for id in (1..).step_by(2).take(STREAMS as usize) {
            burst.extend(frame(HEADERS, END_HEADERS, id, &call(WATCH)));
            burst.extend(frame(DATA, END_STREAM, id, &message(&[])));
        }
        wire.send(&burst, target.until + PATIENCE).await;
        let last = Instant::now() + PATIENCE;
        let seen = |wire: &Wire| wire.hears(|heard| heard.answers + heard.refusals);
        while seen(&wire) < STREAMS as usize && Instant::now() < last {
            sleep(Duration::from_millis(10)).await;
        }
        let (answers, refusals) = wire.hears(|heard| (heard.answers, heard.refusals));
        assert_eq!((answers, refusals), (256, STREAMS as usize - 256));
        // The streams stay open until the attack ends.
        sleep(target.until.saturating_duration_since(Instant::now())).await;
        let mut tally = Tally::default();
        tally.note(&wire.ended(Duration::ZERO).await);
        tally
    };
    siege.attacked(attack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_do_not_end_give_their_places_back() {
    const STREAMS: u32 = 100;
    let settings = "max_requests = 64\nrequest_timeout = '1s'\n";
    let (siege, key) = Siege::guarded("requests that do not end", settings).await;
    let attack = |target: Target| async move {
        let headers = [call(GET), authorization(&key)].concat();
        let mut wire = connected(target).await;
        let bytes = stalled(&headers, STREAMS, 300);
        wire.send(&bytes, target.until + PATIENCE).await;
        let last = target.until + PATIENCE;
        let ended = |wire: &Wire| wire.hears(|heard| heard.refusals);
        while ended(&wire) < STREAMS as usize && Instant::now() < last {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(ended(&wire), STREAMS as usize, "requests that were ended");
        let mut tally = Tally::default();
        tally.note(&wire.ended(Duration::ZERO).await);
        tally
    };
    siege.attacked(attack).await;
}

/// Opens twice as many connections without a call as the server accepts. Another client connects and gets a response,
/// and the server closes the oldest connections.
async fn occupy(target: Target, key: &str, tally: &mut Tally) {
    let mut wires = Vec::new();
    for _ in 0..200 {
        wires.push(Wire::connect(target.address, &[]).await.unwrap());
    }
    let mut client = Wire::connect(target.address, &[]).await.unwrap();
    let headers = [call(GET), authorization(key)].concat();
    let request = [frame(HEADERS, END_HEADERS, 1, &headers), frame(DATA, END_STREAM, 1, &message(&[]))].concat();
    client.send(&request, Instant::now() + PATIENCE).await;
    let answered = async {
        while client.hears(|heard| heard.refusals + heard.answers) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, answered).await.expect("no answer");
    let closed = || wires.iter().filter(|wire| wire.hears(|heard| heard.closed)).count();
    let closing = async {
        while closed() < 100 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, closing).await.expect("none is closed");
    for wire in wires {
        tally.note(&wire.ended(Duration::ZERO).await);
    }
}

/// Attackers hold the maximum number of connections without calling anything while another client connects.
#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_call_keep_no_client_out() {
    let settings = "max_connections = 100\n";
    let (siege, key) = Siege::guarded("idle connections of a peer", settings).await;
    let attack = |target: Target| async move {
        let mut tally = Tally::default();
        while tally.connections == 0 || Instant::now() < target.until {
            occupy(target, &key, &mut tally).await;
        }
        tally
    };
    let tally = siege.attacked(attack).await;
    assert!(tally.ended() >= 100, "{tally:?}");
}

/// Sends one request repeatedly, on this many connections.
async fn repeated(target: Target, key: String, rpc: &'static str, request: Vec<u8>, at_once: usize) -> Vec<Code> {
    let channel =
        || async move { Channel::from_shared(format!("http://{}", target.address)).unwrap().connect().await.unwrap() };
    let mut clients = JoinSet::new();
    for _ in 0..at_once {
        let (channel, key, request) = (channel().await, key.clone(), request.clone());
        clients.spawn(async move {
            let authorization = format!("Bearer {key}");
            let mut codes = Vec::new();
            while Instant::now() < target.until {
                let called = raw::call_as(channel.clone(), Some(&authorization), rpc, request.clone());
                let answer = timeout(PATIENCE, called).await;
                let answer = answer.unwrap_or_else(|_| Err(Status::unknown("no answer")));
                codes.push(answer.err().map_or(Code::Ok, |status| status.code()));
            }
            codes
        });
    }
    clients.join_all().await.concat()
}

/// Attacks a server with one request and returns the status codes of the responses.
async fn besieged(name: &'static str, rpc: &'static str, request: Vec<u8>, at_once: usize) -> Vec<Code> {
    let guarded = Siege::guarded(name, "").await;
    besieged_in(guarded, rpc, request, at_once).await
}

/// Like [`besieged`], for a server with additional settings.
async fn besieged_in((siege, key): (Siege, String), rpc: &'static str, request: Vec<u8>, at_once: usize) -> Vec<Code> {
    let codes = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&codes);
    let attack = move |target: Target| async move {
        let answered = repeated(target, key, rpc, request, at_once).await;
        let tally = Tally { connections: at_once, answers: answered.len(), ..Tally::default() };
        *seen.lock().unwrap() = answered;
        tally
    };
    siege.growing(LARGE_GROWTH).attacked(attack).await;
    let codes = codes.lock().unwrap();
    assert!(!codes.is_empty());
    codes.clone()
}

/// 4.1 MB on the wire, one gigabyte in memory.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_unpack_to_a_gigabyte_are_refused_before_they_are_decoded() {
    let one =
        pb::CountTokensRequest { messages: vec![pb::InputMessage::default()], ..pb::CountTokensRequest::default() };
    let request = one.encode_to_vec().repeat(2_050_000);
    let codes = besieged("empty messages", COUNT, request, 3).await;
    assert!(codes.iter().all(|code| *code == Code::ResourceExhausted), "{codes:?}");
}

/// A request with this number of media in one message, of less than 30 bytes each.
fn many_media(number: u32) -> Vec<u8> {
    let media = |i: u32| pb::Part {
        content: Some(part::Content::Media(pb::Media {
            media_type: "image/png".to_owned(),
            source: Some(media::Source::Data(i.to_be_bytes().to_vec())),
            ..pb::Media::default()
        })),
        ..pb::Part::default()
    };
    let request = pb::CountTokensRequest {
        messages: vec![pb::InputMessage {
            role: pb::Role::User.into(),
            parts: (0..number).map(media).collect(),
            ..pb::InputMessage::default()
        }],
        ..pb::CountTokensRequest::default()
    };
    request.encode_to_vec()
}

/// 1.4 MB of media that have to be compared with each other.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_media_in_a_request_hold_no_other_client() {
    let codes = besieged("many media", COUNT, many_media(60_000), 3).await;
    assert!(codes.iter().all(|code| *code != Code::Ok), "{codes:?}");
}

/// Clients that disconnect before or while their requests are decoded.
#[tokio::test(flavor = "multi_thread")]
async fn large_requests_are_given_up_with_their_calls() {
    const AT_ONCE: u64 = 8;
    /// Decoding the abandoned requests one after another would take several times as long.
    const SOON: Duration = Duration::from_secs(20);
    let (siege, key) = Siege::guarded("large requests that are given up", "").await;
    let request = many_media(60_000);
    let attack = |target: Target| async move {
        let channel = Channel::from_shared(format!("http://{}", target.address)).unwrap();
        let channel = channel.connect().await.unwrap();
        let authorization = format!("Bearer {key}");
        let called = || raw::call_as(channel.clone(), Some(&authorization), COUNT, request.clone());
        let mut given_up = 0;
        loop {
            let calls = (0..AT_ONCE).map(|n| timeout(Duration::from_millis(5 + 20 * n), called()));
            let ended = futures_util::future::join_all(calls).await;
            given_up += ended.iter().filter(|ended| ended.is_err()).count();
            if Instant::now() >= target.until {
                break;
            }
        }
        eprintln!("large requests that were given up: {given_up}");
        assert!(given_up > 0);
        let begun = Instant::now();
        let answer = timeout(SOON, called()).await.expect("no answer");
        eprintln!("the next one was answered after {:?}", begun.elapsed());
        assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument);
        Tally::default()
    };
    siege.growing(LARGE_GROWTH).attacked(attack).await;
}

/// Schemas whose properties are all required, and a schema that references itself.
#[tokio::test(flavor = "multi_thread")]
async fn large_schemas_of_tools_hold_no_other_client() {
    let names: Vec<String> = (0..4_000).map(|i| format!("p{i}")).collect();
    let properties: Vec<String> = names.iter().map(|name| format!("\"{name}\":{{}}")).collect();
    let wide = format!(
        "{{\"type\":\"object\",\"properties\":{{{}}},\"required\":[\"{}\"]}}",
        properties.join(","),
        names.iter().take(3_000).cloned().collect::<Vec<_>>().join("\",\"")
    );
    let itself: Vec<String> = (0..200).map(|i| format!("\"p{i}\":{{\"$ref\":\"#\"}}")).collect();
    let deep = format!("{{\"type\":\"object\",\"properties\":{{{}}}}}", itself.join(","));
    let tools = (0..3).map(|i| pb::Tool {
        name: format!("tool_{i}"),
        input_schema: Some(pb::JsonSchema {
            schema: Some(json_schema::Schema::Json(if i == 0 { deep.clone() } else { wide.clone() })),
        }),
        ..pb::Tool::default()
    });
    let request = pb::CountTokensRequest {
        tools: Some(pb::ToolSet { host_tools: tools.collect(), ..pb::ToolSet::default() }),
        model: "scripted/brief".to_owned(),
        ..pb::CountTokensRequest::default()
    };
    let codes = besieged("large schemas", COUNT, request.encode_to_vec(), 3).await;
    assert!(codes.contains(&Code::Ok), "{codes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_large_texts_leave_room_to_other_tenants() {
    let request = pb::CountTokensRequest {
        messages: (0..1)
            .map(|_| pb::InputMessage {
                role: pb::Role::User.into(),
                parts: vec![pb::Part {
                    content: Some(part::Content::Text("words and more ".repeat(65_000))),
                    ..pb::Part::default()
                }],
                ..pb::InputMessage::default()
            })
            .collect(),
        model: "scripted/brief".to_owned(),
        ..pb::CountTokensRequest::default()
    };
    let codes = besieged("counts of large texts", COUNT, request.encode_to_vec(), 16).await;
    let expected = [Code::Ok, Code::ResourceExhausted];
    assert!(codes.iter().all(|code| expected.contains(code)), "{codes:?}");
}

/// A model name that is another path of the operator's service, which is called with the operator's key.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_whose_name_is_another_path_reaches_no_service() {
    let service = Upstream::start().await;
    let settings = format!(
        "[models]\ndiscover = false\n[providers.g]\nkind = 'gemini'\nbase_url = '{}'\napi_key = 'k'\n",
        service.base_url()
    );
    let (siege, key) = Siege::guarded("names that are paths", &settings).await;
    let count = |model: &str| pb::CountTokensRequest {
        messages: vec![input("Hello")],
        model: model.to_owned(),
        exact: true,
        ..pb::CountTokensRequest::default()
    };
    service.answer(Reply::json(200, &json!({"totalTokens": 3})));
    let asked = count("g/gemini-2.5-flash").encode_to_vec();
    let authorization = format!("Bearer {key}");
    let channel = siege.client_with(&key).await.channel;
    let answer = raw::call_as(channel, Some(&authorization), COUNT, asked).await;
    assert!(answer.is_ok(), "a name that is one is asked about");
    assert_eq!(service.count(), 1);
    let request = count("g/g/../admin/keys?x=").encode_to_vec();
    let codes = besieged_in((siege, key), COUNT, request, 4).await;
    let refusals = [Code::NotFound, Code::InvalidArgument];
    assert!(codes.iter().all(|code| refusals.contains(code)), "{codes:?}");
    let paths: Vec<_> = service.requests().into_iter().map(|it| it.path).collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
}

/// A client that cancels all of its calls keeps its connection.
#[tokio::test(flavor = "multi_thread")]
async fn an_honest_client_that_cancels_many_calls_at_once_keeps_its_connection() {
    use super::wire::RST_STREAM;
    const CALLS: u32 = 500;
    let (siege, key) = Siege::guarded("quick cancels", "").await;
    let attack = |target: Target| async move {
        let mut wire = Wire::connect(target.address, &[]).await.unwrap();
        let headers = [call(GET), authorization(&key)].concat();
        let mut burst = Vec::new();
        for id in (1..).step_by(2).take(CALLS as usize) {
            burst.extend(frame(HEADERS, END_HEADERS, id, &headers));
        }
        for id in (1..).step_by(2).take(CALLS as usize) {
            burst.extend(frame(RST_STREAM, 0, id, &[0, 0, 0, 8]));
        }
        let last = CALLS * 2 + 1;
        burst.extend(frame(HEADERS, END_HEADERS, last, &headers));
        burst.extend(frame(DATA, END_STREAM, last, &message(&[])));
        burst.extend(frame(SETTINGS, 0, 0, &[]));
        wire.send(&burst, target.until + PATIENCE).await;
        let answered = async {
            while wire.hears(|heard| heard.refusals + heard.answers) == 0 {
                assert!(!wire.hears(|heard| heard.closed), "it was closed");
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, answered).await.expect("no answer");
        tokio::time::sleep_until(target.until).await;
        let mut tally = Tally::default();
        tally.note(&wire.ended(Duration::ZERO).await);
        tally
    };
    let tally = siege.attacked(attack).await;
    assert_eq!(tally.ended(), 0, "{tally:?}");
}
