//! An independent check of the state after a run. It checks the stored invariants (`harness/invariants`) and that
//! everything is at rest. It also checks that every received event is listed, that every acknowledged input occurs
//! once, that every acknowledged queued message was applied once or ended once in another way, that totals and prunes
//! agree ([`accounts`]), that compactions agree ([`overlays`]), that counters equal a recount, and that every dialect
//! accepts the transcripts.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use contextd::pb::{self, CompactionTrigger, event::Payload};
use tokio_postgres::Client;

use crate::{
    Plan,
    accounts::{self, Marks},
    client::{Clients, Session, as_told_first},
    fleet::Fleet,
    harness::{
        TestDatabase,
        events::{all, kind},
        invariants::{check as check_invariants, one_answer_per_step, read::read_all},
        process::{try_channel, try_turns},
        requests::turn,
        transcripts::check_counters,
    },
    model::{DIALECTS, Service},
    overlays,
    random::Random,
    reader,
};

/// What must happen in every long run; otherwise the run proves nothing about it.
const HAPPENS: [&str; 24] = [
    "turn_completed",
    "turn_cancelled",
    "rolled back",
    "interrupted",
    "turn_retrying",
    "turn_recovered",
    "messages_applied",
    "coalesced",
    "queued_message_cancelled",
    "queued_message_expired",
    "queued_message_dropped",
    "context_pruned",
    "context_restored",
    "compaction_completed",
    "compaction_failed",
    "compaction_reverted",
    "compacted to make room",
    "compacted at the threshold",
    "compacted manually",
    "compacted after a provider overflow",
    "compacted in parallel with a turn",
    "summarised",
    "tool_call_completed",
    "tool_call_cancelled",
];

/// A run with at least this many kills is a long run.
const LONG: usize = 100;

/// Queries for rows that must not exist when everything is at rest; the first column of a result identifies the row.
/// `harness/invariants` has the invariants of sessions.
const NEVER: [(&str, &str); 6] = [
    ("a call that is not closed", "select session_id || ' ' || call_id from tool_calls where closed_at is null"),
    ("a message left in a drained queue", "select session_id || ' ' || message_id from queue where status = 0"),
    (
        "a result that no event cleared",
        "select p.session_id || ' ' || p.call_id from parts p
           left join events e on e.session_id = p.session_id and e.seq = p.pruned_at_seq
          where p.pruned_at_seq is not null and e.kind is distinct from 'context_pruned'",
    ),
    ("a compaction that never ends", "select session_id || ' ' || compaction_id from compactions where status = 1"),
    ("a session that is not at rest", "select session_id || ' ' || state from session_run where state <> 0"),
    (
        "a connection that is left in a transaction",
        "select pid::text from pg_stat_activity where datname = current_database() and state like 'idle in%'",
    ),
];

/// Violations of the invariants in the stored data, of sessions that clients know and of all others.
async fn invariants(look: &Client, known: &BTreeMap<String, Session>) -> Vec<String> {
    let mut stored = read_all(look).await;
    for (name, session) in &mut stored {
        let Some(told) = known.get(name) else {
            continue;
        };
        session.set_words(|queued| {
            let words = told.queued.get(&queued.id).or_else(|| {
                let mut inputs = told.inputs.iter();
                let input = inputs.find(|(_, request)| **request == queued.request);
                input.map(|(words, _)| words)
            });
            words.map(String::as_str)
        });
    }
    let found = stored.iter().flat_map(|(name, session)| {
        let all = check_invariants(session).into_iter();
        all.chain(one_answer_per_step(session)).map(move |violation| format!("{name}: {violation}"))
    });
    found.collect()
}

