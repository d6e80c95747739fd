//! What clients were told, and what is stored in the end: the two things that the checker compares.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tokio_postgres::{Client, Row};

/// An answer that somebody got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// You own this turn.
    Granted {
        session: String,
        epoch: i64,
        how: &'static str,
    },
    /// What you wrote as the owner is committed.
    Wrote { mark: String },
    /// Your request began this turn.
    Admitted {
        session: String,
        request: String,
        turn: String,
    },
    /// Your message is in the queue.
    Queued(Queueing),
    /// These messages are withdrawn.
    Withdrew {
        session: String,
        messages: Vec<String>,
    },
    /// The answers to these calls are accepted.
    Accepted { session: String, calls: Vec<String> },
    /// This live turn is going to be cancelled.
    Cancelled { session: String, turn: String },
    /// This configuration is in force.
    Updated {
        session: String,
        request: String,
        revision: i64,
    },
    /// These messages are appended.
    Imported {
        session: String,
        messages: Vec<String>,
    },
    /// This session is a copy of the other one up to that seq.
    Forked {
        session: String,
        from: String,
        at: i64,
    },
    /// The session is gone.
    Deleted { session: String, seq: i64 },
    /// This compaction is in force, or is no more.
    Compacted {
        session: String,
        compaction: String,
        reverted: bool,
    },
    /// The database refused it for a reason that no guard explains.
    Refused { what: String },
}

/// What an enqueue was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Queueing {
    pub session: String,
    pub request: String,
    pub message: String,
    /// It waited when the answer was made.
    pub pending: bool,
    /// It was for the turn that was live then, not for one behind it.
    pub asap: bool,
    /// That turn.
    pub met: Option<String>,
    /// It was to start a turn under this revision if the session was idle, and did.
    pub start: Option<(i64, bool)>,
}

/// Everything that anybody was told, in the order in which it was heard.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<Vec<Told>>);

impl History {
    pub(super) fn tell(&self, told: Told) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(told);
    }

    pub(super) fn all(&self) -> Vec<Told> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A session as it is stored.
#[derive(Debug, Clone, Default)]
pub(super) struct Stored {
    pub state: i16,
    pub turn: String,
    pub next_seq: i64,
    pub open_calls: i64,
    pub size: i64,
    pub revision: i64,
    pub forked_at: i64,
    pub events: Vec<Event>,
    pub messages: Vec<Message>,
    pub parts: Vec<Part>,
    pub calls: Vec<Call>,
    pub queue: Vec<Queued>,
    pub turns: Vec<Turn>,
    pub compactions: Vec<Compaction>,
    /// Messages and overhead, then tokens and parts of the categories 1 to 8.
    pub counters: Vec<i64>,
    /// What requests led to, by their ids.
    pub requests: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub(super) struct Event {
    pub seq: i64,
    pub epoch: i64,
    pub turn: String,
    pub kind: String,
    pub refs: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub seq: i64,
    pub id: String,
    pub role: i16,
    pub tokens: i64,
    pub summary: bool,
    pub voided: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub message: String,
    pub idx: i32,
    pub kind: String,
    pub call: String,
    pub body: String,
    pub tokens: i64,
    pub category: i16,
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub id: String,
    pub turn: String,
    pub status: i16,
}

#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub id: String,
    pub status: i16,
    pub request: String,
    pub seq: i64,
    pub applied_to: String,
}

#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub id: String,
    pub state: i16,
    pub request: String,
    pub first_seq: i64,
    pub last_seq: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Compaction {
    pub id: String,
    pub status: i16,
    pub from: i64,
    pub to: i64,
    pub active_from: i64,
    pub summary: String,
}

