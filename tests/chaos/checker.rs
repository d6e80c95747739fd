//! What is left, read by somebody who knows nothing of how it came about: every event once and without a gap, every turn ended once,
//! every call closed, every acknowledged input there once, and a transcript that every dialect takes.

use std::collections::BTreeMap;

use contextd::pb;
use tokio_postgres::Client;

use crate::{
    client::{Clients, Session},
    fleet::Fleet,
    harness::{TestDatabase, events::all, process::try_turns, requests::turn, transcripts::check_books},
    model::{DIALECTS, Service},
};

/// Each finds what must not be; its first column says what.
const NEVER: [(&str, &str); 9] = [
    (
        "a turn without exactly one terminal event",
        "select t.turn_id::text || ': ' || count(e.seq) from turns t
           left join events e on e.session_id = t.session_id and e.turn_id = t.turn_id
                and e.kind in ('turn_completed', 'turn_cancelled', 'turn_failed')
          group by t.session_id, t.turn_id having count(e.seq) <> 1",
    ),
    (
        "an event of a turn behind its terminal event",
        "select e.session_id || ' ' || e.seq from events e join events last on last.session_id = e.session_id
            and last.turn_id = e.turn_id and last.kind in ('turn_completed', 'turn_cancelled', 'turn_failed') and e.seq > last.seq",
    ),
    (
        "a gap in the events",
        "select session_id || ' before ' || seq from (
           select session_id, seq, lag(seq, 1, 0::bigint) over (partition by session_id order by seq) as before from events) e
          where seq <> before + 1",
    ),
    ("an epoch that goes back", "select session_id || ' ' || seq from (
           select session_id, seq, epoch, lag(epoch, 1, 0::bigint) over (partition by session_id order by seq) as before from events) e
          where epoch < before"),
    ("a call that is not closed", "select session_id || ' ' || call_id from tool_calls where closed_at is null"),
    (
        "a call without exactly one result",
        "select c.session_id || ' ' || c.call_id || ': ' || count(p.idx) from tool_calls c
           left join parts p on p.session_id = c.session_id and p.call_id = c.call_id and p.kind = 'tool_result'
          group by c.session_id, c.call_id having count(p.idx) <> 1",
    ),
    (
        "a step that spoke twice",
        "select session_id || ' ' || turn_id || ' ' || step from messages where role = 3
          group by session_id, turn_id, step having count(*) > 1",
    ),
    ("a session that is not at rest", "select session_id || ' ' || state from session_run where state <> 0"),
    (
        "a connection that is left in a transaction",
        "select pid::text from pg_stat_activity where datname = current_database() and state like 'idle in%'",
    ),
];

/// Everything that is wrong.
pub(crate) async fn check(database: &TestDatabase, fleet: &Fleet, clients: &Clients, service: &Service) -> Vec<String> {
    let look = database.client().await;
    let sessions = clients.sessions();
    let mut wrong = clients.violations();
    for (what, sql) in NEVER {
        let found = look.query(sql, &[]).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        wrong.extend(found.iter().map(|row| format!("{what}: {}", row.get::<_, String>(0))));
    }
    let (mut events, mut inputs) = (0, 0);
    let address = fleet.replicas[0].clients.address;
    for (name, session) in &sessions {
        events += session.seen.len();
        inputs += session.inputs.len();
        wrong.extend(told(address, name, session).await);
        wrong.extend(said(&look, name, session).await);
    }
    service.is_well();
    wrong.extend(taken(address, &sessions).await);
    for name in sessions.keys() {
        let client = database.client().await;
        let name = name.clone();
        let books = tokio::spawn(async move { check_books(&client, &name).await });
        if let Err(error) = books.await {
            wrong.push(format!("books that do not add up: {error}"));
        }
    }
    wrong.extend(service.violations());
    println!(
        "checked: {} sessions, {inputs} turns ({:?}), {events} events, {} model calls",
        sessions.len(),
        clients.ends(),
        service.calls()
    );
    wrong
}

/// What a client was shown is what is listed.
async fn told(address: std::net::SocketAddr, name: &str, session: &Session) -> Vec<String> {
    let mut listed = BTreeMap::new();
    let mut turns = try_turns(address).await.unwrap();
    let mut after_seq = 0;
    loop {
        let request =
            pb::ListEventsRequest { session_id: name.to_owned(), after_seq, page_size: 1000, ..Default::default() };
        let page = turns.list_events(request).await.unwrap().into_inner();
        listed.extend(page.events.into_iter().map(|event| (event.seq, event)));
        if page.next_after_seq == page.last_seq {
            break;
        }
        after_seq = page.next_after_seq;
    }
    if listed == session.seen {
        return Vec::new();
    }
    let differ = listed.iter().find(|(seq, event)| session.seen.get(seq) != Some(event));
    vec![format!(
        "{name}: shown {} events, listed {}; the first that differs: {differ:?}",
        session.seen.len(),
        listed.len()
    )]
}

/// Every acknowledged input is in the transcript once.
async fn said(look: &Client, name: &str, session: &Session) -> Vec<String> {
    let sql = "select count(*) from messages m join parts p using (tenant_id, session_id, message_id)
                where m.session_id = $1 and m.role = 2 and m.voided_at_seq is null and p.body like $2";
    let mut wrong = Vec::new();
    for input in &session.inputs {
        let times: i64 = look.query_one(sql, &[&name, &format!("%{input}%")]).await.unwrap().get(0);
        if times != 1 {
            wrong.push(format!("{input} is there {times} times"));
        }
    }
    wrong
}

/// Every transcript is taken by each dialect: the service looks at the request of one more turn.
async fn taken(address: std::net::SocketAddr, sessions: &BTreeMap<String, Session>) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in sessions.keys() {
        for dialect in DIALECTS {
            let request = turn(name, &format!("{dialect}/m"), "words=1 tools=0 pace=0");
            let mut stream = try_turns(address).await.unwrap().execute_turn(request).await.unwrap().into_inner();
            let seen = all(&mut stream).await;
            let end = seen.last().map(crate::harness::events::kind);
            if end != Some("turn_completed") {
                wrong.push(format!("{name}: a last turn over {dialect} ended as {:?}", seen.last()));
            }
        }
    }
    wrong
}
