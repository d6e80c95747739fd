//! What must hold of every history, found out anew from what is stored and what was told. It shares
//! nothing with the code that it checks: no statement, no type, no idea of how things are done.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Queueing, Stored, Told};

/// Names of categories in the order of the counters.
const CATEGORIES: [&str; 8] = [
    "user",
    "assistant",
    "reasoning",
    "tool call",
    "tool result",
    "media",
    "summary",
    "pinned",
];

/// Everything that does not hold, in words that begin with the name of the rule.
pub(super) fn violations(stored: &BTreeMap<String, Stored>, told: &[Told]) -> Vec<String> {
    let mut found = Vec::new();
    for (id, session) in stored {
        let rules = [
            seqs(session),
            fence(session),
            turns(session),
            calls(session),
            transcript(session),
            queue(session),
        ];
        let more = [requests(session), counters(session)];
        let all = rules.into_iter().chain(more).flatten();
        found.extend(all.map(|violation| format!("{violation} (session {id})")));
    }
    found.extend(grants(told));
    found.extend(told.iter().flat_map(|told| promise(stored, told)));
    found.extend(forks(stored, told));
    found
}

/// Numbered without gaps, from the first to the head, and owners come one after the other.
fn seqs(session: &Stored) -> Vec<String> {
    let seqs: Vec<i64> = session.events.iter().map(|event| event.seq).collect();
    let dense: Vec<i64> = (session.forked_at + 1..session.next_seq).collect();
    let mut found = Vec::new();
    if seqs != dense {
        found.push(format!(
            "gap: {seqs:?} where the head is {}",
            session.next_seq
        ));
    }
    for pair in session.events.windows(2) {
        if let [one, next] = pair
            && one.epoch > next.epoch
        {
            found.push(format!(
                "old owner: epoch {} at seq {} follows epoch {}",
                next.epoch, next.seq, one.epoch
            ));
        }
    }
    found
}

/// The mark of an owner's write says under which fence it was made: `verb/session/epoch/op/n`.
struct Mark<'a> {
    verb: &'a str,
    epoch: i64,
    op: i64,
}

fn mark(text: &str) -> Option<Mark<'_>> {
    let [verb, _, epoch, op, _] = text.split('/').collect::<Vec<_>>()[..] else {
        return None;
    };
    Some(Mark {
        verb,
        epoch: epoch.parse().ok()?,
        op: op.parse().ok()?,
    })
}

/// What an owner wrote stands under its own epoch, once, in the order of its operations.
fn fence(session: &Stored) -> Vec<String> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut newest = (0, -1);
    for event in session
        .events
        .iter()
        .filter(|event| event.kind == "usage_recorded")
    {
        let text = event.refs.first().map(String::as_str).unwrap_or_default();
        let Some(mark) = mark(text) else { continue };
        if mark.epoch != event.epoch {
            found.push(format!(
                "stale write: {text} landed under epoch {}",
                event.epoch
            ));
        }
        if !seen.insert(text) {
            found.push(format!("doubled write: {text} at seq {}", event.seq));
        } else if mark.epoch == event.epoch && (mark.epoch, mark.op) <= newest {
            found.push(format!(
                "two writes of one operation: {text} at seq {}",
                event.seq
            ));
        }
        newest = newest.max((mark.epoch, mark.op));
    }
    found
}

const ENDS: [&str; 3] = ["turn_completed", "turn_cancelled", "turn_failed"];

