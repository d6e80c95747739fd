//! Requests that append, fork and list transcripts, and an independent check of the stored counters.

use std::collections::{BTreeMap, BTreeSet};

use contextd::pb::{self, MessageView, part::Content};
use tokio_postgres::{Client, Row};
use tonic::Status;

use super::{
    host::{Host, MODEL},
    requests::text,
};

pub fn message(role: pb::Role, parts: Vec<pb::Part>) -> pb::InputMessage {
    pb::InputMessage { role: role.into(), parts, ..pb::InputMessage::default() }
}

/// A message with one text.
pub fn says(role: pb::Role, words: &str) -> pb::InputMessage {
    message(role, vec![text(words)])
}

/// An assistant message that calls `look` under these ids.
pub fn calls(ids: &[&str]) -> pb::InputMessage {
    let call = |id: &&str| pb::Part {
        content: Some(Content::ToolCall(pb::ToolCall {
            call_id: (*id).to_owned(),
            tool_name: "look".to_owned(),
            arguments_json: "{}".to_owned(),
            arguments_blob: None,
        })),
        ..pb::Part::default()
    };
    message(pb::Role::Assistant, ids.iter().map(call).collect())
}

/// One turn: a user message, a tool call, its result of this many tokens, and a response.
pub fn one_turn(call: &str, tokens: usize) -> Vec<pb::InputMessage> {
    let result = super::requests::result(call, &"x".repeat(4 * tokens));
    let part = pb::Part { content: Some(Content::ToolResult(result)), ..pb::Part::default() };
    vec![
        says(pb::Role::User, "Look."),
        calls(&[call]),
        message(pb::Role::Tool, vec![part]),
        says(pb::Role::Assistant, "Seen."),
    ]
}

/// A message with the results of these calls.
pub fn results(ids: &[&str]) -> pb::InputMessage {
    let result = |id: &&str| pb::Part {
        content: Some(Content::ToolResult(super::requests::result(id, &format!("seen {id}")))),
        ..pb::Part::default()
    };
    message(pb::Role::Tool, ids.iter().map(result).collect())
}

pub fn append(session: &str, messages: Vec<pb::InputMessage>) -> pb::AppendMessagesRequest {
    pb::AppendMessagesRequest { session_id: session.to_owned(), messages, ..pb::AppendMessagesRequest::default() }
}

pub fn fork(session: &str, at_seq: i64, new: &str) -> pb::ForkSessionRequest {
    let session_id = session.to_owned();
    let new_session_id = new.to_owned();
    pb::ForkSessionRequest { session_id, at_seq, new_session_id, ..pb::ForkSessionRequest::default() }
}

impl Host {
    /// Creates a session, with defaults for all other fields.
    pub async fn create(&self, session: pb::Session) -> pb::Session {
        let request = pb::CreateSessionRequest { session: Some(session), request_id: String::new() };
        self.sessions().create_session(request).await.unwrap().into_inner().session.unwrap()
    }

    /// Creates a session with one turn for each of these sizes.
    pub async fn with_turns(&self, session: &str, sizes: &[usize]) {
        let named = pb::Session { session_id: session.to_owned(), model: MODEL.to_owned(), ..pb::Session::default() };
        self.create(named).await;
        for (n, tokens) in sizes.iter().enumerate() {
            self.append(session, one_turn(&format!("c{n}"), *tokens)).await;
        }
    }

    /// Appends messages. Returns an error if the call fails.
    pub async fn try_append(&self, request: pb::AppendMessagesRequest) -> Result<pb::AppendMessagesResponse, Status> {
        Ok(self.sessions().append_messages(request).await?.into_inner())
    }

    /// Appends messages. Fails the test if the call fails.
    pub async fn append(&self, session: &str, messages: Vec<pb::InputMessage>) -> pb::AppendMessagesResponse {
        self.try_append(append(session, messages)).await.unwrap()
    }

    pub async fn try_fork(&self, request: pb::ForkSessionRequest) -> Result<pb::Session, Status> {
        Ok(self.sessions().fork_session(request).await?.into_inner().session.unwrap())
    }

    /// Lists one view of a session as of a seq, page by page.
    pub async fn listed(
        &self,
        session: &str,
        view: MessageView,
        at_seq: i64,
        newest_first: bool,
        page_size: i32,
    ) -> Vec<pb::Message> {
        let mut messages = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = pb::ListMessagesRequest {
                session_id: session.to_owned(),
                view: view.into(),
                at_seq,
                newest_first,
                page_size,
                page_token,
            };
            let page = self.sessions().list_messages(request).await.unwrap().into_inner();
            messages.extend(page.messages);
            if page.next_page_token.is_empty() {
                return messages;
            }
            page_token = page.next_page_token;
        }
    }

    /// The messages that the model sees now.
    pub async fn live(&self, session: &str) -> Vec<pb::Message> {
        self.listed(session, MessageView::Live, 0, false, 0).await
    }
}

pub fn ids(messages: &[pb::Message]) -> Vec<&str> {
    messages.iter().map(|message| message.message_id.as_str()).collect()
}

/// The stored messages, parts and active compaction of a session.
const MESSAGES: &str = "select seq, message_id, role, tokens, pinned, is_summary from messages
    where session_id = $1 and voided_at_seq is null order by seq";