/// All violations.
pub(crate) async fn check(
    database: &TestDatabase,
    fleet: &Fleet,
    clients: &Clients,
    service: &Service,
    plan: &Plan,
) -> Vec<String> {
    let look = database.client().await;
    let address = fleet.replicas[0].clients.address;
    let mut random = Random::new(plan.seed, 4_000_000);
    let mut wrong = Vec::new();
    for (name, session) in clients.sessions() {
        // Unacknowledged requests may have been applied late.
        clients.bring_to_rest(&name, &mut random).await;
        let mut after = (1..).take_while(|seq| session.seen.contains_key(seq)).last().unwrap_or_default();
        let rest = reader::follow(clients, try_channel(address).await.unwrap(), &name, &mut after, false, None).await;
        wrong.extend(rest.err().map(|status| format!("{name}: {status:?}")));
    }
    for (what, sql) in NEVER {
        let found = look.query(sql, &[]).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        wrong.extend(found.iter().map(|row| format!("{what}: {}", row.get::<_, String>(0))));
    }
    let sessions = clients.sessions();
    wrong.extend(invariants(&look, &sessions).await);
    let mut inputs = [0, 0];
    let mut happened = BTreeMap::new();
    for (name, session) in &sessions {
        inputs[0] += session.inputs.len();
        inputs[1] += session.queued.len();
        let listed = listed(address, name).await;
        wrong.extend(told(name, session, &listed));
        wrong.extend(said(&look, name, session, &listed).await);
        let spent_and_pruned =
            [accounts::totals(&listed), accounts::prunes(&listed, &marks(&look, name).await)].concat();
        wrong.extend(spent_and_pruned.into_iter().map(|wrong| format!("{name}: {wrong}")));
        wrong.extend(overlays::check(&look, address, name, clients, session, &listed, &mut random).await);
        count(&mut happened, &listed);
    }
    service.is_well();
    wrong.extend(taken(address, &sessions).await);
    for name in sessions.keys() {
        let client = database.client().await;
        let name = name.clone();
        let books = tokio::spawn(async move { check_counters(&client, &name).await });
        if let Err(error) = books.await {
            wrong.push(format!("accounts that do not add up: {error}"));
        }
    }
    wrong.extend(clients.violations());
    wrong.extend(service.violations());
    let missing = HAPPENS.iter().filter(|what| plan.kills >= LONG && !happened.contains_key(*what));
    wrong.extend(missing.map(|what| format!("never seen: {what}")));
    println!(
        "checked: {} sessions, {} inputs of turns, {} queued messages, {} events, {} model calls",
        sessions.len(),
        inputs[0],
        inputs[1],
        sessions.values().map(|session| session.seen.len()).sum::<usize>(),
        service.calls()
    );
    println!("what happened: {happened:?}");
    wrong
}

/// All durable events of a session, from ListEvents.
async fn listed(address: SocketAddr, name: &str) -> BTreeMap<i64, pb::Event> {
    let mut listed = BTreeMap::new();
    let mut turns = try_turns(address).await.unwrap();
    let mut after_seq = 0;
    loop {
        let request =
            pb::ListEventsRequest { session_id: name.to_owned(), after_seq, page_size: 1000, ..Default::default() };
        let page = turns.list_events(request).await.unwrap().into_inner();
        listed.extend(page.events.into_iter().map(|event| (event.seq, as_told_first(event))));
        if page.next_after_seq == page.last_seq {
            return listed;
        }
        after_seq = page.next_after_seq;
    }
}

/// Checks that the received events equal the listed ones.
fn told(name: &str, session: &Session, listed: &BTreeMap<i64, pb::Event>) -> Option<String> {
    if *listed == session.seen {
        return None;
    }
    let differ = listed.iter().find(|(seq, event)| session.seen.get(seq) != Some(event));
    let shown = session.seen.len();
    let all = listed.len();
    Some(format!("{name}: shown {shown} events, listed {all}; the first that differs: {differ:?}"))
}

/// The prune marks of a session's results, by call.
async fn marks(look: &Client, name: &str) -> Marks {
    let in_force = "select call_id, pruned_at_seq from parts where session_id = $1 and pruned_at_seq is not null";
    let past = "select p.call_id, h.pruned_at_seq, h.restored_at_seq
                  from past_prunes h join parts p using (tenant_id, session_id, message_id, idx) where h.session_id = $1";
    let in_force = look.query(in_force, &[&name]).await.unwrap();
    let past = look.query(past, &[&name]).await.unwrap();
    Marks {
        in_force: in_force.iter().map(|row| (row.get(0), row.get(1))).collect(),
        past: past.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect(),
    }
}

/// Counts what happened in a session.
fn count(happened: &mut BTreeMap<&'static str, usize>, listed: &BTreeMap<i64, pb::Event>) {
    // The compaction that a turn started, and whether the turn continued during it.
    let mut beside = None;
    for event in listed.values() {
        *happened.entry(kind(event)).or_default() += 1;
        match (&event.payload, &mut beside) {
            (Some(Payload::CompactionStarted(_)), _) => {
                let begun = overlays::about(event).filter(|it| it.trigger() == CompactionTrigger::Threshold);
                beside = begun.map(|compaction| (&compaction.compaction_id, false));
            }
            (Some(Payload::StepStarted(_) | Payload::MessageCommitted(_)), Some((_, went_on))) => *went_on = true,
            (Some(Payload::CompactionCompleted(_)), Some((id, true)))
                if overlays::about(event).is_some_and(|it| it.compaction_id == **id) =>
            {
                *happened.entry("compacted in parallel with a turn").or_default() += 1;
            }
            _ => {}
        }
        let also = match &event.payload {
            Some(Payload::TurnCancelled(end)) if end.mode() == pb::CancelMode::Rollback => "rolled back",
            Some(Payload::TurnCancelled(end)) if end.cause() == pb::CancelCause::Interrupted => "interrupted",
            Some(Payload::MessagesApplied(applied)) if applied.coalesced => "coalesced",
            Some(Payload::CompactionCompleted(told)) => {
                let summarised = told.compaction.as_ref().is_some_and(|compaction| compaction.was_summarized);
                *happened.entry("summarised").or_default() += usize::from(summarised);
                set_off_by(event)
            }
            Some(Payload::TurnFailed(end)) => {
                end.failure.as_ref().map_or("no reason", |why| why.reason().as_str_name())
            }
            _ => continue,
        };
        *happened.entry(also).or_default() += 1;
    }
}