/// A turn that ended has one terminal event, its last one. One that has none is the live one.
fn turns(session: &Stored) -> Vec<String> {
    let mut found = Vec::new();
    for turn in &session.turns {
        let of: Vec<_> = session
            .events
            .iter()
            .filter(|event| event.turn == turn.id)
            .collect();
        let ends: Vec<i64> = of
            .iter()
            .filter(|event| ENDS.contains(&event.kind.as_str()))
            .map(|event| event.seq)
            .collect();
        let live = matches!(session.state, 1 | 2) && session.turn == turn.id;
        let expected: &[i64] = if live {
            &[]
        } else {
            std::slice::from_ref(&turn.last_seq)
        };
        if ends != expected {
            found.push(format!(
                "ends: turn {} has {ends:?}, expected {expected:?}",
                turn.id
            ));
        }
        if live != (turn.state == 1) {
            found.push(format!(
                "ends: turn {} is in state {} and live: {live}",
                turn.id, turn.state
            ));
        }
        if let (Some(last), [end, ..]) = (of.last(), ends.as_slice())
            && last.seq > *end
        {
            found.push(format!(
                "after the end: {} at seq {} of turn {}",
                last.kind, last.seq, turn.id
            ));
        }
        if of
            .first()
            .is_some_and(|first| first.seq != turn.first_seq || first.kind != "turn_started")
        {
            found.push(format!(
                "begin: turn {} does not begin with turn_started at {}",
                turn.id, turn.first_seq
            ));
        }
    }
    let known: BTreeSet<&str> = session.turns.iter().map(|turn| turn.id.as_str()).collect();
    let strange = session
        .events
        .iter()
        .filter(|event| !event.turn.is_empty() && !known.contains(event.turn.as_str()));
    found.extend(
        strange.map(|event| format!("begin: an event of turn {}, which there is not", event.turn)),
    );
    found
}

/// Each call is answered once, none is open when its turn is over, and those that are open are
/// counted.
fn calls(session: &Stored) -> Vec<String> {
    let mut found = Vec::new();
    let live = if matches!(session.state, 1 | 2) {
        session.turn.as_str()
    } else {
        ""
    };
    for call in &session.calls {
        let results = session
            .parts
            .iter()
            .filter(|part| part.kind == "tool_result" && part.call == call.id)
            .count();
        let closed = call.status >= 3;
        if results != usize::from(closed) {
            found.push(format!(
                "results: call {} in status {} has {results}",
                call.id, call.status
            ));
        }
        if !closed && call.turn != live {
            found.push(format!(
                "open call: {} of turn {:?}, which is not live",
                call.id, call.turn
            ));
        }
        let told = session.events.iter().filter(|event| {
            matches!(
                event.kind.as_str(),
                "tool_call_completed" | "tool_call_cancelled"
            ) && event.refs.first() == Some(&call.id)
        });
        let told = told.count();
        // In a fork, and where they were imported, the calls have no events.
        let its_own = session.forked_at == 0 && !call.turn.is_empty();
        if told != usize::from(closed) && (its_own || told > 0) {
            found.push(format!(
                "results: the end of call {} is told {told} times",
                call.id
            ));
        }
    }
    let mut asked = BTreeSet::new();
    for event in session
        .events
        .iter()
        .filter(|event| event.kind == "tool_call_requested")
    {
        if !asked.insert(event.refs.first()) {
            found.push(format!(
                "asked twice: for call {:?} at seq {}",
                event.refs, event.seq
            ));
        }
    }
    let open = session.calls.iter().filter(|call| call.status < 3).count();
    if session.open_calls != i64::try_from(open).unwrap() {
        found.push(format!(
            "recount: {open} calls are open, {} are counted",
            session.open_calls
        ));
    }
    found
}

/// Behind a message with calls stand their results, and nothing else comes between.
fn transcript(session: &Stored) -> Vec<String> {
    let mut found = Vec::new();
    let said: Vec<_> = session
        .messages
        .iter()
        .filter(|message| !message.summary && !message.voided)
        .collect();
    let names = |id: &str, kind: &str| -> BTreeSet<&str> {
        let of = session
            .parts
            .iter()
            .filter(|part| part.message == id && part.kind == kind);
        of.map(|part| part.call.as_str()).collect()
    };
    for (n, message) in said.iter().enumerate() {
        let made = names(&message.id, "tool_call");
        match said.get(n + 1) {
            Some(next)
                if !made.is_empty()
                    && (next.role != 4 || names(&next.id, "tool_result") != made) =>
            {
                found.push(format!(
                    "batch: message {} at seq {} follows calls",
                    next.id, next.seq
                ));
            }
            None if !made.is_empty() && session.open_calls == 0 => {
                found.push(format!(
                    "batch: the calls of {} have no results",
                    message.id
                ));
            }
            Some(_) | None => {}
        }
        let asked = n
            .checked_sub(1)
            .is_some_and(|before| !names(&said[before].id, "tool_call").is_empty());
        if message.role == 4 && !asked {
            found.push(format!("batch: results {} without calls", message.id));
        }
    }
    for message in &said {
        if !session
            .events
            .iter()
            .any(|event| event.seq == message.seq && event.refs.contains(&message.id))
            && message.seq > session.forked_at
        {
            found.push(format!(
                "gap: message {} at seq {} without its event",
                message.id, message.seq
            ));
        }
    }
    found
}

