//! An independent check of the compactions of a session. Each started and ended once, one at a time. At each seq, the
//! model sees the newest applied summary and the messages that it does not replace. Every message reads back as it was
//! committed. A repeated request returned the same compaction. Their usage is accounted for once.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use contextd::pb::{
    self, CompactionState, MessageView, context_service_client::ContextServiceClient, event::Payload,
    session_service_client::SessionServiceClient,
};
use tokio_postgres::Client;

use crate::{
    client::{Clients, Session, unmark},
    compactor,
    harness::{events::kind, process::try_channel},
    random::Random,
};

/// A stored compaction.
struct Overlay {
    id: String,
    status: i16,
    range: Option<(i64, i64)>,
    kept: Vec<i64>,
    active_from: Option<i64>,
    reverted_at: Option<i64>,
    predecessor: Option<String>,
    summary: Option<String>,
}

/// A stored message.
struct Said {
    seq: i64,
    id: String,
    is_summary: bool,
    pinned: bool,
    voided_at: Option<i64>,
}

/// Values of the `status` column.
const APPLIED: i16 = 2;
const FAILED: i16 = 3;
const REVERTED: i16 = 4;

/// All violations in the compactions of a session.
pub(crate) async fn check(
    look: &Client,
    address: SocketAddr,
    name: &str,
    clients: &Clients,
    session: &Session,
    listed: &BTreeMap<i64, pb::Event>,
    random: &mut Random,
) -> Vec<String> {
    let overlays = overlays(look, name).await;
    let said = messages(look, name).await;
    let mut wrong = told(&overlays, listed);
    wrong.extend(stacked(&overlays, listed));
    wrong.extend(seen(address, name, &overlays, &said, listed, random).await);
    wrong.extend(whole(address, name, session, random).await);
    wrong.extend(repeated(clients, session, &overlays, random).await);
    wrong.extend(spent(look, address, name).await);
    wrong.into_iter().map(|wrong| format!("{name}: {wrong}")).collect()
}

async fn overlays(look: &Client, name: &str) -> Vec<Overlay> {
    let sql = "select compaction_id, status, from_seq, to_seq, kept, active_from_seq, reverted_at_seq, predecessor, summary_message
                 from compactions where session_id = $1 order by created_at, compaction_id";
    let rows = look.query(sql, &[&name]).await.unwrap();
    let overlay = |row: &tokio_postgres::Row| Overlay {
        id: row.get(0),
        status: row.get(1),
        range: row.get::<_, Option<i64>>(2).zip(row.get(3)),
        kept: row.get(4),
        active_from: row.get(5),
        reverted_at: row.get(6),
        predecessor: row.get(7),
        summary: row.get(8),
    };
    rows.iter().map(overlay).collect()
}

async fn messages(look: &Client, name: &str) -> Vec<Said> {
    let sql =
        "select seq, message_id, is_summary, pinned, voided_at_seq from messages where session_id = $1 order by seq";
    let rows = look.query(sql, &[&name]).await.unwrap();
    let said = |row: &tokio_postgres::Row| Said {
        seq: row.get(0),
        id: row.get(1),
        is_summary: row.get(2),
        pinned: row.get(3),
        voided_at: row.get(4),
    };
    rows.iter().map(said).collect()
}

/// The compaction of an event.
pub(crate) fn about(event: &pb::Event) -> Option<&pb::Compaction> {
    match event.payload.as_ref()? {
        Payload::CompactionStarted(told) => told.compaction.as_ref(),
        Payload::CompactionCompleted(told) => told.compaction.as_ref(),
        Payload::CompactionFailed(told) => told.compaction.as_ref(),
        Payload::CompactionReverted(told) => told.compaction.as_ref(),
        _ => None,
    }
}

