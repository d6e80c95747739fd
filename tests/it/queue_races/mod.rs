//! Concurrent queue operations on two replicas. Acknowledgements are checked against what clients can read afterwards,
//! regardless of the implementation. Without its guard, each race must produce a violation.

use std::{convert::Infallible, time::Duration};

use contextd::pb::{self, event::Payload};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use crate::harness::{
    Host, Options, as_worker,
    events::{TEST_TIMEOUT, next},
    host::until,
    invariants,
    requests::{enqueue, result, submit, tools, turn},
};

mod checker;
mod guards;

use checker::{Acknowledged, Read, violations};
use guards::slow_without_version;

/// Number of rounds per race. Set the variable at build time for a longer run.
const ROUNDS: u64 = if option_env!("QUEUE_LONG_RACES").is_some() { 2_000 } else { 200 };

/// Number of concurrent rounds.
const ABREAST: u64 = 25;

/// Number of messages sent to each of the two replicas in a round.
const MESSAGES: u64 = 2;

/// How often the queue is cleared or the turn is taken over in a round.
const TIMES: u64 = 3;

/// Maximum pause between two racing operations.
const PAUSE: Duration = Duration::from_millis(30);

/// Maximum pause before each takeover, so that some happen while messages are applied.
const TAKEOVERS: Duration = Duration::from_millis(120);

/// Maximum time to live of a message that should expire: about the duration of a round.
const LONGEST_TTL: Duration = Duration::from_millis(150);

/// A model that calls a tool once, then responds.
fn options() -> Options {
    let steps = json!({"steps": [
        {"when": {"user_contains": "look", "call": 0}, "say": [{"tool_call": {"name": "look", "arguments": {}}}]},
        {"when": {"otherwise": true}, "say": [{"text": "Fine."}]}
    ]});
    Options::default().script("it", steps.to_string())
}

/// Two replicas of one database, and a connection to inspect it.
struct Field {
    hosts: [Host; 2],
    client: Client,
    other: Other,
}

/// The operation that races with queued messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Other {
    EndOfTurn,
    CancelTurn,
    CancelMessage,
    Expiry,
    Takeover,
    Delete,
    Clear,
}

