//! Compares the responses to clients with what is stored: acknowledgements, effects of requests, forks and counters,
//! in addition to the invariants in `harness/invariants`. It shares nothing with the code that it checks: no
//! statements, no types and no logic.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Queueing, Told};
use crate::harness::invariants::{self, Message, Part, QueuedStatus, RunState, Stored, owners::mark};

/// Names of categories in the order of the counters.
const CATEGORIES: [&str; 8] =
    ["user", "assistant", "reasoning", "tool call", "tool result", "media", "summary", "pinned"];

/// All violations, as texts that start with the invariant and the rule, or only with the rule if it is checked only
/// here.
pub(super) fn violations(stored: &BTreeMap<String, Stored>, told: &[Told]) -> Vec<String> {
    let mut found = Vec::new();
    for (id, session) in stored {
        let invariants = invariants::check(session);
        let invariants = invariants.iter().map(ToString::to_string);
        let all = invariants.chain(requests(session)).chain(counters(session));
        found.extend(all.map(|violation| format!("{violation} (session {id})")));
    }
    found.extend(grants(told));
    found.extend(told.iter().flat_map(|told| promise(stored, told)));
    found.extend(forks(stored, told));
    found
}

/// A request has one effect: it starts a turn with input, or queues a message, which may start a turn without input.
fn requests(session: &Stored) -> Vec<String> {
    let inputs: BTreeSet<&str> = session.messages.iter().map(|message| message.id.as_str()).collect();
    let mut done: BTreeMap<&str, (Vec<&str>, Vec<&str>)> = BTreeMap::new();
    for turn in session.turns.iter().filter(|turn| !turn.request.is_empty()) {
        done.entry(&turn.request).or_default().0.push(&turn.id);
    }
    for queued in session.queue.iter().filter(|queued| !queued.request.is_empty()) {
        done.entry(&queued.request).or_default().1.push(&queued.id);
    }
    let mut found = Vec::new();
    for (request, (turns, queued)) in done {
        let remembered = session.requests.get(request).map(String::as_str);
        let right = match (turns.as_slice(), queued.as_slice()) {
            ([turn], []) => remembered == Some(*turn),
            ([], [message]) => remembered == Some(*message),
            ([turn], [message]) => remembered == Some(*message) && !inputs.contains(format!("{turn}-input").as_str()),
            _ => false,
        };
        if !right {
            found.push(format!("request: {request} did {turns:?} and {queued:?}, remembered is {remembered:?}"));
        }
    }
    found
}

/// The counters equal a recount, unless the session is deleted.
fn counters(session: &Stored) -> Vec<String> {
    if session.state == RunState::Deleted {
        return Vec::new();
    }
    let active = session.compactions.iter().filter(|compaction| compaction.status == 2).max_by_key(|it| it.active_from);
    let seen = |message: &Message| {
        let gone = active.is_some_and(|it| (it.from..=it.to).contains(&message.seq));
        let summary = active.is_some_and(|it| it.summary == message.id);
        !message.voided && if message.summary { summary } else { !gone }
    };
    let all: BTreeMap<&str, _> = session.messages.iter().map(|message| (message.id.as_str(), message)).collect();
    let live: Vec<_> = session.messages.iter().filter(|message| seen(message)).collect();
    let mut tokens = [0_i64; 8];
    let mut parts = [0_i64; 8];
    for part in &session.parts {
        let category = match all.get(part.message.as_str()) {
            Some(message) if !seen(message) => continue,
            Some(message) if message.summary => 7,
            // Results are stored before the message that contains them.
            Some(_) | None => part.category,
        };
        let at = usize::try_from(category - 1).unwrap();
        tokens[at] += part.tokens;
        parts[at] += 1;
    }
    let overhead: i64 = live.iter().map(|message| message.tokens).sum();
    let recount: Vec<i64> =
        [i64::try_from(live.len()).unwrap(), overhead].into_iter().chain(tokens).chain(parts).collect();
    let mut found = Vec::new();
    if recount != session.counters {
        let what = CATEGORIES.join(", ");
        found.push(format!("recount: {recount:?} where {:?} are kept (messages, overhead; {what})", session.counters));
    }
    let size = overhead + tokens.iter().sum::<i64>();
    if size != session.size {
        found.push(format!("recount: the transcript has {size} tokens, {} are kept", session.size));
    }
    found
}

/// An epoch is granted once.
fn grants(told: &[Told]) -> Vec<String> {
    let mut granted: BTreeMap<(&str, i64), Vec<&str>> = BTreeMap::new();
    for told in told {
        if let Told::Granted { session, epoch, how } = told {
            granted.entry((session, *epoch)).or_default().push(how);
        }
    }
    let twice = granted.into_iter().filter(|(_, how)| how.len() > 1);
    twice.map(|((session, epoch), how)| format!("owners: epoch {epoch} of {session} went to {how:?}")).collect()
}

