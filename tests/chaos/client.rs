//! Clients: they run turns one after the other, leave in the middle, come back, send results twice and cancel. Each remembers what it
//! was shown.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use contextd::pb::{self, event::Payload, turn_service_client::TurnServiceClient};
use tokio::{
    sync::broadcast::{self, Receiver},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming, transport::Channel};

use crate::{
    fleet::Fleet,
    harness::{
        process::try_turns,
        requests::{result, submit, tools, turn},
        survivor::{is_end, passes, waiting_calls},
    },
    model::{Answer, DIALECTS, Service},
    random::Random,
};

/// No turn takes longer, whatever happens to it.
const LONGEST_TURN: Duration = Duration::from_secs(120);
/// A stream that is silent for so long is given up.
const SILENCE: Duration = Duration::from_secs(5);
/// How long any other call may take.
const CALL: Duration = Duration::from_secs(10);

/// What a replica is doing for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It streams the model's words.
    Streaming,
    /// It has the model's whole answer and commits it.
    Committing,
    /// It waits for results of tools.
    AwaitingTools,
    /// It goes on with a turn: the last results are on their way to it, or it has taken the turn over.
    Resuming,
}

impl Phase {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Streaming, Self::Committing, Self::AwaitingTools, Self::Resuming];
}

/// A replica was seen in a phase.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    /// Which.
    pub(crate) phase: Phase,
    /// Where.
    pub(crate) replica: usize,
    /// When.
    pub(crate) at: Instant,
    /// Words of the answer that is committed.
    pub(crate) mark: Option<String>,
    /// The turn ends with it.
    pub(crate) last: bool,
}

/// What one session was told and shown.
#[derive(Debug, Default, Clone)]
pub(crate) struct Session {
    /// Words that nobody else said, of inputs that were acknowledged.
    pub(crate) inputs: Vec<String>,
    /// The durable events as they came, by seq.
    pub(crate) seen: BTreeMap<i64, pb::Event>,
}

/// What all clients share.
#[derive(Clone)]
pub(crate) struct Clients {
    fleet: Arc<Fleet>,
    moments: broadcast::Sender<Moment>,
    sessions: Arc<Mutex<BTreeMap<String, Session>>>,
    violations: Arc<Mutex<Vec<String>>>,
    ends: Arc<Mutex<BTreeMap<String, usize>>>,
    seed: u64,
}