/// A pseudorandom fraction of a duration, the same in every run of a round.
fn share(of: Duration, round: u64, salt: u64) -> Duration {
    let mixed = (round * 31 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    of.mul_f64((mixed % 1000) as f64 / 1000.0)
}

async fn pause(round: u64, salt: u64) {
    sleep(share(PAUSE, round, salt)).await;
}

impl Field {
    async fn new(other: Other, has_guard: bool) -> Self {
        let host = Host::with(options()).await;
        if !has_guard {
            let database = &host.database;
            database.replace_commit_function(slow_without_version).await;
        }
        let beside = host.beside(options()).await;
        let client = host.database.client().await;
        Self { hosts: [host, beside], client, other }
    }

    /// Queues messages one after another. A deleted session refuses them.
    async fn enqueuer(&self, host: &Host, session: &str, name: &str, round: u64) -> Vec<Acknowledged> {
        let mut acknowledged = Vec::new();
        for n in 0..MESSAGES {
            let salt = 7 * n + name.len() as u64;
            pause(round, salt).await;
            let words = format!("{name} {n} of {session}");
            let ttl = Duration::from_millis(1) + share(LONGEST_TTL, round, salt);
            let ttl = (self.other == Other::Expiry).then(|| ttl.try_into().unwrap());
            let request = pb::EnqueueMessageRequest { ttl, ..enqueue(session, &words) };
            let Ok(answer) = host.queue().enqueue_message(request).await else {
                break;
            };
            let answer = answer.into_inner();
            let queued = answer.queued_message.unwrap();
            let id = queued.queued_message_id;
            if self.other == Other::CancelMessage {
                pause(round, salt + 3).await;
                host.cancel_queued(session, &id).await;
            }
            acknowledged.push(Acknowledged { id, words, turn: answer.turn_id, expires: queued.expire_time });
        }
        acknowledged
    }

    /// The operation of the race.
    async fn meanwhile(&self, session: &str, round: u64) {
        let [_, second] = &self.hosts;
        pause(round, 5).await;
        match self.other {
            Other::EndOfTurn | Other::CancelMessage | Other::Expiry => {}
            Other::CancelTurn => drop(second.cancel(session, "").await),
            Other::Takeover => {
                for (n, host) in (0..TIMES).zip(self.hosts.iter().cycle()) {
                    sleep(share(TAKEOVERS, round, n)).await;
                    let which = format!("session_id = '{session}'");
                    host.database.owner_died(&which).await;
                    as_worker(host.replica.engine.take_over()).await.unwrap();
                }
            }
            Other::Delete => {
                let request =
                    pb::DeleteSessionRequest { session_id: session.to_owned(), ..pb::DeleteSessionRequest::default() };
                second.sessions().delete_session(request).await.unwrap();
            }
            Other::Clear => {
                for n in 0..TIMES {
                    pause(round, n).await;
                    second.clear(session).await;
                }
            }
        }
    }

    /// Runs a turn with one tool. The other replica submits its result. How many messages are applied at a time depends
    /// on the round.
    async fn run(&self, session: &str, round: u64) {
        let modes = [pb::TakeMode::All, pb::TakeMode::Latest, pb::TakeMode::OneAtATime];
        let take = modes[usize::try_from(round % 3).unwrap()].into();
        let queue = pb::QueuePolicy { take, ..pb::QueuePolicy::default() };
        let policy = pb::Policy { queue: Some(queue), ..pb::Policy::default() };
        let own = pb::Session { policy_overrides: Some(policy), ..pb::Session::default() };
        let request = turn(session, "scripted/it", "Please look.");
        let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), session: Some(own), ..request };
        let mut stream = self.hosts[0].execute(request).await;
        while let Ok(Some(event)) = next(&mut stream).await {
            if let Some(Payload::ToolCallRequested(pending)) = &event.payload {
                let answer = submit(session, vec![result(&pending.call.as_ref().unwrap().call_id, "fine")]);
                let _ = self.hosts[1].try_submit(answer).await;
            }
        }
    }

    /// Runs one round. Returns its violations.
    async fn round(&self, round: u64) -> Vec<String> {
        let session = format!("s{round}");
        let [first, second] = &self.hosts;
        let racing = async {
            self.begins(&session).await;
            let here = self.enqueuer(first, &session, "here", round);
            let there = self.enqueuer(second, &session, "there", round);
            let (here, there, ()) = tokio::join!(here, there, self.meanwhile(&session, round));
            [here, there]
        };
        // Without its guard, a race may leave a turn that never ends.
        let (clients, _) = tokio::join!(racing, timeout(TEST_TIMEOUT, self.run(&session, round)));
        if self.other != Other::Delete && timeout(TEST_TIMEOUT, self.rests(&session)).await.is_err() {
            return vec![format!("{session} does not come to rest")];
        }
        let stored = invariants::read::read(&self.client, &session).await;
        let wrong = violations(&mut stored.unwrap(), &clients.concat());
        if self.other == Other::Delete {
            return wrong;
        }
        let read = Read {
            events: first.events(&session, "", 0, 1_000).await,
            messages: second.messages(&session).await,
            waiting: first.queued(&session).await.into_iter().map(|it| it.queued_message_id).collect(),
        };
        [wrong, read.check(&clients)].concat()
    }

    /// Waits until the session exists or has existed.
    async fn begins(&self, session: &str) {
        let sql = "select count(*) from session_run where session_id = $1";
        until("the session", || async { self.count(sql, session).await > 0 }).await;
    }

    /// Waits until no turn runs in the session and no pending message has a time to live.
    async fn rests(&self, session: &str) {
        let sql = "select (select count(*) from session_run where session_id = $1 and state <> 0)
                 + (select count(*) from queue where session_id = $1 and status = 0 and expires_at is not null)";
        while self.count(sql, session).await > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn count(&self, sql: &str, session: &str) -> i64 {
        self.client.query_one(sql, &[&session]).await.unwrap().get(0)
    }

    /// Runs rounds until one has violations, or all are done. Returns the number of rounds and the violations.
    async fn race(&self, rounds: u64) -> (u64, Vec<String>) {
        for first in (0..rounds).step_by(usize::try_from(ABREAST).unwrap()) {
            let end = rounds.min(first + ABREAST);
            let wrong: Vec<String> =
                join_all((first..end).map(|n| self.round(n))).await.into_iter().flatten().collect();
            if !wrong.is_empty() {
                return (end, wrong);
            }
        }
        (rounds, Vec::new())
    }

    /// Expires messages immediately instead of with the next poll.
    async fn sweep(&self) -> Infallible {
        loop {
            if self.other == Other::Expiry {
                as_worker(self.hosts[1].replica.engine.sessions.expire_queued_messages()).await.unwrap();
            }
            sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Runs at most this many rounds. Returns the violations.
async fn race(other: Other, has_guard: bool, rounds: u64) -> Vec<String> {
    let field = Field::new(other, has_guard).await;
    let (rounds, wrong) = tokio::select! {
        done = field.race(rounds) => done,
        never = field.sweep() => match never {},
    };
    eprintln!("{other:?}: {rounds} rounds; {wrong:?}");
    wrong
}

async fn holds(other: Other) {
    assert_eq!(race(other, true, ROUNDS).await, Vec::<String>::new());
}

/// Row I3
#[tokio::test(flavor = "multi_thread")]
async fn racing_a_message_with_the_end_of_a_turn() {
    holds(Other::EndOfTurn).await;
}

/// Row I3
#[tokio::test(flavor = "multi_thread")]
async fn racing_a_message_with_the_cancel_of_a_turn() {
    holds(Other::CancelTurn).await;
}

/// Row I3
#[tokio::test(flavor = "multi_thread")]
async fn racing_a_message_with_its_withdrawal() {
    holds(Other::CancelMessage).await;
}

/// Row I3
#[tokio::test(flavor = "multi_thread")]
async fn racing_a_message_with_its_expiry() {
    holds(Other::Expiry).await;
}

/// Row I3
#[tokio::test(flavor = "multi_thread")]
async fn racing_a_message_with_a_takeover() {
    holds(Other::Takeover).await;
}

/// Row I3
#[tokio::test(flavor = "multi_thread")]
async fn racing_a_message_with_the_deletion_of_its_session() {
    holds(Other::Delete).await;
}

/// Row I3
#[tokio::test(flavor = "multi_thread")]
async fn racing_messages_with_a_clear_of_the_queue() {
    holds(Other::Clear).await;
}

/// Number of rounds in which a race without its guard must fail. Usually a few dozen suffice.
const LOST_WITHIN: u64 = 4_000;

/// Verifies the checker: without its guard, a race fails. Either the checker finds a violation, or a client gets an
/// unexpected error because both sides write events and the primary key refuses what the version check lets through.
async fn is_lost(other: Other) {
    let racing = tokio::spawn(race(other, false, LOST_WITHIN));
    if let Ok(wrong) = racing.await {
        assert_ne!(wrong, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_version_a_message_and_the_end_of_a_turn_go_wrong() {
    is_lost(Other::EndOfTurn).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_version_a_message_and_the_cancel_of_a_turn_go_wrong() {
    is_lost(Other::CancelTurn).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_version_a_message_and_a_takeover_go_wrong() {
    is_lost(Other::Takeover).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_version_a_message_and_the_end_of_its_session_go_wrong() {
    is_lost(Other::Delete).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_version_a_message_and_its_withdrawal_go_wrong() {
    is_lost(Other::CancelMessage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_version_a_message_and_its_expiry_go_wrong() {
    is_lost(Other::Expiry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_version_messages_and_a_clear_go_wrong() {
    is_lost(Other::Clear).await;
}
