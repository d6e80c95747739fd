//! The queue against everything that may happen to it, on two replicas at once. What clients were
//! told is checked against what they can read afterwards, without a look at how it was done; and
//! without its guard each race is lost.

use std::{convert::Infallible, time::Duration};

use contextd::pb::{self, event::Payload};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use crate::harness::{
    Host, Options, as_worker,
    events::{PATIENCE, next},
    host::until,
    invariants,
    requests::{enqueue, result, submit, tools, turn},
};

mod checker;
mod guards;

use checker::{Acknowledged, Read, violations};
use guards::{Replace, without_version};

/// Rounds of each pair; a longer run is made with the variable set when this is built.
const ROUNDS: u64 = if option_env!("QUEUE_LONG_RACES").is_some() {
    2_000
} else {
    200
};

/// Rounds that run at once.
const ABREAST: u64 = 25;

/// Messages that each of the two replicas is sent in a round.
const MESSAGES: u64 = 2;

/// How often a round's queue is cleared, or its turn taken over.
const TIMES: u64 = 3;

/// A pause between two things that race, at most.
const PAUSE: Duration = Duration::from_millis(30);

/// The same before each takeover: some come while messages are taken.
const TAKEOVERS: Duration = Duration::from_millis(120);

/// The longest time to live of a message that is to expire: about as long as a round takes.
const LONGEST_TTL: Duration = Duration::from_millis(150);

/// A model that calls a tool once and then answers.
fn options(replace: Option<Replace>) -> Options {
    let steps = json!({"steps": [
        {"when": {"user_contains": "look", "call": 0}, "say": [{"tool_call": {"name": "look", "arguments": {}}}]},
        {"when": {"otherwise": true}, "say": [{"text": "Fine."}]}
    ]});
    Options {
        replace,
        ..Options::default()
    }
    .script("it", steps.to_string())
}

/// Two replicas over one database, and a connection for a look at it.
struct Field {
    hosts: [Host; 2],
    client: Client,
    other: Other,
}

/// What races with messages that are queued.
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

