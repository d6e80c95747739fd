//! Reads the stored sessions with separate statements.

use std::collections::BTreeMap;

use contextd::pb;
use prost::Message as _;
use tokio_postgres::{Client, Row};

use super::{Call, Compaction, Event, Message, Part, Queued, QueuedStatus, RunState, Stored, Turn};

/// The rows of a session, with the counters. The first column of each statement is the session id. `$1` is the
/// requested session, or null for all. A fork that is still being copied does not count as a session.
const RUNS: &str = "
    select r.session_id, r.state, coalesce(r.turn_id, ''), r.next_seq, r.open_calls::bigint,
           r.ctx_overhead + (select sum(t) from unnest(r.ctx_tokens[1:8]) t)::bigint,
           r.revision, coalesce(s.forked_at_seq, 0),
           array[r.ctx_messages, r.ctx_overhead] || r.ctx_tokens[1:8] || r.ctx_parts[1:8]::bigint[]
      from session_run r
      left join sessions s using (tenant_id, session_id)
     where ($1::text is null or session_id = $1) and (r.state <> 3 or starts_with(r.turn_id, 'fork:') is not true)";
const EVENTS: &str = "
    select session_id, seq, epoch, coalesce(turn_id, ''), kind, refs, payload from events
     where $1::text is null or session_id = $1 order by seq";
const MESSAGES: &str = "
    select session_id, seq, message_id, role, tokens::bigint, is_summary, voided_at_seq is not null,
           coalesce(turn_id, ''), step
      from messages where $1::text is null or session_id = $1 order by seq";
const PARTS: &str = "
    select session_id, message_id, idx, kind, coalesce(call_id, ''), body, tokens::bigint, category
      from parts where $1::text is null or session_id = $1 order by message_id, idx";
const CALLS: &str = "
    select session_id, call_id, turn_id, status from tool_calls where $1::text is null or session_id = $1";
const QUEUE: &str = "
    select session_id, message_id, status, coalesce(request_id, ''), coalesce(seq, 0), coalesce(applied_to, '')
      from queue where $1::text is null or session_id = $1 order by pos";
const TURNS: &str = "
    select session_id, turn_id, state = 1, coalesce(request_id, ''), first_seq, coalesce(last_seq, 0), request
      from turns where $1::text is null or session_id = $1";
const COMPACTIONS: &str = "
    select session_id, compaction_id, status, coalesce(from_seq, 0), coalesce(to_seq, 0),
           coalesce(active_from_seq, 0), coalesce(summary_message, '')
      from compactions where $1::text is null or session_id = $1 order by active_from_seq";
const REQUESTS: &str = "
    select session_id, request_id, result from idempotency
     where request_id <> '' and ($1::text is null or session_id = $1)";

/// All sessions of a database, by id.
pub async fn read_all(client: &Client) -> BTreeMap<String, Stored> {
    sessions(client, None).await
}

/// One session. Returns `None` if it does not exist.
pub async fn read(client: &Client, session: &str) -> Option<Stored> {
    sessions(client, Some(session)).await.remove(session)
}

/// Adds a row to its session.
type Put = fn(&mut Stored, &Row);

async fn sessions(client: &Client, session: Option<&str>) -> BTreeMap<String, Stored> {
    let mut all = BTreeMap::new();
    for row in client.query(RUNS, &[&session]).await.unwrap() {
        all.insert(row.get(0), run(&row));
    }
    let statements: [(&str, Put); 8] = [
        (EVENTS, |of, row| of.events.push(event(row))),
        (MESSAGES, |of, row| of.messages.push(message(row))),
        (PARTS, |of, row| of.parts.push(part(row))),
        (CALLS, |of, row| of.calls.push(call(row))),
        (QUEUE, |of, row| of.queue.push(queued(row))),
        (TURNS, |of, row| of.turns.push(turn(row))),
        (COMPACTIONS, |of, row| of.compactions.push(compaction(row))),
        (REQUESTS, |of, row| {
            of.requests.insert(row.get(1), row.get(2));
        }),
    ];
    for (sql, put) in statements {
        for row in client.query(sql, &[&session]).await.unwrap() {
            // Rows that belong to no session, such as those of uploads, are ignored.
            if let Some(of) = all.get_mut(row.get::<_, &str>(0)) {
                put(of, &row);
            }
        }
    }
    all
}

fn run(row: &Row) -> Stored {
    Stored {
        state: RunState::from(row.get::<_, i16>(1)),
        turn: row.get(2),
        next_seq: row.get(3),
        open_calls: row.get(4),
        size: row.get(5),
        revision: row.get(6),
        forked_at: row.get(7),
        counters: row.get(8),
        ..Stored::default()
    }
}

fn event(row: &Row) -> Event {
    Event { seq: row.get(1), epoch: row.get(2), turn: row.get(3), kind: row.get(4), refs: refs(row) }
}

/// The references of an event. If the statement that wrote the event closed a call, the event itself names the call.
/// The same applies to the model with which a turn continued, and to the model that was called.
fn refs(row: &Row) -> Vec<String> {
    let refs: Vec<String> = row.get(5);
    match row.get(4) {
        "tool_call_cancelled" if refs.is_empty() => {
            let cancelled = pb::ToolCallCancelled::decode(row.get::<_, &[u8]>(6)).unwrap();
            vec![cancelled.call_id, cancelled.tool_name]
        }
        "model_fallback" => {
            let fallback = pb::ModelFallback::decode(row.get::<_, &[u8]>(6)).unwrap();
            vec![fallback.to_model]
        }
        "usage_recorded" => {
            let recorded = pb::UsageRecorded::decode(row.get::<_, &[u8]>(6)).unwrap();
            vec![recorded.model]
        }
        _ => refs,
    }
}

fn message(row: &Row) -> Message {
    Message {
        seq: row.get(1),
        id: row.get(2),
        role: row.get(3),
        tokens: row.get(4),
        summary: row.get(5),
        voided: row.get(6),
        turn: row.get(7),
        step: row.get(8),
    }
}

fn part(row: &Row) -> Part {
    Part {
        message: row.get(1),
        idx: row.get(2),
        kind: row.get(3),
        call: row.get(4),
        body: row.get(5),
        tokens: row.get(6),
        category: row.get(7),
    }
}

fn call(row: &Row) -> Call {
    Call { id: row.get(1), turn: row.get(2), status: row.get(3) }
}

fn queued(row: &Row) -> Queued {
    Queued {
        id: row.get(1),
        status: QueuedStatus::from(row.get::<_, i16>(2)),
        request: row.get(3),
        seq: row.get(4),
        applied_to: row.get(5),
        words: None,
    }
}

fn turn(row: &Row) -> Turn {
    let request = pb::ExecuteTurnRequest::decode(row.get::<_, &[u8]>(6)).unwrap();
    Turn {
        id: row.get(1),
        live: row.get(2),
        request: row.get(3),
        first_seq: row.get(4),
        last_seq: row.get(5),
        model: request.model,
    }
}

fn compaction(row: &Row) -> Compaction {
    Compaction {
        id: row.get(1),
        status: row.get(2),
        from: row.get(3),
        to: row.get(4),
        active_from: row.get(5),
        summary: row.get(6),
    }
}