/// A queued message ends once, with its event, and is in the transcript if and only if it was
/// applied.
fn queue(session: &Stored) -> Vec<String> {
    let mut found = Vec::new();
    for queued in &session.queue {
        let ends: Vec<i64> = session
            .events
            .iter()
            .filter(|event| {
                event.kind.starts_with("queued_message_") && event.refs.contains(&queued.id)
            })
            .map(|event| event.seq)
            .collect();
        let into: Vec<&str> = session
            .parts
            .iter()
            .filter(|part| part.body.split(' ').any(|word| word == queued.id))
            .map(|part| part.message.as_str())
            .collect();
        let right = match queued.status {
            0 => ends.is_empty() && into.is_empty(),
            1 => {
                let applied = |event: &&super::history::Event| {
                    event.kind == "messages_applied" && event.seq == queued.seq
                };
                ends.is_empty()
                    && into == [queued.applied_to.as_str()]
                    && session.events.iter().any(|e| applied(&e))
            }
            _ => ends == [queued.seq] && into.is_empty(),
        };
        if !right {
            let Stored {
                state, next_seq, ..
            } = session;
            found.push(format!("message: {queued:?} is in {into:?} and has ends {ends:?}; state {state}, {next_seq}"));
        }
    }
    found
}

/// A request does one thing: it begins a turn with input, or queues a message, which may begin one
/// without.
fn requests(session: &Stored) -> Vec<String> {
    let inputs: BTreeSet<&str> = session
        .messages
        .iter()
        .map(|message| message.id.as_str())
        .collect();
    let mut done: BTreeMap<&str, (Vec<&str>, Vec<&str>)> = BTreeMap::new();
    for turn in session.turns.iter().filter(|turn| !turn.request.is_empty()) {
        done.entry(&turn.request).or_default().0.push(&turn.id);
    }
    for queued in session
        .queue
        .iter()
        .filter(|queued| !queued.request.is_empty())
    {
        done.entry(&queued.request).or_default().1.push(&queued.id);
    }
    let mut found = Vec::new();
    for (request, (turns, queued)) in done {
        let remembered = session.requests.get(request).map(String::as_str);
        let right = match (turns.as_slice(), queued.as_slice()) {
            ([turn], []) => remembered == Some(*turn),
            ([], [message]) => remembered == Some(*message),
            ([turn], [message]) => {
                remembered == Some(*message) && !inputs.contains(format!("{turn}-input").as_str())
            }
            _ => false,
        };
        if !right {
            found.push(format!(
                "request: {request} did {turns:?} and {queued:?}, remembered is {remembered:?}"
            ));
        }
    }
    found
}