/// What triggered an applied compaction.
fn set_off_by(event: &pb::Event) -> &'static str {
    match overlays::about(event).map(pb::Compaction::trigger) {
        Some(CompactionTrigger::Overflow) => "compacted to make room",
        Some(CompactionTrigger::Threshold) => "compacted at the threshold",
        Some(CompactionTrigger::Manual) => "compacted manually",
        Some(CompactionTrigger::ProviderOverflow) => "compacted after a provider overflow",
        Some(CompactionTrigger::Unspecified) | None => "compacted without a trigger",
    }
}

/// How a queued message ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// It was applied to the message with this id.
    Applied(String),
    /// It was withdrawn, expired or dropped.
    Otherwise,
}

/// How queued messages ended according to the events (each should end once), and the messages that rollbacks removed.
fn ends(listed: &BTreeMap<i64, pb::Event>) -> (BTreeMap<&str, Vec<End>>, BTreeSet<&str>) {
    let (mut ends, mut void): (BTreeMap<&str, Vec<End>>, _) = (BTreeMap::new(), BTreeSet::new());
    for event in listed.values() {
        let other = match &event.payload {
            Some(Payload::MessagesApplied(applied)) => {
                for message in &applied.messages {
                    let end = End::Applied(applied.message_id.clone());
                    ends.entry(&message.queued_message_id).or_default().push(end);
                }
                continue;
            }
            Some(Payload::TurnCancelled(end)) => {
                void.extend(end.voided_message_ids.iter().map(String::as_str));
                continue;
            }
            Some(Payload::QueuedMessageCancelled(end)) => &end.queued_message_id,
            Some(Payload::QueuedMessageExpired(end)) => &end.queued_message_id,
            Some(Payload::QueuedMessageDropped(end)) => &end.queued_message_id,
            _ => continue,
        };
        ends.entry(other).or_default().push(End::Otherwise);
    }
    (ends, void)
}

/// Checks that every acknowledged input is in the transcript once, and that every acknowledged queued message is too,
/// or ended once in another way. Exactly the messages that a rollback removed must be marked.
async fn said(look: &Client, name: &str, session: &Session, listed: &BTreeMap<i64, pb::Event>) -> Vec<String> {
    let holds = "select m.message_id, m.voided_at_seq is not null from messages m join parts p using (tenant_id, session_id, message_id)
                  where m.session_id = $1 and m.role = 2 and not m.is_summary and p.body like $2";
    let waited = "select message_id from queue where session_id = $1 and request_id = $2";
    let (ends, void) = ends(listed);
    let twice = ends.iter().filter(|(_, ends)| ends.len() > 1);
    let mut wrong: Vec<String> = twice.map(|(id, ends)| format!("{name}: {id} ended as {ends:?}")).collect();
    let mut acknowledged: Vec<(&String, Option<String>)> =
        session.queued.iter().map(|(id, words)| (words, Some(id.clone()))).collect();
    for (words, request) in &session.inputs {
        let row = look.query_opt(waited, &[&name, request]).await.unwrap();
        acknowledged.push((words, row.map(|row| row.get(0))));
    }
    for (words, queued) in acknowledged {
        let rows = look.query(holds, &[&name, &format!("%{words}%")]).await.unwrap();
        let found: Vec<(String, bool)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let right = match &queued {
            None => found.len() == 1,
            Some(id) => match ends.get(id.as_str()).map(Vec::as_slice) {
                Some([End::Applied(message)]) => {
                    matches!(&found[..], [(found, _)] if found == message)
                }
                Some([End::Otherwise]) => found.is_empty(),
                Some(_) | None => false,
            },
        };
        if !right {
            let end = queued.as_ref().map(|id| (id, ends.get(id.as_str())));
            wrong.push(format!("{words} is in {found:?}; in the queue: {end:?}"));
        }
        let marked = found.iter().filter(|(message, is_void)| *is_void != void.contains(message.as_str()));
        wrong.extend(marked.map(|found| format!("{words}: a rollback and its void mark disagree: {found:?}")));
    }
    wrong
}

/// Checks that each dialect accepts every transcript: the service validates the request of one more turn.
async fn taken(address: SocketAddr, sessions: &BTreeMap<String, Session>) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in sessions.keys() {
        for dialect in DIALECTS {
            let request = turn(name, &format!("{dialect}/m"), "words=1 tools=0 pace=0");
            let mut turns = try_turns(address).await.unwrap();
            let mut stream = match turns.execute_turn(request).await {
                Ok(stream) => stream.into_inner(),
                Err(status) => {
                    wrong.push(format!("{name}: a last turn over {dialect}: {}", status.message()));
                    continue;
                }
            };
            let seen = all(&mut stream).await;
            let end = seen.last().map(kind);
            if end != Some("turn_completed") {
                wrong.push(format!("{name}: a last turn over {dialect} ended as {:?}", seen.last()));
            }
        }
    }
    wrong
}
