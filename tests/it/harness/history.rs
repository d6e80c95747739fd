//! A session with everything that can happen to a transcript, and what was listed after each step.

use contextd::{
    model::{
        Category, CompactionId, MessageId, Part, PartSize, Role, Seq, SessionId, SessionKey, TenantId,
        command::Idempotency, message::StoredPart,
    },
    pb::{self, MessageView, part::Content},
    session::{
        compaction::NewCompaction,
        compaction_rows::{Cost, Replacement},
        counters::{Counter, TokenCounters},
        rows::NewMessage,
    },
};
use tokio_postgres::Client;

use super::{
    Host, as_worker,
    host::MODEL,
    payloads,
    requests::{result, tools, turn},
    transcripts::{calls, check_counters, results, says},
};

/// What was listed when the session was at a seq.
pub struct Point {
    /// The step that was just completed.
    pub what: &'static str,
    /// The latest seq at that time.
    pub seq: i64,
    /// All messages.
    pub all: Vec<pb::Message>,
    /// The messages that the model saw.
    pub live: Vec<pb::Message>,
}

/// A session that is built step by step.
pub struct History<'a> {
    host: &'a Host,
    client: Client,
    session: &'static str,
    /// The lists after each step.
    pub points: Vec<Point>,
}

impl<'a> History<'a> {
    /// Builds the whole session: appended messages, two compactions of which one is reverted, a pruned result, voided
    /// messages, and a turn with a tool call. The host's model must call `look` once and then produce text.
    pub async fn make(host: &'a Host, session: &'static str) -> Self {
        let created = pb::Session {
            session_id: session.to_owned(),
            model: MODEL.to_owned(),
            tools: tools(&["look"]),
            ..pb::Session::default()
        };
        host.create(created).await;
        let client = host.database.client().await;
        let mut history = Self { host, client, session, points: Vec::new() };
        history.note("an empty session").await;
        let pinned = pb::InputMessage { pinned: true, ..says(pb::Role::User, "keep") };
        let answer = |words| says(pb::Role::Assistant, words);
        let begun =
            vec![says(pb::Role::User, "one"), answer("two"), pinned, calls(&["c1"]), results(&["c1"]), answer("six")];
        host.append(session, begun).await;
        history.note("appended").await;
        history.compact("k1", 1, 5, Some("in short")).await;
        history.note("a compaction").await;
        host.append(session, vec![says(pb::Role::User, "nine"), calls(&["c2"]), results(&["c2"]), answer("twelve")])
            .await;
        history.note("appended behind the summary").await;
        history.prune("c2").await;
        history.note("a prune").await;
        let last = host.session(session).await.last_seq;
        host.append(session, vec![says(pb::Role::User, "void"), answer("void too")]).await;
        history.note("what a rollback will void").await;
        history.void(last + 1, last + 2).await;
        history.note("a rollback").await;
        history.compact("k2", 1, 9, None).await;
        history.note("a compaction upon the other, without a summary").await;
        revert_compaction(host, session, "k2").await;
        history.note("it was taken back").await;
        host.run_with(turn(session, MODEL, "And now?"), |call| result(&call.call_id, "seen")).await;
        history.note("a turn").await;
        history.compact("k3", 1, 12, Some("in shorter")).await;
        history.note("a compaction that replaces the summary").await;
        history
    }

    fn key(&self) -> SessionKey {
        SessionKey::new(TenantId::new("default"), SessionId::new(self.session))
    }

    async fn note(&mut self, what: &'static str) {
        check_counters(&self.client, self.session).await;
        let seq = self.host.session(self.session).await.last_seq;
        let all = self.host.listed(self.session, MessageView::All, 0, false, 0).await;
        let live = self.host.live(self.session).await;
        self.points.push(Point { what, seq, all, live });
    }

    /// Applies a compaction of the messages from one seq to another.
    async fn compact(&self, id: &str, from: i64, to: i64, words: Option<&str>) {
        let store = self.host.replica.engine.store();
        let key = self.key();
        let compaction = CompactionId::new(id);
        let seen = self.number("select context_version from session_run where session_id = $1").await;
        let nobody = Idempotency { request: None, hash: String::new() };
        let begin = NewCompaction {
            compaction: &compaction,
            seen,
            info: b"",
            started: &payloads::compaction_started(id),
            lease: store.lease_ttl(),
        };
        as_worker(store.begin_compaction(&key, &begin, &nobody)).await.unwrap().update.unwrap();
        let mut shift = TokenCounters::default();
        let live = self.host.live(self.session).await;
        let hidden = live.iter().filter(|it| it.is_summary || !it.pinned && (from..=to).contains(&it.seq));
        for message in hidden {
            shift.messages(-1, -4);
            for part in &message.parts {
                let tokens = part.tokens.as_ref().unwrap().tokens;
                shift.count(counter(message, part), -1, -i64::from(tokens));
                if let Some(Content::ToolResult(pb::ToolResult { prune_mark: Some(mark), .. })) = &part.content {
                    shift.count(Counter::Pruned, -1, -i64::from(mark.original_tokens - tokens));
                }
            }
        }
        let summary = words.map(|words| summary(id, words));
        if summary.is_some() {
            shift.messages(1, 4);
            shift.count(Counter::Summary, 1, 3);
        }
        let rows = payloads::compacted_rows(id, "test", summary);
        let replacement = Replacement {
            from: Seq(from),
            to: Seq(to),
            kept: &[],
            hides_pinned: false,
            shift,
            rows: &rows,
            info: b"",
            cost: &Cost::default(),
        };
        as_worker(store.swap_compaction(&key, &compaction, &replacement)).await.unwrap().update.unwrap();
    }