/// The counters are those of a recount, for as long as there is anybody to read them.
fn counters(session: &Stored) -> Vec<String> {
    if session.state == 3 {
        return Vec::new();
    }
    let active = session
        .compactions
        .iter()
        .filter(|compaction| compaction.status == 2)
        .max_by_key(|it| it.active_from);
    let seen = |message: &super::history::Message| {
        let gone = active.is_some_and(|it| (it.from..=it.to).contains(&message.seq));
        let summary = active.is_some_and(|it| it.summary == message.id);
        !message.voided && if message.summary { summary } else { !gone }
    };
    let all: BTreeMap<&str, _> = session
        .messages
        .iter()
        .map(|message| (message.id.as_str(), message))
        .collect();
    let live: Vec<_> = session
        .messages
        .iter()
        .filter(|message| seen(message))
        .collect();
    let mut tokens = [0_i64; 8];
    let mut parts = [0_i64; 8];
    for part in &session.parts {
        let category = match all.get(part.message.as_str()) {
            Some(message) if !seen(message) => continue,
            Some(message) if message.summary => 7,
            // Results come before the message that holds them.
            Some(_) | None => part.category,
        };
        let at = usize::try_from(category - 1).unwrap();
        tokens[at] += part.tokens;
        parts[at] += 1;
    }
    let overhead: i64 = live.iter().map(|message| message.tokens).sum();
    let recount: Vec<i64> = [i64::try_from(live.len()).unwrap(), overhead]
        .into_iter()
        .chain(tokens)
        .chain(parts)
        .collect();
    let mut found = Vec::new();
    if recount != session.counters {
        let what = CATEGORIES.join(", ");
        found.push(format!(
            "recount: {recount:?} where {:?} are kept (messages, overhead; {what})",
            session.counters
        ));
    }
    let size = overhead + tokens.iter().sum::<i64>();
    if size != session.size {
        found.push(format!(
            "recount: the transcript has {size} tokens, {} are kept",
            session.size
        ));
    }
    found
}

/// An epoch is granted once.
fn grants(told: &[Told]) -> Vec<String> {
    let mut granted: BTreeMap<(&str, i64), Vec<&str>> = BTreeMap::new();
    for told in told {
        if let Told::Granted {
            session,
            epoch,
            how,
        } = told
        {
            granted.entry((session, *epoch)).or_default().push(how);
        }
    }
    let twice = granted.into_iter().filter(|(_, how)| how.len() > 1);
    twice
        .map(|((session, epoch), how)| {
            format!("owners: epoch {epoch} of {session} went to {how:?}")
        })
        .collect()
}

/// What was told is so.
fn promise(stored: &BTreeMap<String, Stored>, told: &Told) -> Option<String> {
    let of = |session: &String| stored.get(session);
    match told {
        Told::Granted { .. } | Told::Forked { .. } => None,
        Told::Refused { what } => Some(format!("refused: {what}")),
        Told::Wrote { mark: text } => {
            let session = of(&text.split('/').nth(1)?.to_owned())?;
            let marks = session
                .events
                .iter()
                .filter(|event| event.refs.first() == Some(text))
                .count();
            (marks == 0).then(|| format!("lost write: {text} was acknowledged"))
        }
        Told::Admitted {
            session,
            request,
            turn,
        } => {
            let of = of(session)?;
            let there = of
                .turns
                .iter()
                .any(|it| it.id == *turn && it.request == *request);
            (!there).then(|| format!("lost turn: {turn} of request {request}"))
        }
        Told::Queued(queueing) => queued(of(&queueing.session)?, queueing),
        Told::Withdrew { session, messages } => {
            let queue = &of(session)?.queue;
            let kept = messages.iter().find(|id| {
                !queue
                    .iter()
                    .any(|it| it.id == **id && matches!(it.status, 2 | 3))
            });
            kept.map(|id| format!("message: {id} was withdrawn, and is not"))
        }
        Told::Accepted { session, calls } => {
            let known = &of(session)?.calls;
            let lost = calls.iter().find(|id| {
                !known
                    .iter()
                    .any(|it| it.id == **id && matches!(it.status, 0 | 3 | 4 | 5 | 6))
            });
            lost.map(|id| format!("results: the answer to {id} was accepted, and is not there"))
        }
        Told::Cancelled { session, turn } => {
            let of = of(session)?;
            let end = of
                .events
                .iter()
                .position(|event| event.turn == *turn && event.kind == "turn_completed")?;
            let last = of.events[..end]
                .iter()
                .rev()
                .find(|event| event.kind == "usage_recorded")?;
            let finished = mark(last.refs.first()?).is_some_and(|mark| mark.verb == "finish");
            finished.then(|| {
                format!("cancel: turn {turn} was cancelled, and completed as if it were not")
            })
        }
        Told::Updated {
            session,
            request,
            revision,
        } => {
            let remembered = of(session)?.requests.get(request);
            (remembered != Some(&revision.to_string()))
                .then(|| format!("request: {request} made {revision}, not {remembered:?}"))
        }
        Told::Imported { session, messages } => {
            let there: Vec<&String> = of(session)?
                .messages
                .iter()
                .map(|it| &it.id)
                .filter(|id| messages.contains(*id))
                .collect();
            (there != messages.iter().collect::<Vec<_>>())
                .then(|| format!("lost messages: {messages:?}, there are {there:?}"))
        }
        Told::Deleted { session, seq } => {
            let of = of(session)?;
            let last = of.events.last().map_or(0, |event| event.seq);
            let open =
                of.queue.iter().any(|it| it.status == 0) || of.turns.iter().any(|it| it.state == 1);
            (of.state == 3 && (last != *seq || open))
                .then(|| format!("after the end: {session} was deleted at {seq}, last is {last}"))
        }
        Told::Compacted {
            session,
            compaction,
            reverted,
        } => {
            let status = of(session)?
                .compactions
                .iter()
                .find(|it| it.id == *compaction)
                .map(|it| it.status);
            let right = status == Some(4) || (!reverted && status == Some(2));
            (!right).then(|| {
                format!("compaction: {compaction} has status {status:?}, reverted: {reverted}")
            })
        }
    }
}