/// An acknowledgement holds.
fn promise(stored: &BTreeMap<String, Stored>, told: &Told) -> Option<String> {
    let of = |session: &String| stored.get(session);
    match told {
        Told::Granted { .. } | Told::Forked { .. } => None,
        Told::Refused { what } => Some(format!("refused: {what}")),
        Told::Wrote { mark: text } => {
            let session = of(&text.split('/').nth(1)?.to_owned())?;
            let marks = session.events.iter().filter(|event| event.refs.first() == Some(text)).count();
            (marks == 0).then(|| format!("lost write: {text} was acknowledged"))
        }
        Told::Admitted { session, request, turn } => {
            let of = of(session)?;
            let there = of.turns.iter().any(|it| it.id == *turn && it.request == *request);
            (!there).then(|| format!("lost turn: {turn} of request {request}"))
        }
        Told::Queued(queueing) => queued(of(&queueing.session)?, queueing),
        Told::Withdrew { session, messages } => {
            let queue = &of(session)?.queue;
            let kept = messages.iter().find(|id| {
                !queue
                    .iter()
                    .any(|it| it.id == **id && matches!(it.status, QueuedStatus::Cancelled | QueuedStatus::Expired))
            });
            kept.map(|id| format!("message: {id} was withdrawn, and is not"))
        }
        Told::Accepted { session, calls } => {
            let known = &of(session)?.calls;
            let lost =
                calls.iter().find(|id| !known.iter().any(|it| it.id == **id && matches!(it.status, 0 | 3 | 4 | 5 | 6)));
            lost.map(|id| format!("results: the answer to {id} was accepted, and is not there"))
        }
        Told::Cancelled { session, turn } => {
            let of = of(session)?;
            let end = of.events.iter().position(|event| event.turn == *turn && event.kind == "turn_completed")?;
            let last = of.events[..end].iter().rev().find(|event| event.kind == "usage_recorded")?;
            let finished = mark(last.refs.first()?).is_some_and(|mark| mark.verb == "finish");
            finished.then(|| format!("cancel: turn {turn} was cancelled, and completed as if it were not"))
        }
        Told::Updated { session, request, revision } => {
            let remembered = of(session)?.requests.get(request);
            (remembered != Some(&revision.to_string()))
                .then(|| format!("request: {request} made {revision}, not {remembered:?}"))
        }
        Told::Imported { session, messages } => {
            let there: Vec<&String> =
                of(session)?.messages.iter().map(|it| &it.id).filter(|id| messages.contains(*id)).collect();
            (there != messages.iter().collect::<Vec<_>>())
                .then(|| format!("lost messages: {messages:?}, there are {there:?}"))
        }
        Told::Deleted { session, seq } => {
            let of = of(session)?;
            let last = of.events.last().map_or(0, |event| event.seq);
            let open =
                of.queue.iter().any(|it| it.status == QueuedStatus::Pending) || of.turns.iter().any(|it| it.live);
            (of.state == RunState::Deleted && (last != *seq || open))
                .then(|| format!("after the end: {session} was deleted at {seq}, last is {last}"))
        }
        Told::Compacted { session, compaction, reverted } => {
            let status = of(session)?.compactions.iter().find(|it| it.id == *compaction).map(|it| it.status);
            let right = status == Some(4) || (!reverted && status == Some(2));
            (!right).then(|| format!("compaction: {compaction} has status {status:?}, reverted: {reverted}"))
        }
    }
}

/// A message is where the response indicated: in the turn that was running, in the list of waiting messages at the end
/// of that turn, or in the turn that it started.
fn queued(session: &Stored, told: &Queueing) -> Option<String> {
    let Queueing { session: _, request, message, pending, asap, met, start } = told;
    let Some(queued) = session.queue.iter().find(|it| it.id == *message) else {
        return Some(format!("lost message: {message} of request {request} was acknowledged"));
    };
    if !pending {
        return None;
    }
    if let Some(turn) = met.as_ref().and_then(|met| session.turns.iter().find(|it| it.id == *met)) {
        let end = session.events.iter().find(|event| event.seq == turn.last_seq && event.turn == turn.id)?;
        let waited = queued.status == QueuedStatus::Pending || queued.seq > end.seq;
        let finished = session
            .events
            .iter()
            .rev()
            .find(|event| event.seq < end.seq && event.kind == "usage_recorded")
            .and_then(|event| mark(event.refs.first()?))
            .is_some_and(|mark| mark.verb == "finish");
        let seen = end.refs.contains(message);
        let stranded = waited && (!seen || (finished && *asap));
        return stranded
            .then(|| format!("lost wake-up: {message} was told of turn {}, which ended without it", turn.id));
    }
    let lost = met.is_none() && *start == Some((session.revision, false));
    lost.then(|| format!("lost start: {message} was to start a turn, and nobody did"))
}

/// A fork has the messages of its source.
fn forks(stored: &BTreeMap<String, Stored>, told: &[Told]) -> Vec<String> {
    let mut found = Vec::new();
    for told in told {
        let Told::Forked { session, from, at } = told else {
            continue;
        };
        let (Some(fork), Some(source)) = (stored.get(session), stored.get(from)) else {
            continue;
        };
        let said = |of: &Stored| -> Vec<Message> {
            // Messages that were rolled back later were valid at the time of the fork.
            let then = of.messages.iter().filter(|message| message.seq <= *at).cloned();
            then.map(|message| Message { voided: false, ..message }).collect()
        };
        if said(fork) != said(source) || fork.next_seq <= *at {
            found.push(format!("fork: {session} differs from {from} up to {at}"));
        }
        let of: BTreeSet<String> = said(fork).into_iter().map(|message| message.id).collect();
        let parts =
            |it: &Stored| -> Vec<Part> { it.parts.iter().filter(|part| of.contains(&part.message)).cloned().collect() };
        if parts(fork) != parts(source) {
            found.push(format!("fork: the parts of {session} differ from those of {from}"));
        }
    }
    found
}