    /// Prunes a result, as a later version will. Its placeholder has 2 tokens here.
    async fn prune(&self, call: &str) {
        let mark = "update parts set original_tokens = tokens, tokens = 2, pruned_at_seq = $3
                     where session_id = $1 and kind = 'tool_result' and call_id = $2 returning original_tokens - 2";
        let seq = self.happen("context_pruned").await;
        let saved: i32 = self.client.query_one(mark, &[&self.session, &call, &seq]).await.unwrap().get(0);
        let count =
            "update session_run set version = version + 1, ctx_tokens[5] = ctx_tokens[5] - $2, ctx_tokens[9] = ctx_tokens[9] + $2,
                            ctx_parts[9] = ctx_parts[9] + 1 where session_id = $1";
        self.client.execute(count, &[&self.session, &i64::from(saved)]).await.unwrap();
    }

    /// Voids a user message and its response, as a rollback will.
    async fn void(&self, from: i64, to: i64) {
        let seq = self.happen("turn_cancelled").await;
        let mark = "update messages set voided_at_seq = $4 where session_id = $1 and seq between $2 and $3";
        assert_eq!(self.client.execute(mark, &[&self.session, &from, &to, &seq]).await.unwrap(), 2);
        let gone = "with p as (
                      select p.category, p.tokens from messages m join parts p using (tenant_id, session_id, message_id)
                       where m.session_id = $1 and m.voided_at_seq = $2)
                    update session_run set version = version + 1, ctx_messages = ctx_messages - 2, ctx_overhead = ctx_overhead - 8,
                           ctx_tokens[1] = ctx_tokens[1] - (select sum(tokens) from p where category = 1),
                           ctx_tokens[2] = ctx_tokens[2] - (select sum(tokens) from p where category = 2),
                           ctx_parts[1] = ctx_parts[1] - 1, ctx_parts[2] = ctx_parts[2] - 1 where session_id = $1";
        self.client.execute(gone, &[&self.session, &seq]).await.unwrap();
    }

    /// Writes an event of a later version, and increments the context version.
    async fn happen(&self, kind: &str) -> i64 {
        let sql = "with f as (update session_run set version = version + 1, next_seq = next_seq + 1, context_version = context_version + 1
                               where session_id = $1 returning tenant_id, session_id, next_seq - 1 as seq)
                   insert into events (tenant_id, session_id, seq, epoch, step, attempt, kind, payload)
                   select tenant_id, session_id, seq, 1, 0, 0, $2, '' from f returning seq";
        self.client.query_one(sql, &[&self.session, &kind]).await.unwrap().get(0)
    }

    async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[&self.session]).await.unwrap().get(0)
    }
}

/// Reverts the latest compaction of a session.
pub async fn revert_compaction(host: &Host, session: &str, id: &str) {
    let key = SessionKey::new(TenantId::new("default"), SessionId::new(session));
    let version = "select context_version from session_run where session_id = $1";
    let seen: i64 = host.database.client().await.query_one(version, &[&session]).await.unwrap().get(0);
    let nobody = Idempotency { request: None, hash: String::new() };
    let store = host.replica.engine.store();
    let compaction = CompactionId::new(id);
    let reverted = payloads::compaction_reverted(id);
    as_worker(store.revert_compaction(&key, &compaction, seen, &reverted, &nobody)).await.unwrap().update.unwrap();
}

fn counter(message: &pb::Message, part: &pb::Part) -> Counter {
    match (&part.content, message.role()) {
        _ if message.is_summary => Counter::Summary,
        (Some(Content::ToolCall(_)), _) => Counter::ToolCalls,
        (Some(Content::ToolResult(_)), _) => Counter::ToolResults,
        (_, pb::Role::Assistant) => Counter::Assistant,
        _ => Counter::User,
    }
}

fn summary(id: &str, words: &str) -> NewMessage {
    let size = PartSize { tokens: 3, category: Category::Summary };
    let part = StoredPart { part: Part::text(words), size, estimator: "test".to_owned(), pruned: None };
    NewMessage {
        id: MessageId::new(format!("{id}-summary")),
        role: Role::User,
        parts: vec![part],
        overhead: 4,
        pinned: false,
        metadata: [].into(),
        queued: Vec::new(),
        response: None,
        created_at: None,
    }
}