/// A message is where its sender was told: in the turn that ran, in view of that turn's end, or in
/// the turn that it started.
fn queued(session: &Stored, told: &Queueing) -> Option<String> {
    let Queueing {
        session: _,
        request,
        message,
        pending,
        asap,
        met,
        start,
    } = told;
    let Some(queued) = session.queue.iter().find(|it| it.id == *message) else {
        return Some(format!(
            "lost message: {message} of request {request} was acknowledged"
        ));
    };
    if !pending {
        return None;
    }
    if let Some(turn) = met
        .as_ref()
        .and_then(|met| session.turns.iter().find(|it| it.id == *met))
    {
        let end = session
            .events
            .iter()
            .find(|event| event.seq == turn.last_seq && event.turn == turn.id)?;
        let waited = queued.status == 0 || queued.seq > end.seq;
        let finished = session
            .events
            .iter()
            .rev()
            .find(|event| event.seq < end.seq && event.kind == "usage_recorded")
            .and_then(|event| mark(event.refs.first()?))
            .is_some_and(|mark| mark.verb == "finish");
        let seen = end.refs.contains(message);
        let stranded = waited && (!seen || (finished && *asap));
        return stranded.then(|| {
            format!(
                "lost wake-up: {message} was told of turn {}, which ended without it",
                turn.id
            )
        });
    }
    let lost = met.is_none() && *start == Some((session.revision, false));
    lost.then(|| format!("lost start: {message} was to start a turn, and nobody did"))
}

/// A fork says what its source said.
fn forks(stored: &BTreeMap<String, Stored>, told: &[Told]) -> Vec<String> {
    let mut found = Vec::new();
    for told in told {
        let Told::Forked { session, from, at } = told else {
            continue;
        };
        let (Some(fork), Some(source)) = (stored.get(session), stored.get(from)) else {
            continue;
        };
        let said = |of: &Stored| -> Vec<super::history::Message> {
            // What was taken back later was not taken back then.
            let then = of
                .messages
                .iter()
                .filter(|message| message.seq <= *at)
                .cloned();
            then.map(|message| super::history::Message {
                voided: false,
                ..message
            })
            .collect()
        };
        if said(fork) != said(source) || fork.next_seq <= *at {
            found.push(format!("fork: {session} differs from {from} up to {at}"));
        }
        let of: BTreeSet<String> = said(fork).into_iter().map(|message| message.id).collect();
        let parts = |it: &Stored| -> Vec<super::history::Part> {
            it.parts
                .iter()
                .filter(|part| of.contains(&part.message))
                .cloned()
                .collect()
        };
        if parts(fork) != parts(source) {
            found.push(format!(
                "fork: the parts of {session} differ from those of {from}"
            ));
        }
    }
    found
}