/// Checks that each compaction started once and ended once, as its row says, and that the next one started after that.
fn told(overlays: &[Overlay], listed: &BTreeMap<i64, pb::Event>) -> Vec<String> {
    let mut stories: BTreeMap<&str, Vec<(i64, &str)>> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut open = None;
    for (seq, event) in listed {
        let Some(compaction) = about(event) else {
            continue;
        };
        let id = compaction.compaction_id.as_str();
        let kind = kind(event);
        stories.entry(id).or_default().push((*seq, kind));
        match kind {
            "compaction_started" => {
                wrong.extend(open.map(|open| format!("{id} started while {open} was running")));
                open = Some(id);
            }
            "compaction_completed" | "compaction_failed" if open == Some(id) => open = None,
            "compaction_completed" | "compaction_failed" => wrong.push(format!("{id} ended without a start")),
            _ => {}
        }
    }
    for overlay in overlays {
        let story = stories.remove(overlay.id.as_str()).unwrap_or_default();
        let kinds: Vec<&str> = story.iter().map(|(_, kind)| *kind).collect();
        let taken_back = overlay.reverted_at.and_then(|seq| listed.get(&seq));
        let with_its_turn = matches!(taken_back.and_then(|event| event.payload.as_ref()), Some(Payload::TurnCancelled(end))
            if end.mode() == pb::CancelMode::Rollback);
        let right = match (overlay.status, kinds.as_slice()) {
            (FAILED, ["compaction_started", "compaction_failed"]) => true,
            (APPLIED, ["compaction_started", "compaction_completed"]) => Some(story[1].0) == overlay.active_from,
            (REVERTED, ["compaction_started", "compaction_completed", "compaction_reverted"]) => {
                // A compaction that is reverted with its turn has its event after the terminal event of the turn, and
                // therefore after `reverted_at`.
                let told = Some(story[2].0);
                let in_time = if with_its_turn { told > overlay.reverted_at } else { told == overlay.reverted_at };
                Some(story[1].0) == overlay.active_from && in_time
            }
            _ => false,
        };
        if !right {
            wrong.push(format!("{} has the status {} and the events {story:?}", overlay.id, overlay.status));
        }
    }
    wrong.extend(stories.keys().map(|id| format!("{id} is reported, but not stored")));
    wrong
}

/// Checks that each compaction is based on the one that was in effect, and that the newest is reverted first.
fn stacked(overlays: &[Overlay], listed: &BTreeMap<i64, pb::Event>) -> Vec<String> {
    let (mut stack, mut wrong): (Vec<&Overlay>, Vec<String>) = (Vec::new(), Vec::new());
    for seq in listed.keys() {
        let back = overlays.iter().filter(|overlay| overlay.reverted_at == Some(*seq)).count();
        let left = stack.len().saturating_sub(back);
        wrong.extend(
            stack
                .drain(left..)
                .filter(|overlay| overlay.reverted_at != Some(*seq))
                .map(|overlay| format!("at {seq} one was reverted beneath {}", overlay.id)),
        );
        for overlay in overlays.iter().filter(|overlay| overlay.active_from == Some(*seq)) {
            let before = stack.last().map(|before| &before.id);
            if overlay.predecessor.as_ref() != before {
                wrong.push(format!("{} is based on {:?}, not {before:?}", overlay.id, overlay.predecessor));
            }
            let covers = |lower: &&Overlay| {
                lower.range.zip(overlay.range).is_some_and(|(low, high)| high.0 <= low.0 && low.1 <= high.1)
            };
            if !stack.last().is_none_or(covers) {
                wrong.push(format!("{} covers {:?}, less than {before:?}", overlay.id, overlay.range));
            }
            stack.push(overlay);
        }
    }
    wrong
}

/// What the model sees as of a seq: the summary in effect, and every message that is neither voided nor replaced by it.
fn visible<'a>(overlays: &'a [Overlay], said: &'a [Said], at: i64) -> Vec<&'a str> {
    let applied = overlays.iter().filter(|overlay| overlay.active_from.is_some_and(|from| from <= at));
    let in_force = applied.filter(|overlay| overlay.reverted_at.is_none_or(|back| back > at));
    let newest = in_force.max_by_key(|overlay| overlay.active_from);
    let hides = |said: &Said| {
        newest.is_some_and(|newest| {
            newest.range.is_some_and(|(from, to)| (from..=to).contains(&said.seq))
                && !said.pinned
                && !newest.kept.contains(&said.seq)
        })
    };
    let mut visible: Vec<(i64, &str)> = said
        .iter()
        .filter(|said| {
            !said.is_summary && said.seq <= at && said.voided_at.is_none_or(|void| void > at) && !hides(said)
        })
        .map(|said| (said.seq, said.id.as_str()))
        .collect();
    if let Some((summary, (from, _))) = newest.and_then(|newest| newest.summary.as_deref().zip(newest.range)) {
        visible.push((from, summary));
    }
    visible.sort_by_key(|(place, _)| *place);
    visible.into_iter().map(|(_, id)| id).collect()
}