impl Clients {
    /// None yet.
    pub(crate) fn new(fleet: &Arc<Fleet>, service: &Service, seed: u64) -> Self {
        let moments = broadcast::Sender::new(1024);
        let (mut answers, told) = (service.answers.subscribe(), moments.clone());
        tokio::spawn(async move {
            loop {
                match answers.recv().await {
                    Ok(Answer { replica, mark, whole, last }) => {
                        let phase = if whole { Phase::Committing } else { Phase::Streaming };
                        let mark = whole.then_some(mark);
                        let _ = told.send(Moment { phase, replica, at: Instant::now(), mark, last });
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
        });
        Self {
            fleet: Arc::clone(fleet),
            moments,
            sessions: Arc::default(),
            violations: Arc::default(),
            ends: Arc::default(),
            seed,
        }
    }

    /// Moments from now on.
    pub(crate) fn moments(&self) -> Receiver<Moment> {
        self.moments.subscribe()
    }

    /// Every session.
    pub(crate) fn sessions(&self) -> BTreeMap<String, Session> {
        self.sessions.lock().unwrap().clone()
    }

    /// What clients complain of.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    /// How turns ended.
    pub(crate) fn ends(&self) -> BTreeMap<String, usize> {
        self.ends.lock().unwrap().clone()
    }

    fn tell(&self, phase: Phase, replica: usize) {
        let _ = self.moments.send(Moment { phase, replica, at: Instant::now(), mark: None, last: false });
    }

    fn complain(&self, what: String) {
        self.violations.lock().unwrap().push(what);
    }
}

/// One client's life: sessions of a few turns each.
pub(crate) async fn live(clients: Clients, number: usize, stop: CancellationToken) {
    let mut random = Random::new(clients.seed, u64::try_from(number).unwrap_or_default());
    let mut session = 0;
    while !stop.is_cancelled() {
        session += 1;
        let name = format!("client-{number}-{session}");
        for turn in 0..1 + random.below(4) {
            if stop.is_cancelled() {
                return;
            }
            let mut visit = Visit::new(&clients, &name, turn, &mut random);
            if timeout(LONGEST_TURN, visit.until_the_end(&mut random)).await.is_err() {
                clients.complain(format!("{name}: turn {turn} never ended; seen: {:?}", visit.kinds()));
                return;
            }
        }
    }
}

/// One turn, over as many streams as it takes.
struct Visit<'a> {
    clients: &'a Clients,
    request: pb::ExecuteTurnRequest,
    input: String,
    turn_id: String,
    cancel_after: Option<usize>,
    after: i64,
    kinds: Vec<&'static str>,
}

impl<'a> Visit<'a> {
    fn new(clients: &'a Clients, session: &str, number: usize, random: &mut Random) -> Self {
        let input = format!("{session}/{number};");
        let (words, tool_count, pace) = (3 + random.below(15), random.below(3), 5 + random.below(25));
        let model = match random.below(10) {
            0..4 => "scripted/chaos".to_owned(),
            _ => format!("{}/m", random.of(&DIALECTS)),
        };
        let wish = format!("{input} words={words} tools={tool_count} pace={pace}");
        let request = pb::ExecuteTurnRequest { tools: tools(&["left", "right"]), ..turn(session, &model, &wish) };
        let seen =
            clients.sessions.lock().unwrap().get(session).and_then(|session| session.seen.keys().next_back().copied());
        Self {
            clients,
            request,
            input,
            turn_id: String::new(),
            cancel_after: random.happens(15).then(|| random.below(20)),
            after: seen.unwrap_or_default(),
            kinds: Vec::new(),
        }
    }

    fn kinds(&self) -> &[&'static str] {
        &self.kinds
    }

    async fn until_the_end(&mut self, random: &mut Random) {
        loop {
            let replica = random.below(self.clients.fleet.replicas.len());
            match self.stay(replica, random).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(status) if passes(&status) => {}
                Err(status) => {
                    self.clients.complain(format!("{}: {status:?}", self.input));
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(u64::try_from(5 + random.below(60)).unwrap_or_default())).await;
        }
    }

    async fn turns(&self, replica: usize) -> Result<TurnServiceClient<Channel>, Status> {
        let address = self.clients.fleet.replicas[replica].clients.address;
        timeout(CALL, try_turns(address)).await.unwrap_or_else(|_| Err(Status::unavailable("no connection")))
    }

    /// One stream. True: the turn has ended.
    async fn stay(&mut self, replica: usize, random: &mut Random) -> Result<bool, Status> {
        self.request.after_seq = if self.turn_id.is_empty() { 0 } else { self.after };
        let opened = timeout(CALL, self.turns(replica).await?.execute_turn(self.request.clone())).await;
        let mut stream = opened.unwrap_or_else(|_| Err(Status::unavailable("no answer")))?.into_inner();
        loop {
            let Some(event) = self.next(&mut stream).await? else { return Ok(true) };
            self.take_in(&event, replica);
            let waiting = waiting_calls(&event);
            if !waiting.is_empty() && !self.turn_id.is_empty() {
                self.clients.tell(Phase::AwaitingTools, replica);
                tokio::time::sleep(Duration::from_millis(u64::try_from(random.below(40)).unwrap_or_default())).await;
                self.answer(replica, &waiting, random).await?;
            }
            if random.happens(2) {
                return Ok(false); // leaves without a word
            }
            match self.cancel_after.as_mut() {
                Some(0) => {
                    self.cancel(random).await?;
                    self.cancel_after = None;
                }
                Some(left) => *left -= 1,
                None => {}
            }
        }
    }

    async fn next(&self, stream: &mut Streaming<pb::ExecuteTurnResponse>) -> Result<Option<pb::Event>, Status> {
        let message =
            timeout(SILENCE, stream.message()).await.unwrap_or_else(|_| Err(Status::unavailable("silence")))?;
        Ok(message.and_then(|message| message.event))
    }

    fn take_in(&mut self, event: &pb::Event, replica: usize) {
        if let Some(Payload::Admitted(_)) = &event.payload
            && self.turn_id.is_empty()
        {
            self.turn_id.clone_from(&event.turn_id);
            let mut sessions = self.clients.sessions.lock().unwrap();
            sessions.entry(self.request.session_id.clone()).or_default().inputs.push(self.input.clone());
        }
        match &event.payload {
            Some(Payload::TurnRecovered(_)) if !event.replay => self.clients.tell(Phase::Resuming, replica),
            _ => {}
        }
        if event.seq == 0 {
            return;
        }
        let kind = crate::harness::events::kind(event);
        self.kinds.push(kind);
        if is_end(event) {
            *self.clients.ends.lock().unwrap().entry(kind.to_owned()).or_default() += 1;
        }
        let event = pb::Event { replay: false, ..event.clone() };
        let mut sessions = self.clients.sessions.lock().unwrap();
        let session = sessions.entry(self.request.session_id.clone()).or_default();
        if event.seq != self.after + 1 && self.after != 0 {
            self.clients.complain(format!("{}: event {} came behind {}", self.input, event.seq, self.after));
        }
        self.after = event.seq;
        if let Some(before) = session.seen.insert(event.seq, event.clone())
            && before != event
        {
            self.clients
                .complain(format!("{}: two events have the seq {}: {before:?}, {event:?}", self.input, event.seq));
        }
    }

    /// Sends results: all at once or one by one, now and then twice and to two replicas at once.
    async fn answer(&self, replica: usize, calls: &[String], random: &mut Random) -> Result<(), Status> {
        let groups: Vec<&[String]> = if random.happens(30) { calls.chunks(1).collect() } else { vec![calls] };
        for calls in groups {
            self.clients.tell(Phase::Resuming, replica);
            let results = || calls.iter().map(|call| result(call, "fine")).collect();
            let first = self.submit(replica, results());
            if random.happens(40) {
                let elsewhere = random.below(self.clients.fleet.replicas.len());
                let (one, other) = tokio::join!(first, self.submit(elsewhere, results()));
                one.or(other)?;
            } else {
                first.await?;
            }
        }
        Ok(())
    }

    async fn submit(&self, replica: usize, results: Vec<pb::ToolResult>) -> Result<(), Status> {
        let request = submit(&self.request.session_id, results);
        let answered = timeout(CALL, self.turns(replica).await?.submit_tool_results(request)).await;
        answered.unwrap_or_else(|_| Err(Status::unavailable("no answer"))).map(drop)
    }

    async fn cancel(&self, random: &mut Random) -> Result<(), Status> {
        let (session_id, turn_id) = (self.request.session_id.clone(), self.turn_id.clone());
        let request = pb::CancelTurnRequest { session_id, turn_id, ..pb::CancelTurnRequest::default() };
        let replica = random.below(self.clients.fleet.replicas.len());
        let answered = timeout(CALL, self.turns(replica).await?.cancel_turn(request)).await;
        answered.unwrap_or_else(|_| Err(Status::unavailable("no answer"))).map(drop)
    }
}
