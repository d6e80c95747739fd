//! A host that outlives the contextd process that it is connected to, with models and settings for such tests. Every
//! contextd here is a separate process.

use std::{net::SocketAddr, time::Duration};

use contextd::pb::{self, event::Payload};
use serde_json::{Value, json};
use tonic::{Code, Status, Streaming};
use tonic_health::pb::{HealthCheckResponse, health_check_response::ServingStatus};
use tonic_types::StatusExt as _;

use super::{
    TestDatabase,
    events::{TEST_TIMEOUT, kind, kinds, messages, next, requested},
    process::{Place, Served, try_turns},
    requests::{result, submit, tools, turn},
};

/// A lost process is detected soon.
pub const SHORT_LEASE: &str = "[turn]\nlease_ttl = '2s'\npoll_interval = '50ms'\n";
/// A lost process is not detected during a test, so a turn that continues was handed over.
pub const LONG_LEASE: &str = "[turn]\nlease_ttl = '10m'\npoll_interval = '50ms'\n";

/// A model that produces thirty words in about a second.
pub fn slow() -> Value {
    json!({ "steps": [{ "say": [{ "text": WORDS, "delay_ms": 30 }] }] })
}

pub const WORDS: &str = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen \
                     eighteen nineteen twenty and one and two and three and four";

/// A model that calls two tools at once and then responds to their results.
pub fn two_tools() -> Value {
    json!({ "steps": [
        { "when": { "call": 0 }, "say": [
            { "text": "Let me look." }, { "tool_call": { "name": "left" } }, { "tool_call": { "name": "right" } }
        ] },
        { "when": { "has_result_of": ["left", "right"] }, "say": [{ "text": "{{result:left}} {{result:right}}" }] }
    ] })
}

pub fn asking(model: &str, session: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["left", "right"]), ..turn(session, model, "Go") }
}

/// A host that retries: it repeats the same request after the last event that it has received.
pub struct Survivor {
    pub request: pb::ExecuteTurnRequest,
    stream: Option<Streaming<pb::ExecuteTurnResponse>>,
    /// The durable events in the order of their first arrival.
    pub seen: Vec<pb::Event>,
}

impl Survivor {
    pub fn new(request: pb::ExecuteTurnRequest) -> Self {
        Self { request, stream: None, seen: Vec::new() }
    }

    pub fn session(&self) -> &str {
        &self.request.session_id
    }

    pub async fn send_to(&mut self, served: &Served) -> Result<(), Status> {
        self.send_to_address(served.address).await
    }

    /// The next event. Returns `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<pb::Event>, Status> {
        let event = next(self.stream.as_mut().unwrap()).await?;
        if let Some(event) = event.as_ref().filter(|event| event.seq > 0) {
            self.seen.push(pb::Event { replay: false, ..event.clone() });
        }
        Ok(event)
    }

    /// Reads until the first event that `wanted` accepts.
    pub async fn until(&mut self, wanted: impl Fn(&Payload) -> bool) -> Payload {
        let found = async {
            loop {
                let event = self.next().await.unwrap().expect("the stream ended too early");
                if let Some(payload) = event.payload.filter(&wanted) {
                    return payload;
                }
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, found).await.expect("it never came")
    }

    /// Reads until the stream breaks. Returns its status.
    pub async fn cut_off(&mut self) -> Status {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended as if all were well"),
                Err(status) => return status,
            }
        }
    }

    /// Repeats the request, answers every pending call, and reads to the end of the turn.
    pub async fn finish_at(&mut self, served: &Served) {
        self.send_to(served).await.unwrap();
        let mut answered = false;
        while let Some(event) = self.next().await.unwrap() {
            let waiting = waiting_calls(&event);
            if !waiting.is_empty() && !answered {
                answered = true;
                self.answer(served, &waiting).await;
            }
        }
    }

    /// Retries until the end of the turn: after every failure, sends the same request to the next of these replicas and
    /// answers every pending call. Fails if a status is returned for which a retry is useless.
    pub async fn survive(&mut self, replicas: &[&Served]) {
        let addresses: Vec<SocketAddr> = replicas.iter().map(|served| served.address).collect();
        self.survive_at(&addresses).await;
    }

    /// The same, for addresses.
    pub async fn survive_at(&mut self, addresses: &[SocketAddr]) {
        let story = async {
            for address in addresses.iter().cycle() {
                match self.try_finish(*address).await {
                    Ok(()) => return,
                    Err(status) => assert!(passes(&status), "{}: {status:?}", self.session()),
                }
                tokio::time::sleep(Duration::from_millis(20)).await; // a client's delay before it retries
            }
        };
        tokio::time::timeout(TEST_TIMEOUT * 2, story).await.expect("the turn never ended");
    }

    async fn try_finish(&mut self, address: SocketAddr) -> Result<(), Status> {
        self.send_to_address(address).await?;
        while let Some(event) = self.next().await? {
            let waiting = waiting_calls(&event);
            if !waiting.is_empty() {
                let results = waiting.iter().map(|call| result(call, "fine")).collect();
                let mut turns = try_turns(address).await?;
                turns.submit_tool_results(submit(self.session(), results)).await?;
            }
        }
        Ok(())
    }

    /// Sends the request, with the seq of the last event, to an address.
    pub async fn send_to_address(&mut self, address: SocketAddr) -> Result<(), Status> {
        self.request.after_seq = self.seen.last().map_or(0, |event| event.seq);
        self.stream = Some(try_turns(address).await?.execute_turn(self.request.clone()).await?.into_inner());
        Ok(())
    }

    pub async fn answer(&self, served: &Served, calls: &[String]) -> Vec<pb::AnswerStatus> {
        let results = calls.iter().map(|call| result(call, "fine")).collect();
        let answer = served.turns().await.submit_tool_results(submit(self.session(), results)).await.unwrap();
        answer.into_inner().receipts.iter().map(pb::AnswerReceipt::status).collect()
    }

    /// Checks that the events have no gap and that the host has received all of them.
    pub async fn check_story(&self, served: &Served) {
        let told = self.check_outline(served).await;
        assert!(self.seen == told, "not the same events were streamed as are listed");
    }

    /// The same check, without the fields of events other than messages: if several versions wrote the events, the
    /// older one omitted fields that it does not know.
    pub async fn check_outline(&self, served: &Served) -> Vec<pb::Event> {
        let told = events(served, self.session()).await;
        assert_eq!(kinds(&self.seen), kinds(&told), "{}", self.session());
        assert_eq!(messages(&self.seen), messages(&told), "{}", self.session());
        let seqs: Vec<i64> = told.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, (1..=i64::try_from(told.len()).unwrap()).collect::<Vec<_>>());
        let ends: Vec<_> = told.iter().filter(|event| is_end(event)).map(|event| event.seq).collect();
        assert_eq!(ends, [told.last().unwrap().seq], "{:?}", kinds(&told));
        let mut asked = requested(&told);
        let mut answered = completed(&told);
        asked.sort();
        answered.sort();
        assert_eq!(asked, answered);
        asked.dedup();
        assert_eq!(asked.len(), answered.len());
        let steps: Vec<_> = messages(&told).iter().map(|message| (message.role, message.step)).collect();
        assert!(steps.is_sorted_by(|a, b| a.1 < b.1 || (a.1 == b.1 && a.0 < b.0)), "a step spoke twice: {steps:?}");
        told
    }
}