/// Checks that ListMessages returns what the model sees, before and after every compaction and every revert, with pages
/// of any size.
async fn seen(
    address: SocketAddr,
    name: &str,
    overlays: &[Overlay],
    said: &[Said],
    listed: &BTreeMap<i64, pb::Event>,
    random: &mut Random,
) -> Vec<String> {
    let edges = overlays.iter().flat_map(|overlay| [overlay.active_from, overlay.reverted_at]).flatten();
    let last = listed.keys().next_back().copied();
    let moments: BTreeSet<i64> = edges.flat_map(|edge| [edge - 1, edge]).chain(last).filter(|at| *at > 0).collect();
    let mut wrong = Vec::new();
    for at in moments {
        let live = list(address, name, MessageView::Live, at, random).await;
        let shown: Vec<&str> = live.iter().map(|message| message.message_id.as_str()).collect();
        let expected = visible(overlays, said, at);
        if shown != expected {
            wrong.push(format!("at {at} the model sees {shown:?}, not {expected:?}"));
        }
    }
    wrong
}

async fn list(
    address: SocketAddr,
    name: &str,
    view: MessageView,
    at_seq: i64,
    random: &mut Random,
) -> Vec<pb::Message> {
    let mut sessions = SessionServiceClient::new(try_channel(address).await.unwrap());
    let mut request = pb::ListMessagesRequest {
        session_id: name.to_owned(),
        view: view.into(),
        at_seq,
        page_size: i32::try_from(1 + random.below(20)).unwrap_or(1),
        ..pb::ListMessagesRequest::default()
    };
    let mut messages = Vec::new();
    loop {
        let page = sessions.list_messages(request.clone()).await.unwrap().into_inner();
        messages.extend(page.messages);
        if page.next_page_token.is_empty() {
            return messages;
        }
        request.page_token = page.next_page_token;
    }
}

/// Checks that every committed message reads back as its event showed it, and that there are no other messages except
/// summaries.
async fn whole(address: SocketAddr, name: &str, session: &Session, random: &mut Random) -> Vec<String> {
    let mut told = BTreeMap::new();
    for event in session.seen.values() {
        if let Some(Payload::MessageCommitted(pb::MessageCommitted { message: Some(message) })) = &event.payload {
            told.insert(message.message_id.clone(), message.clone());
        }
    }
    let mut wrong = Vec::new();
    for mut message in list(address, name, MessageView::All, 0, random).await {
        unmark(&mut message);
        let known = told.remove(&message.message_id);
        if known.as_ref() != Some(&message) && !message.is_summary {
            wrong.push(format!("{message:?} was reported as {known:?}"));
        }
    }
    wrong.extend(told.into_keys().map(|id| format!("{id} is no longer listed")));
    wrong
}

/// Checks that a repeated request returns the same compaction, and that its reported state remains true.
async fn repeated(clients: &Clients, session: &Session, overlays: &[Overlay], random: &mut Random) -> Vec<String> {
    let mut wrong = Vec::new();
    for (request, told) in &session.compactions {
        let again = compactor::compact(clients, request, random).await.unwrap_or_default();
        let stays = match told.state() {
            CompactionState::Running => again.state() != CompactionState::Running,
            CompactionState::Applied => [CompactionState::Applied, CompactionState::Reverted].contains(&again.state()),
            other => again.state() == other,
        };
        let stored = overlays.iter().any(|overlay| overlay.id == told.compaction_id);
        if !stays || !stored || again.compaction_id != told.compaction_id {
            wrong.push(format!("{told:?} was reported, later {again:?}"));
        }
    }
    for id in &session.reverted {
        if !overlays.iter().any(|overlay| overlay.id == *id && overlay.status == REVERTED) {
            wrong.push(format!("{id} was reported as reverted"));
        }
    }
    wrong
}

/// Checks that the usage of all compactions equals what was recorded for the session.
async fn spent(look: &Client, address: SocketAddr, name: &str) -> Option<String> {
    let mut contexts = ContextServiceClient::new(try_channel(address).await.unwrap());
    let mut usage = (0, 0, 0);
    let mut page_token = String::new();
    loop {
        let request = pb::ListCompactionsRequest { session_id: name.to_owned(), page_size: 3, page_token };
        let page = contexts.list_compactions(request).await.unwrap().into_inner();
        for cost in page.compactions.iter().filter_map(|compaction| compaction.usage.as_ref()) {
            usage = (usage.0 + cost.calls, usage.1 + cost.input_tokens, usage.2 + cost.output_tokens);
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let sql = "select coalesce(sum(calls), 0)::bigint, coalesce(sum(input_tokens), 0)::bigint, coalesce(sum(output_tokens), 0)::bigint
                 from usage_totals where session_id = $1 and purpose = 2";
    let row = look.query_one(sql, &[&name]).await.unwrap();
    let charged = (row.get(0), row.get(1), row.get(2));
    (usage != charged)
        .then(|| format!("compactions cost {usage:?} (calls, input, output), but {charged:?} is recorded"))
}