const PARTS: &str =
    "select p.message_id, p.kind, p.call_id, p.category, p.tokens, p.original_tokens, m.seq is null as early
    from parts p left join messages m using (tenant_id, session_id, message_id)
   where p.session_id = $1 order by p.message_id, p.idx";
const IN_FORCE: &str = "select from_seq, to_seq, summary_message, kept, hides_pinned from compactions
    where session_id = $1 and status = 2 order by active_from_seq desc limit 1";

/// The stored counters of a session.
const KEPT: &str = "
    select array[ctx_messages, ctx_overhead] || (select array_agg(x order by n, which)
             from (select n, 1 as which, t as x from unnest(ctx_tokens) with ordinality as t (t, n)
                   union all select n, 2, p from unnest(ctx_parts) with ordinality as p (p, n)) c) as counters,
           r.open_calls, r.next_seq, coalesce(s.forked_at_seq, 0) as forked_at,
           array(select seq from events e where e.session_id = $1 order by seq) as events,
           array(select call_id::text from tool_calls c where c.session_id = $1 and c.status < 3 order by 1) as calls
      from session_run r join sessions s using (tenant_id, session_id)
     where r.session_id = $1";

/// Compares the stored counters of a session with an independent count: counters, size, open calls and seqs. Also
/// checks that the transcript is closed or ends in one open batch. Uses no code of the program.
pub async fn check_counters(client: &Client, session: &str) {
    let messages = client.query(MESSAGES, &[&session]).await.unwrap();
    let parts = client.query(PARTS, &[&session]).await.unwrap();
    let in_force = client.query_opt(IN_FORCE, &[&session]).await.unwrap();
    let kept = client.query_one(KEPT, &[&session]).await.unwrap();
    let counted = count(&messages, &parts, in_force.as_ref());
    assert_eq!(kept.get::<_, Vec<i64>>("counters"), counted, "the counters of {session}");
    let dense: Vec<i64> = (kept.get::<_, i64>("forked_at") + 1..kept.get("next_seq")).collect();
    assert_eq!(kept.get::<_, Vec<i64>>("events"), dense, "the events of {session}");
    let open: Vec<String> = open_calls(&messages, &parts).into_iter().collect();
    assert_eq!(kept.get::<_, Vec<String>>("calls"), open, "the open calls of {session}");
    assert_eq!(
        usize::try_from(kept.get::<_, i32>("open_calls")),
        Ok(open.len()),
        "how many calls of {session} are open"
    );
}

/// The counters in the order of [`KEPT`]: of what the model sees, and of results whose message is not complete.
fn count(messages: &[Row], parts: &[Row], in_force: Option<&Row>) -> [i64; 20] {
    type InForce = (i64, i64, Option<String>, Vec<i64>, bool);
    let in_force: Option<InForce> = in_force.map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4)));
    let mut counted = [0_i64; 20];
    let mut seen = BTreeMap::new();
    for row in messages {
        let (seq, id, pinned, is_summary): (i64, String, bool, bool) = (row.get(0), row.get(1), row.get(4), row.get(5));
        let hidden = match &in_force {
            Some((_, _, summary, ..)) if is_summary => summary.as_ref() != Some(&id),
            Some((from, to, _, kept, hides_pinned)) => {
                (!pinned || *hides_pinned) && (*from..=*to).contains(&seq) && !kept.contains(&seq)
            }
            None => is_summary,
        };
        if !hidden {
            counted[0] += 1;
            counted[1] += i64::from(row.get::<_, i32>("tokens"));
            seen.insert(id, is_summary);
        }
    }
    for row in parts {
        let (category, tokens, original): (i16, i32, Option<i32>) = (row.get(3), row.get(4), row.get(5));
        let category = match (seen.get(&row.get::<_, String>(0)), row.get::<_, bool>("early")) {
            (Some(true), _) => 7,
            (Some(false), _) | (None, true) => category,
            (None, false) => continue,
        };
        let place = usize::try_from(category).unwrap() * 2;
        counted[place] += i64::from(tokens);
        counted[place + 1] += 1;
        if let Some(original) = original {
            counted[18] += i64::from(original - tokens);
            counted[19] += 1;
        }
    }
    counted
}

/// The calls at the end of a transcript without a result, not even an early one. Fails if an earlier call has no result
/// before the next message.
fn open_calls(messages: &[Row], parts: &[Row]) -> BTreeSet<String> {
    let mut calls: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for row in parts {
        let call: Option<String> = row.get("call_id");
        calls.entry(row.get("message_id")).or_default().extend(call.map(|call| (row.get("kind"), call)));
    }
    let mut open = BTreeSet::new();
    for row in messages.iter().filter(|row| !row.get::<_, bool>("is_summary")) {
        let (role, message): (i16, String) = (row.get("role"), row.get("message_id"));
        assert!(role == 4 || open.is_empty(), "{message} stands between calls and their results");
        for (kind, call) in calls.get(&message).into_iter().flatten() {
            let sound = if kind == "tool_call" { open.insert(call.clone()) } else { open.remove(call) };
            assert!(sound, "{kind} {call} in {message}");
        }
    }
    let early = parts.iter().filter(|row| row.get::<_, bool>("early"));
    let answered: BTreeSet<String> = early.filter_map(|row| row.get("call_id")).collect();
    &open - &answered
}
