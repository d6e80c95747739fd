//! Clients: each runs turns in one session after another while a meddler interferes and a reader reads. Their shared
//! state: what was acknowledged, which events they received, and which violations they found.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use contextd::pb::{
    self, SessionState, event::Payload, part::Content, queue_service_client::QueueServiceClient,
    session_service_client::SessionServiceClient,
};
use tokio::{
    sync::broadcast::{self, Receiver},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Status, transport::Channel};
use tonic_types::StatusExt as _;

use crate::{
    fleet::Fleet,
    harness::{process::try_channel, survivor::passes},
    meddler,
    model::{Answer, DIALECTS, Service},
    policy,
    random::Random,
    reader,
    visit::Visit,
};

/// Time limit of a turn under any faults.
const LONGEST_TURN: Duration = Duration::from_secs(120);
/// A stream that is silent for this long is closed.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);
/// Time limit of any other call.
pub(crate) const CALL: Duration = Duration::from_secs(10);

/// What a replica is doing for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It streams the model's response.
    Streaming,
    /// It has the model's complete response and commits it.
    Committing,
    /// It waits for tool results.
    AwaitingTools,
    /// It resumes a turn: the last results are being sent to it, or it has taken the turn over.
    Resuming,
    /// It has a summary generated, or applies one.
    Compacting,
}

impl Phase {
    /// All phases.
    pub(crate) const ALL: [Self; 5] =
        [Self::Streaming, Self::Committing, Self::AwaitingTools, Self::Resuming, Self::Compacting];
}

/// A replica was observed in a phase.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) phase: Phase,
    /// The number of the replica.
    pub(crate) replica: usize,
    pub(crate) at: Instant,
    /// The mark of the response that is committed.
    pub(crate) mark: Option<String>,
    /// The commit that follows ends a turn or applies a compaction.
    pub(crate) last: bool,
}

/// What the clients of one session sent and received.
#[derive(Debug, Default, Clone)]
pub(crate) struct Session {
    /// The marks of turn inputs that were acknowledged, and the request id of each.
    pub(crate) inputs: BTreeMap<String, String>,
    /// The marks of enqueued messages, by message id.
    pub(crate) queued: BTreeMap<String, String>,
    /// The durable events received, by seq.
    pub(crate) seen: BTreeMap<i64, pb::Event>,
    /// Compaction requests and the response of each attempt.
    pub(crate) compactions: Vec<(pb::CompactRequest, pb::Compaction)>,
    /// Compactions that were reverted, by the response.
    pub(crate) reverted: BTreeSet<String>,
}

/// The shared state of all clients.
#[derive(Clone)]
pub(crate) struct Clients {
    fleet: Arc<Fleet>,
    moments: broadcast::Sender<Moment>,
    sessions: Arc<Mutex<BTreeMap<String, Session>>>,
    violations: Arc<Mutex<Vec<String>>>,
    seed: u64,
}

