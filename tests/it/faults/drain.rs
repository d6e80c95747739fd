//! Graceful shutdown: contextd reports it, accepts nothing new, hands over running turns, and exits in time regardless
//! of its clients and its database.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use contextd::{
    model::{FinishReason, Message, Prompt, RequestDiff, Usage},
    pb::{self, event::Payload},
    provider::{Chunk, Finish, ModelInfo, Provider, ResponseStream},
};
use serde_json::json;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::harness::{
    Host, Options, TestDatabase,
    errors::refusal,
    events::{kinds, message_text, messages},
    host::until,
    process::{Place, Served},
    proxy::Traffic,
    requests::turn,
    survivor::{LONG_LEASE, SHORT_LEASE, Survivor, asking, becomes, pair, recoveries, slow, two_tools},
    unary::unary_calls,
};

use super::{all, check_slow, commits::behind};

fn draining(more: &str) -> String {
    format!("{LONG_LEASE}[server]\n{more}")
}

async fn ends_well(mut served: Served) -> Duration {
    let begun = Instant::now();
    let status = served.ended().await;
    assert_eq!(status.code(), Some(0), "{status}: {}", served.log_text());
    begun.elapsed()
}

/// Row F27
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_handed_over_at_its_step_boundary() {
    // The first step calls a tool that does not exist, so the turn continues without a result.
    let steps = json!({ "steps": [
        { "when": { "call": 0 }, "say": [{ "text": super::WORDS, "delay_ms": 20 }, { "tool_call": { "name": "none" } }] },
        { "when": { "otherwise": true }, "say": [{ "text": "Well.", "delay_ms": 10 }] }
    ] });
    let place = Place::new(&draining("drain_timeout = '1h'\n")).script("steps", &steps);
    let database = TestDatabase::new().await;
    let (first, second) = pair(&place, &database).await;
    let mut host = Survivor::new(asking("scripted/steps", "chat"));
    host.send_to(&first).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    first.terminate();
    assert_eq!(host.cut_off().await.code(), Code::Unavailable);
    ends_well(first).await;
    host.survive(&[&second]).await;
    host.check_story(&second).await;
    assert_eq!(
        recoveries(&host.seen).iter().map(|(cause, _)| *cause).collect::<Vec<_>>(),
        [pb::RecoveryCause::HandedOver]
    );
    let steps: Vec<_> = messages(&host.seen).iter().map(|message| message_text(message)).collect();
    assert_eq!(steps.iter().filter(|words| *words == super::WORDS).count(), 1, "{steps:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_fails_readiness_refuses_new_work_and_ends_streams_with_their_position() {
    let stall = json!({ "steps": [{ "say": [{ "text": "Hm." }, { "stall": true }] }] });
    let place = Place::new(&draining("drain_delay = '1s'\ndrain_timeout = '1s'\n"));
    let place = place.script("stall", &stall).script("slow", &slow());
    let database = TestDatabase::new().await;
    let (first, second) = pair(&place, &database).await;
    let mut ready = first.health().await;
    let mut live = first.watch_health("liveness").await;
    becomes(&mut ready, ServingStatus::Serving).await;
    becomes(&mut live, ServingStatus::Serving).await;
    let mut host = Survivor::new(asking("scripted/stall", "chat"));
    host.send_to(&first).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    let mut turns = first.turns().await;

    first.terminate();
    becomes(&mut ready, ServingStatus::NotServing).await;
    // Load balancers take a while to notice. Until then, the replica serves requests.
    let mut early = Survivor::new(asking("scripted/slow", "early"));
    early.send_to(&first).await.unwrap();
    let told = host.cut_off().await;
    assert_eq!((told.code(), refusal(&told).reason.as_str()), (Code::Unavailable, "DRAINING"));
    let late = turns.execute_turn(turn("late", "scripted/slow", "Go")).await.unwrap_err();
    assert_eq!((late.code(), refusal(&late).reason.as_str()), (Code::Unavailable, "DRAINING"));
    ends_well(first).await;
    early.survive(&[&second]).await;
    check_slow(&early, &second).await;
    host.send_to(&second).await.unwrap(); // after the last event that it has received
    host.until(|payload| matches!(payload, Payload::TurnRecovered(_))).await;
    assert_eq!(recoveries(&host.seen), [(pb::RecoveryCause::HandedOver, 2)], "{:?}", kinds(&host.seen));
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_clients_do_not_delay_a_drain() {
    let flood =
        json!({ "steps": [{ "say": [{ "repeat": { "text": "words and ", "times": 60_000 } }, { "stall": true }] }] });
    let place = Place::new(&draining("drain_timeout = '200ms'\n")).script("flood", &flood);
    let database = TestDatabase::new().await;
    let served = place.serve_over(&database).await;
    // A client that sends nothing, one that sends an incomplete preface, and one that never reads its responses.
    let silent = TcpStream::connect(served.address).await.unwrap();
    let mut rude = TcpStream::connect(served.address).await.unwrap();
    rude.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    let mut host = Survivor::new(asking("scripted/flood", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::StepStarted(_))).await;
    served.terminate();
    let took = ends_well(served).await;
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    drop((silent, rude, host));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unresponsive_database_does_not_delay_a_drain() {
    let place = Place::new(&draining("drain_timeout = '200ms'\n")).script("slow", &slow());
    let database = TestDatabase::new().await;
    let (link, served) = behind(&place, &database).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&served).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    link.all_traffic(Traffic::Stalls);
    served.terminate();
    let took = ends_well(served).await;
    assert!(took < Duration::from_secs(12), "it took {took:?}");
}

/// A model service whose prompts can no longer be counted once it was called.
#[derive(Debug, Default)]
struct Uncountable {
    called: AtomicBool,
    counts: AtomicBool,
    released: (Mutex<bool>, Condvar),
}

impl Provider for Uncountable {
    fn kind(&self) -> &'static str {
        "uncountable"
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        Some(ModelInfo::unknown(name))
    }

    fn models(&self) -> Vec<ModelInfo> {
        Vec::new()
    }

    fn arrangement(&self, _system: &str, _messages: &[Message]) -> RequestDiff {
        if self.called.load(Ordering::SeqCst) {
            self.counts.store(true, Ordering::SeqCst);
            let (released, changed) = &self.released;
            let held = changed.wait_while(released.lock().unwrap(), |released| !*released);
            drop(held.unwrap());
        }
        RequestDiff::default()
    }

    fn call(&self, _prompt: Arc<Prompt>) -> ResponseStream {
        self.called.store(true, Ordering::SeqCst);
        let usage = Usage { input: 100, output: 10, ..Usage::default() };
        let finish = Finish {
            reason: FinishReason::Stop,
            provider_reason: String::new(),
            usage: Some(usage),
            provider_model: String::new(),
            response_id: String::new(),
            metadata: None,
            prompt_usage: None,
            prompt_fingerprint: None,
        };
        Box::pin(tokio_stream::iter([Ok(Chunk::Text("Fine.".to_owned())), Ok(Chunk::Finished(finish))]))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counting_what_a_call_taught_does_not_delay_a_drain() {
    let service = Arc::new(Uncountable::default());
    let provider = Arc::clone(&service) as Arc<dyn Provider>;
    let host = Host::with(Options::default().provider("slow", provider)).await;
    host.run(turn("s", "slow/any", "Hello")).await;
    until("the prompt is being counted", || async { service.counts.load(Ordering::SeqCst) }).await;
    let begun = Instant::now();
    host.replica.drain(Duration::from_secs(20)).await;
    let took = begun.elapsed();
    *service.released.0.lock().unwrap() = true;
    service.released.1.notify_all();
    assert!(took < Duration::from_secs(10), "it took {took:?}");
}

/// Row F27
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_under_load_costs_no_turn_an_attempt() {
    let place = Place::new(&draining("drain_timeout = '300ms'\n"));
    let place = place.script("slow", &slow()).script("tools", &two_tools());
    let database = TestDatabase::new().await;
    let (one, two, three) =
        tokio::join!(place.serve_over(&database), place.serve_over(&database), place.serve_over(&database));
    let addresses = [one.address, two.address, three.address];
    let mut hosts: Vec<Survivor> = (0..18)
        .map(|n| Survivor::new(asking(["scripted/slow", "scripted/tools"][n % 2], &format!("chat-{n}"))))
        .collect();
    let restarting = async {
        let mut fresh = Vec::new();
        for served in [one, two, three] {
            let address = served.address;
            served.stop().await;
            fresh.push(place.serve_over_at(&database, address).await);
        }
        fresh
    };
    let stories = all(hosts.iter_mut().enumerate().map(async |(n, host)| {
        let mut order = addresses;
        order.rotate_left(n % 3);
        host.survive_at(&order).await;
    }));
    let (fresh, _) = tokio::join!(restarting, stories);
    for host in &hosts {
        host.check_story(&fresh[0]).await;
        for (cause, _) in recoveries(&host.seen) {
            assert_eq!(cause, pb::RecoveryCause::HandedOver, "{}", host.session());
        }
    }
}

/// How long two replicas keep serving after SIGTERM. A client that has just found a replica ready calls it well within
/// this time.
const DELAY: Duration = Duration::from_secs(3);
/// How long their turns may then take to reach a step boundary.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Pause between two calls of a caller.
const PACE: Duration = Duration::from_millis(5);
/// The time that the chart adds to these for the grace period of a pod (`drain.reserve`).
const RESERVE: Duration = Duration::from_secs(10);

/// Rows F27, and H11 of the chart
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_of_two_replicas_fails_no_unary_call_and_ends_in_the_grace_period_of_hung_clients() {
    let flood =
        json!({ "steps": [{ "say": [{ "repeat": { "text": "words and ", "times": 60_000 } }, { "stall": true }] }] });
    let settings =
        draining(&format!("drain_delay = '{}s'\ndrain_timeout = '{}ms'\n", DELAY.as_secs(), TIMEOUT.as_millis()));
    let place = Place::new(&settings).script("slow", &slow()).script("flood", &flood);
    let database = TestDatabase::new().await;
    let (one, two) = pair(&place, &database).await;
    let addresses = [one.address, two.address];
    // On each replica, one client never reads its response and keeps its connection.
    let mut hung: [_; 2] = std::array::from_fn(|n| Survivor::new(asking("scripted/flood", &format!("hung-{n}"))));
    for (host, served) in hung.iter_mut().zip([&one, &two]) {
        host.send_to(served).await.unwrap();
        host.until(|payload| matches!(payload, Payload::StepStarted(_))).await;
    }
    let enough = AtomicBool::new(false);
    let restarting = async {
        let mut fresh = Vec::new();
        for served in [one, two] {
            let address = served.address;
            served.terminate();
            let took = ends_well(served).await;
            assert!(took < DELAY + TIMEOUT + RESERVE, "it took {took:?}");
            fresh.push(place.serve_over_at(&database, address).await);
        }
        enough.store(true, Ordering::Relaxed);
        fresh
    };
    let callers = all((0..2).map(|n| unary_calls(["left", "right"][n], addresses, PACE, &enough)));
    let mut hosts: Vec<Survivor> =
        (0..4).map(|n| Survivor::new(asking("scripted/slow", &format!("chat-{n}")))).collect();
    let streams = all(hosts.iter_mut().enumerate().map(async |(n, host)| {
        let mut order = addresses;
        order.rotate_left(n % 2);
        host.survive_at(&order).await;
    }));
    let (fresh, calls, _) = tokio::join!(restarting, callers, streams);
    for calls in calls {
        assert!(calls.iter().all(|calls| *calls > 0), "{calls:?}");
    }
    for host in &hosts {
        check_slow(host, &fresh[0]).await;
    }
    drop(hung);
}

/// Row F28
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_killed_at_the_end_of_its_drain_behaves_like_a_crash() {
    let settings = format!("{SHORT_LEASE}[server]\ndrain_timeout = '1h'\n");
    let place = Place::new(&settings).script("slow", &slow());
    let database = TestDatabase::new().await;
    let (first, second) = pair(&place, &database).await;
    let mut ready = first.health().await;
    becomes(&mut ready, ServingStatus::Serving).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to(&first).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    first.terminate();
    becomes(&mut ready, ServingStatus::NotServing).await;
    first.kill_9().await;
    host.survive(&[&second]).await;
    check_slow(&host, &second).await;
    assert_eq!(recoveries(&host.seen), [(pb::RecoveryCause::LeaseExpired, 2)]);
}