pub fn is_end(event: &pb::Event) -> bool {
    ["turn_completed", "turn_failed", "turn_cancelled"].contains(&kind(event))
}

/// The calls that an event reports as waiting for results.
pub fn waiting_calls(event: &pb::Event) -> Vec<String> {
    if let Some(Payload::Sync(sync)) = &event.payload {
        return sync.pending_calls.iter().map(|pending| pending.call.as_ref().unwrap().call_id.clone()).collect();
    }
    if let Some(Payload::ActionRequired(action)) = &event.payload {
        return action.result_call_ids.clone();
    }
    Vec::new()
}

pub fn completed(events: &[pb::Event]) -> Vec<String> {
    let ids = events.iter().filter_map(|event| match &event.payload {
        Some(Payload::ToolCallCompleted(done)) => Some(done.result.as_ref().unwrap().call_id.clone()),
        _ => None,
    });
    ids.collect()
}

/// The causes and attempts of the turn's recoveries.
pub fn recoveries(events: &[pb::Event]) -> Vec<(pb::RecoveryCause, i32)> {
    let recoveries = events.iter().filter_map(|event| match &event.payload {
        Some(Payload::TurnRecovered(recovered)) => Some((recovered.cause(), event.attempt)),
        _ => None,
    });
    recoveries.collect()
}

pub async fn events(served: &Served, session: &str) -> Vec<pb::Event> {
    let request = pb::ListEventsRequest { session_id: session.to_owned(), page_size: 1000, ..Default::default() };
    let page = served.turns().await.list_events(request).await.unwrap().into_inner();
    assert_eq!(page.next_after_seq, page.last_seq);
    page.events
}

/// Whether a client may retry after this status: the connection or a server failed.
pub fn passes(status: &Status) -> bool {
    [Code::Unavailable, Code::Unknown, Code::Cancelled, Code::Internal].contains(&status.code())
        && (status.code() != Code::Internal || status.get_error_details().error_info().is_none())
}

/// Waits until the health status is `wanted`.
pub async fn becomes(health: &mut Streaming<HealthCheckResponse>, wanted: ServingStatus) {
    let told = async {
        while let Some(answer) = health.message().await.unwrap() {
            if answer.status() == wanted {
                return;
            }
        }
        panic!("health fell silent");
    };
    tokio::time::timeout(TEST_TIMEOUT, told).await.expect("health never changed");
}

/// Two processes on one database.
pub async fn pair(place: &Place, database: &TestDatabase) -> (Served, Served) {
    tokio::join!(place.serve_over(database), place.serve_over(database))
}