impl Clients {
    /// Creates the shared state without any session.
    pub(crate) fn new(fleet: &Arc<Fleet>, service: &Service, seed: u64) -> Self {
        let moments = broadcast::Sender::new(1024);
        let mut answers = service.answers.subscribe();
        let told = moments.clone();
        tokio::spawn(async move {
            loop {
                match answers.recv().await {
                    Ok(Answer { replica, mark, whole, last, summary }) => {
                        let phase = match (summary, whole) {
                            (true, _) => Phase::Compacting,
                            (false, true) => Phase::Committing,
                            (false, false) => Phase::Streaming,
                        };
                        let mark = whole.then_some(mark);
                        let last = whole && last;
                        let _ = told.send(Moment { phase, replica, at: Instant::now(), mark, last });
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
        });
        Self { fleet: Arc::clone(fleet), moments, sessions: Arc::default(), violations: Arc::default(), seed }
    }

    /// Subscribes to the moments from now on.
    pub(crate) fn moments(&self) -> Receiver<Moment> {
        self.moments.subscribe()
    }

    /// Every session.
    pub(crate) fn sessions(&self) -> BTreeMap<String, Session> {
        self.sessions.lock().unwrap().clone()
    }

    /// The violations that clients found.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    /// Reports a replica in a phase.
    pub(crate) fn tell(&self, phase: Phase, replica: usize) {
        let _ = self.moments.send(Moment { phase, replica, at: Instant::now(), mark: None, last: false });
    }

    /// Records a violation.
    pub(crate) fn complain(&self, what: String) {
        self.violations.lock().unwrap().push(what);
    }

    /// Records something about a session.
    pub(crate) fn note(&self, session: &str, note: impl FnOnce(&mut Session)) {
        note(self.sessions.lock().unwrap().entry(session.to_owned()).or_default());
    }

    /// Records a durable event that was received; a seq must always have the same event.
    pub(crate) fn see(&self, session: &str, event: &pb::Event) {
        let event = as_told_first(event.clone());
        let mut before = None;
        self.note(session, |known| before = known.seen.insert(event.seq, event.clone()));
        if let Some(before) = before.filter(|before| *before != event) {
            self.complain(format!("{session}: two events have the seq {}: {before:?}, {event:?}", event.seq));
        }
    }

    /// A random replica.
    pub(crate) fn any(&self, random: &mut Random) -> usize {
        random.below(self.fleet.replicas.len())
    }

    /// A connection to a replica.
    pub(crate) async fn reach(&self, replica: usize) -> Result<Channel, Status> {
        let address = self.fleet.replicas[replica].clients.address;
        timeout(CALL, try_channel(address)).await.unwrap_or_else(|_| Err(Status::unavailable("no connection")))
    }

    /// Repeats a call on random replicas until it gets a response. Returns `None` if it was refused for a temporary
    /// reason; any other refusal is recorded as a violation.
    pub(crate) async fn insist<T, F>(&self, who: &str, random: &mut Random, call: impl Fn(Channel) -> F) -> Option<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.insist_unless(&[], who, random, call).await
    }

    /// Like `insist`, but a refusal for one of these reasons is allowed too.
    pub(crate) async fn insist_unless<T, F>(
        &self,
        reasons: &[&str],
        who: &str,
        random: &mut Random,
        call: impl Fn(Channel) -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let begun = Instant::now();
        while begun.elapsed() < LONGEST_TURN {
            let answer = match self.reach(self.any(random)).await {
                Ok(channel) => {
                    timeout(CALL, call(channel)).await.unwrap_or_else(|_| Err(Status::unavailable("no response")))
                }
                Err(status) => Err(status),
            };
            match answer {
                Ok(answer) => return Some(answer.into_inner()),
                Err(status) if passes(&status) => pause(random, 5, 60).await,
                Err(status) if [Code::Aborted, Code::ResourceExhausted].contains(&status.code()) => {
                    return None;
                }
                Err(status) if reasons.iter().any(|reason| is_refused_as(&status, reason)) => {
                    return None;
                }
                Err(status) => {
                    self.complain(format!("{who}: {status:?}"));
                    return None;
                }
            }
        }
        self.complain(format!("{who}: no response"));
        None
    }

    /// Empties the queue of a session and waits until no turn and no compaction runs in it.
    pub(crate) async fn bring_to_rest(&self, name: &str, random: &mut Random) {
        let begun = Instant::now();
        while begun.elapsed() < LONGEST_TURN {
            let clear = pb::ClearQueueRequest { session_id: name.to_owned(), request_id: fresh_id() };
            self.insist(name, random, |channel| {
                let clear = clear.clone();
                async move { QueueServiceClient::new(channel).clear_queue(clear).await }
            })
            .await;
            let get = pb::GetSessionRequest { session_id: name.to_owned() };
            let found = self
                .insist(name, random, |channel| {
                    let get = get.clone();
                    async move { SessionServiceClient::new(channel).get_session(get).await }
                })
                .await;
            if let Some(session) = found.and_then(|answer| answer.session)
                && session.state() == SessionState::Idle
                && session.queued_count == 0
                && !session.currently_compacting
            {
                return;
            }
            pause(random, 20, 60).await;
        }
        self.complain(format!("{name}: never became idle"));
    }
}

/// An event without what is only known later: that a message was voided, a result cleared, and that this is a replay.
pub(crate) fn as_told_first(mut event: pb::Event) -> pb::Event {
    event.replay = false;
    match event.payload.as_mut() {
        Some(Payload::MessageCommitted(pb::MessageCommitted { message: Some(message), .. })) => {
            unmark(message);
        }
        Some(Payload::ToolCallCompleted(pb::ToolCallCompleted { result: Some(result), .. })) => {
            result.prune_mark = None;
        }
        _ => {}
    }
    event
}

/// Removes from a message what is only known later.
pub(crate) fn unmark(message: &mut pb::Message) {
    (message.voided_at_seq, message.tokens) = (0, None);
    message.compacted_by.clear();
    for part in &mut message.parts {
        part.tokens = None;
        if let Some(Content::ToolResult(result)) = part.content.as_mut() {
            result.prune_mark = None;
        }
    }
}

/// Whether a call was refused for this reason.
pub(crate) fn is_refused_as(status: &Status, reason: &str) -> bool {
    status.get_error_details().error_info().is_some_and(|info| info.reason == reason)
}

/// A unique idempotency key.
pub(crate) fn fresh_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Sleeps for `least` milliseconds and up to `more` additional ones.
pub(crate) async fn pause(random: &mut Random, least: usize, more: usize) {
    tokio::time::sleep(Duration::from_millis(u64::try_from(least + random.below(more)).unwrap_or_default())).await;
}

/// Runs a client: sessions of a few turns each.
pub(crate) async fn live(clients: Clients, number: usize, stop: CancellationToken) {
    let mut random = Random::new(clients.seed, u64::try_from(number).unwrap_or_default());
    let mut session = 0;
    while !stop.is_cancelled() {
        session += 1;
        let name = format!("client-{number}-{session}");
        create(&clients, &name, &mut random).await;
        let over = CancellationToken::new();
        let at_rest = CancellationToken::new();
        let meddler = tokio::spawn(meddler::meddle(clients.clone(), name.clone(), random.other(), over.clone()));
        let reader = tokio::spawn(reader::read(clients.clone(), name.clone(), random.other(), at_rest.clone()));
        for turn in 0..1 + random.below(6) {
            if stop.is_cancelled() {
                break;
            }
            let mut visit = Visit::new(&clients, &name, turn, &mut random);
            if timeout(LONGEST_TURN, visit.until_the_end(&mut random)).await.is_err() {
                clients.complain(format!("{name}: turn {turn} never ended; seen: {:?}", visit.kinds()));
            }
        }
        over.cancel();
        meddler.await.unwrap();
        clients.bring_to_rest(&name, &mut random).await;
        at_rest.cancel();
        reader.await.unwrap();
    }
}

/// Creates a session with a random policy.
async fn create(clients: &Clients, name: &str, random: &mut Random) {
    let session = pb::Session {
        session_id: name.to_owned(),
        model: any_model(random),
        policy_overrides: Some(policy::any(random)),
        ..pb::Session::default()
    };
    let request = pb::CreateSessionRequest { session: Some(session), request_id: fresh_id() };
    clients
        .insist(name, random, |channel| {
            let request = request.clone();
            async move { SessionServiceClient::new(channel).create_session(request).await }
        })
        .await;
}

/// The scripted model, or one over HTTP.
pub(crate) fn any_model(random: &mut Random) -> String {
    match random.below(10) {
        0..4 => "scripted/chaos".to_owned(),
        _ => format!("{}/m", random.of(&DIALECTS)),
    }
}
