//! One turn of a client, which disconnects in the middle, reconnects to another replica, submits results twice and
//! cancels.

use contextd::pb::{self, BusyPolicy, CancelMode, event::Payload, turn_service_client::TurnServiceClient};
use tokio::time::timeout;
use tonic::{Status, Streaming, transport::Channel};

use crate::{
    client::{CALL, Clients, Phase, SILENCE, any_model, is_refused_as, pause},
    harness::{
        events::kind,
        requests::{result, submit, tools, turn},
        survivor::{passes, waiting_calls},
    },
    random::Random,
};

/// How often a turn is retried that is refused because another one is running.
const REFUSALS: usize = 20;
/// The number of words that make an input long enough to fill a context window.
const FILLERS: usize = 40;
/// The number of words that make it worthwhile to prune a result.
const RESULT_WORDS: usize = 60;

/// One turn, over any number of streams.
pub(crate) struct Visit<'a> {
    clients: &'a Clients,
    request: pb::ExecuteTurnRequest,
    input: String,
    turn_id: String,
    cancel_after: Option<usize>,
    refusals: usize,
    after: i64,
    kinds: Vec<&'static str>,
}

impl<'a> Visit<'a> {
    /// A turn that has not started.
    pub(crate) fn new(clients: &'a Clients, session: &str, number: usize, random: &mut Random) -> Self {
        let input = format!("{session}/{number};");
        let words = 3 + random.below(15);
        let tool_count = random.below(3);
        let pace = 5 + random.below(25);
        let model = any_model(random);
        let busy = [BusyPolicy::Enqueue, BusyPolicy::Enqueue, BusyPolicy::Reject, BusyPolicy::Interrupt];
        let filler = "and so on ".repeat(random.below(FILLERS));
        let wish = format!("{input} words={words} tools={tool_count} pace={pace} {filler}");
        let request = pb::ExecuteTurnRequest {
            tools: tools(&["left", "right"]),
            busy_policy: (*random.of(&busy)).into(),
            session: None,
            ..turn(session, &model, &wish)
        };
        Self {
            clients,
            request,
            input,
            turn_id: String::new(),
            cancel_after: random.happens(15).then(|| random.below(20)),
            refusals: 0,
            after: 0,
            kinds: Vec::new(),
        }
    }

    /// The kinds of the events received.
    pub(crate) fn kinds(&self) -> &[&'static str] {
        &self.kinds
    }

    /// Continues until the end of the turn, unless other turns keep the session busy.
    pub(crate) async fn until_the_end(&mut self, random: &mut Random) {
        while self.refusals < REFUSALS {
            let replica = self.clients.any(random);
            match self.stay(replica, random).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(status) if passes(&status) => {}
                Err(status) if is_refused_as(&status, "TURN_IN_PROGRESS") => self.refusals += 1,
                Err(status) => {
                    self.clients.complain(format!("{}: {status:?}", self.input));
                    return;
                }
            }
            pause(random, 5, 60).await;
        }
    }

    async fn turns(&self, replica: usize) -> Result<TurnServiceClient<Channel>, Status> {
        Ok(TurnServiceClient::new(self.clients.reach(replica).await?))
    }

    /// Reads one stream. Returns whether the turn has ended.
    async fn stay(&mut self, replica: usize, random: &mut Random) -> Result<bool, Status> {
        self.request.after_seq = self.after;
        let opened = timeout(CALL, self.turns(replica).await?.execute_turn(self.request.clone())).await;
        let mut stream = opened.unwrap_or_else(|_| Err(Status::unavailable("no response")))?.into_inner();
        loop {
            let Some(event) = self.next(&mut stream).await? else {
                return Ok(true);
            };
            self.take_in(&event, replica);
            let waiting = waiting_calls(&event);
            if !waiting.is_empty() {
                self.clients.tell(Phase::AwaitingTools, replica);
                pause(random, 0, 40).await;
                self.answer(replica, &waiting, random).await?;
            }
            if random.happens(2) {
                return Ok(false); // disconnects without notice
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
        if let Some(Payload::Admitted(_)) = &event.payload {
            self.turn_id.clone_from(&event.turn_id);
            let input = self.input.clone();
            let request = self.request.request_id.clone();
            self.clients.note(&self.request.session_id, |session| drop(session.inputs.insert(input, request)));
        }
        match &event.payload {
            Some(Payload::TurnRecovered(_)) if !event.replay => self.clients.tell(Phase::Resuming, replica),
            _ => {}
        }
        if event.seq == 0 {
            return;
        }
        self.kinds.push(kind(event));
        if event.seq != self.after + 1 && self.after != 0 {
            self.clients.complain(format!("{}: event {} arrived after {}", self.input, event.seq, self.after));
        }
        self.after = event.seq;
        self.clients.see(&self.request.session_id, event);
    }

    /// Submits results: all at once or one by one, sometimes twice and to two replicas at the same time.
    async fn answer(&self, replica: usize, calls: &[String], random: &mut Random) -> Result<(), Status> {
        let groups: Vec<&[String]> = if random.happens(30) { calls.chunks(1).collect() } else { vec![calls] };
        for calls in groups {
            self.clients.tell(Phase::Resuming, replica);
            let results = || calls.iter().map(|call| result(call, &"fine ".repeat(RESULT_WORDS))).collect();
            let first = self.submit(replica, results());
            if random.happens(40) {
                let elsewhere = self.clients.any(random);
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
        answered.unwrap_or_else(|_| Err(Status::unavailable("no response"))).map(drop)
    }

    async fn cancel(&self, random: &mut Random) -> Result<(), Status> {
        let session_id = self.request.session_id.clone();
        let turn_id = self.turn_id.clone();
        let mode = *random.of(&[CancelMode::Stop, CancelMode::Rollback]);
        let request =
            pb::CancelTurnRequest { session_id, turn_id, mode: mode.into(), ..pb::CancelTurnRequest::default() };
        let replica = self.clients.any(random);
        let answered = timeout(CALL, self.turns(replica).await?.cancel_turn(request)).await;
        answered.unwrap_or_else(|_| Err(Status::unavailable("no response"))).map(drop)
    }
}