/// All sessions of a database, by their ids.
pub(super) async fn stored(client: &Client) -> BTreeMap<String, Stored> {
    let mut all = heads(client).await;
    let mut load = async |sql: &str, put: fn(&mut Stored, &Row)| {
        for row in client.query(sql, &[]).await.unwrap() {
            // What belongs to no session, such as uploads, is no affair of the protocol.
            if let Some(session) = all.get_mut(row.get::<_, &str>(0)) {
                put(session, &row);
            }
        }
    };
    load(
        "select session_id, seq, epoch, coalesce(turn_id, ''), kind, refs from events order by seq",
        |session, row| {
            let seq = row.get(1);
            let epoch = row.get(2);
            let turn = row.get(3);
            let kind = row.get(4);
            let refs = row.get(5);
            session.events.push(Event {
                seq,
                epoch,
                turn,
                kind,
                refs,
            });
        },
    )
    .await;
    let messages = "select session_id, seq, message_id, role, tokens::bigint, is_summary, voided_at_seq is not null
                      from messages order by seq";
    load(messages, |session, row| {
        let seq = row.get(1);
        let id = row.get(2);
        let role = row.get(3);
        let tokens = row.get(4);
        session.messages.push(Message {
            seq,
            id,
            role,
            tokens,
            summary: row.get(5),
            voided: row.get(6),
        });
    })
    .await;
    let parts = "select session_id, message_id, idx, kind, coalesce(call_id, ''), body, tokens::bigint, category
                   from parts order by message_id, idx";
    load(parts, |session, row| {
        let message = row.get(1);
        let idx = row.get(2);
        let kind = row.get(3);
        let call = row.get(4);
        session.parts.push(Part {
            message,
            idx,
            kind,
            call,
            body: row.get(5),
            tokens: row.get(6),
            category: row.get(7),
        });
    })
    .await;
    load(
        "select session_id, call_id, turn_id, status from tool_calls",
        |session, row| {
            session.calls.push(Call {
                id: row.get(1),
                turn: row.get(2),
                status: row.get(3),
            });
        },
    )
    .await;
    let queue =
        "select session_id, message_id, status, coalesce(request_id, ''), coalesce(seq, 0), coalesce(applied_to, '')
                   from queue order by pos";
    load(queue, |session, row| {
        let id = row.get(1);
        let status = row.get(2);
        let request = row.get(3);
        let seq = row.get(4);
        session.queue.push(Queued {
            id,
            status,
            request,
            seq,
            applied_to: row.get(5),
        });
    })
    .await;
    let turns = "select session_id, turn_id, state, coalesce(request_id, ''), first_seq, coalesce(last_seq, 0) from turns";
    load(turns, |session, row| {
        let id = row.get(1);
        let state = row.get(2);
        let request = row.get(3);
        let first_seq = row.get(4);
        session.turns.push(Turn {
            id,
            state,
            request,
            first_seq,
            last_seq: row.get(5),
        });
    })
    .await;
    let compactions =
        "select session_id, compaction_id, status, coalesce(from_seq, 0), coalesce(to_seq, 0),
                              coalesce(active_from_seq, 0), coalesce(summary_message, '')
                         from compactions order by active_from_seq";
    load(compactions, |session, row| {
        let id = row.get(1);
        let status = row.get(2);
        let from = row.get(3);
        let to = row.get(4);
        let active_from = row.get(5);
        session.compactions.push(Compaction {
            id,
            status,
            from,
            to,
            active_from,
            summary: row.get(6),
        });
    })
    .await;
    load(
        "select session_id, request_id, result from idempotency where request_id <> ''",
        |session, row| {
            session.requests.insert(row.get(1), row.get(2));
        },
    )
    .await;
    all
}

/// The hot rows, with the counters.
async fn heads(client: &Client) -> BTreeMap<String, Stored> {
    let mut all = BTreeMap::new();
    let run = "select r.session_id, r.state, coalesce(r.turn_id, ''), r.next_seq, r.open_calls::bigint, r.ctx_tokens,
                      r.revision, coalesce(s.forked_at_seq, 0),
                      array[c.messages, overhead_tokens, user_tokens, assistant_tokens, reasoning_tokens, tool_call_tokens,
                            tool_result_tokens, media_tokens, summary_tokens, pinned_tokens, user_parts, assistant_parts,
                            reasoning_parts, tool_call_parts, tool_result_parts, media_parts, summary_parts, pinned_parts]::bigint[]
                 from session_run r join session_context c using (tenant_id, session_id)
                 left join sessions s using (tenant_id, session_id)";
    for row in client.query(run, &[]).await.unwrap() {
        let session = Stored {
            state: row.get(1),
            turn: row.get(2),
            next_seq: row.get(3),
            open_calls: row.get(4),
            size: row.get(5),
            revision: row.get(6),
            forked_at: row.get(7),
            counters: row.get(8),
            ..Stored::default()
        };
        all.insert(row.get(0), session);
    }
    all
}