/// A share that looks random and is the same in every run of a round.
fn share(of: Duration, round: u64, salt: u64) -> Duration {
    let mixed = (round * 31 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    of.mul_f64((mixed % 1000) as f64 / 1000.0)
}

async fn pause(round: u64, salt: u64) {
    sleep(share(PAUSE, round, salt)).await;
}

impl Field {
    async fn new(other: Other, replace: Option<Replace>) -> Self {
        let host = Host::with(options(replace)).await;
        let beside = host.beside(options(replace)).await;
        let client = host.database.client().await;
        Self {
            hosts: [host, beside],
            client,
            other,
        }
    }

    /// Queues messages one after the other. A session that is gone takes none.
    async fn enqueuer(
        &self,
        host: &Host,
        session: &str,
        name: &str,
        round: u64,
    ) -> Vec<Acknowledged> {
        let mut acknowledged = Vec::new();
        for n in 0..MESSAGES {
            let salt = 7 * n + name.len() as u64;
            pause(round, salt).await;
            let words = format!("{name} {n} of {session}");
            let ttl = Duration::from_millis(1) + share(LONGEST_TTL, round, salt);
            let ttl = (self.other == Other::Expiry).then(|| ttl.try_into().unwrap());
            let request = pb::EnqueueMessageRequest {
                ttl,
                ..enqueue(session, &words)
            };
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
            acknowledged.push(Acknowledged {
                id,
                words,
                turn: answer.turn_id,
                expires: queued.expire_time,
            });
        }
        acknowledged
    }

    /// What happens meanwhile.
    async fn meanwhile(&self, session: &str, round: u64) {
        let [_, second] = &self.hosts;
        pause(round, 5).await;
        match self.other {
            Other::EndOfTurn | Other::CancelMessage | Other::Expiry => {}
            Other::CancelTurn => drop(second.cancel(session, "").await),
            Other::Takeover => {
                let sql = "update session_run set version = version + 1, lease_until = '-infinity' where session_id = $1 and state = 1";
                for (n, host) in (0..TIMES).zip(self.hosts.iter().cycle()) {
                    sleep(share(TAKEOVERS, round, n)).await;
                    self.client.execute(sql, &[&session]).await.unwrap();
                    as_worker(host.replica.engine.take_over()).await.unwrap();
                }
            }
            Other::Delete => {
                let request = pb::DeleteSessionRequest {
                    session_id: session.to_owned(),
                    ..pb::DeleteSessionRequest::default()
                };
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

    /// A turn with one tool, whose call is answered by the other replica. What its session takes at
    /// a time depends on the round.
    async fn run(&self, session: &str, round: u64) {
        let modes = [
            pb::TakeMode::All,
            pb::TakeMode::Latest,
            pb::TakeMode::OneAtATime,
        ];
        let take = modes[usize::try_from(round % 3).unwrap()].into();
        let queue = pb::QueuePolicy {
            take,
            ..pb::QueuePolicy::default()
        };
        let policy = pb::Policy {
            queue: Some(queue),
            ..pb::Policy::default()
        };
        let own = pb::Session {
            policy_overrides: Some(policy),
            ..pb::Session::default()
        };
        let request = turn(session, "scripted/it", "Please look.");
        let request = pb::ExecuteTurnRequest {
            tools: tools(&["look"]),
            session: Some(own),
            ..request
        };
        let mut stream = self.hosts[0].execute(request).await;
        while let Ok(Some(event)) = next(&mut stream).await {
            if let Some(Payload::ToolCallRequested(pending)) = &event.payload {
                let answer = submit(
                    session,
                    vec![result(&pending.call.as_ref().unwrap().call_id, "fine")],
                );
                let _ = self.hosts[1].try_submit(answer).await;
            }
        }
    }

    /// One round. What is wrong with it, if anything.
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
        // Without its guard a race may leave a turn that nobody ends.
        let (clients, _) = tokio::join!(racing, timeout(PATIENCE, self.run(&session, round)));
        if self.other != Other::Delete && timeout(PATIENCE, self.rests(&session)).await.is_err() {
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
            waiting: first
                .queued(&session)
                .await
                .into_iter()
                .map(|it| it.queued_message_id)
                .collect(),
        };
        [wrong, read.check(&clients)].concat()
    }

    /// Waits until the session is there, or was.
    async fn begins(&self, session: &str) {
        let sql = "select count(*) from session_run where session_id = $1";
        until("the session", || async {
            self.count(sql, session).await > 0
        })
        .await;
    }

    /// Waits until nothing runs in a session, and nothing that has a time to live waits in it.
    async fn rests(&self, session: &str) {
        let sql = "select (select count(*) from session_run where session_id = $1 and state <> 0)
                 + (select count(*) from queue where session_id = $1 and status = 0 and expires_at is not null)";
        while self.count(sql, session).await > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn count(&self, sql: &str, session: &str) -> i64 {
        self.client
            .query_one(sql, &[&session])
            .await
            .unwrap()
            .get(0)
    }

    /// Runs rounds until one is wrong, or all are done. How many were run, and what is wrong.
    async fn race(&self, rounds: u64) -> (u64, Vec<String>) {
        for first in (0..rounds).step_by(usize::try_from(ABREAST).unwrap()) {
            let end = rounds.min(first + ABREAST);
            let wrong: Vec<String> = join_all((first..end).map(|n| self.round(n)))
                .await
                .into_iter()
                .flatten()
                .collect();
            if !wrong.is_empty() {
                return (end, wrong);
            }
        }
        (rounds, Vec::new())
    }

    /// Gives up what is late at once, not with the next poll.
    async fn sweep(&self) -> Infallible {
        loop {
            if self.other == Other::Expiry {
                as_worker(self.hosts[1].replica.engine.expire_queued_messages())
                    .await
                    .unwrap();
            }
            sleep(Duration::from_millis(2)).await;
        }
    }
}

/// What is wrong after so many rounds, or fewer.
async fn race(other: Other, replace: Option<Replace>, rounds: u64) -> Vec<String> {
    let field = Field::new(other, replace).await;
    let (rounds, wrong) = tokio::select! {
        done = field.race(rounds) => done,
        never = field.sweep() => match never {},
    };
    eprintln!("{other:?}: {rounds} rounds; {wrong:?}");
    wrong
}

async fn holds(other: Other) {
    assert_eq!(race(other, None, ROUNDS).await, Vec::<String>::new());
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

/// Rounds within which a race without its guard is lost; as a rule it takes a few dozen.
const LOST_WITHIN: u64 = 4_000;

/// What the checker is worth: without its guard a pair goes wrong. It says how; or a client gets an error
/// that it did not expect, where both sides write events, whose key refuses what the version lets through.
async fn is_lost(other: Other) {
    let racing = tokio::spawn(race(other, Some(without_version), LOST_WITHIN));
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
