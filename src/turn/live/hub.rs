//! What is live: who follows a session on this replica, how far it got, and the text of the message
//! that is being written.
//!
//! Durable events are read from the database by every reader; the hub only says that there are new
//! ones. Of the open message it keeps the text so far, once, and each reader knows how much of it
//! it has shown: whoever is slow gets more at a time, costs no memory and holds nothing up. What is
//! shown carries the seq it follows, so that a reader knows whether it still belongs to what it has
//! shown.

mod announced;
mod marks;

pub use announced::Announced;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{
    model::{
        Delta, MessageId, Seq, SessionKey, TurnId,
        delta::{DeltaKind, Stretch},
        event::StepPosition,
    },
    session::SessionState,
    store::{
        chunk::Elsewhere,
        lost_commits::{Mark, Verdict},
    },
};

/// How long the text of a message that is committed or void stays for readers that lag.
const LINGER: Duration = Duration::from_secs(1);

/// All sessions that are followed or written on this replica.
#[derive(Debug, Clone, Default)]
pub struct Hub {
    channels: Arc<Mutex<BTreeMap<SessionKey, Weak<Channel>>>>,
}

/// One session's news on this replica.
#[derive(Debug)]
pub struct Channel {
    key: SessionKey,
    hub: Hub,
    head: watch::Sender<Head>,
    pulse: watch::Sender<()>,
    open: Mutex<Option<Open>>,
    announced: Mutex<announced::Announcements>,
    marks: Mutex<marks::Marks>,
    /// The session's turn ran on another replica when that was looked at.
    elsewhere: AtomicBool,
}

/// How far a session got, as far as this replica knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// The newest seq.
    pub seq: Seq,
    /// The session was deleted.
    pub gone: bool,
    /// How often events of the session were found to be lost.
    pub losses: u32,
}

/// Something that is shown but not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// The durable event it follows.
    pub after: Seq,
    /// The turn.
    pub turn: TurnId,
    /// Where in the turn.
    pub at: StepPosition,
    /// What.
    pub what: LiveKind,
}

/// What is shown but not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveKind {
    /// The model was called and has not answered yet.
    Thinking {
        /// Model reference.
        model: String,
    },
    /// More of the open message.
    Delta(Delta),
}

/// The message that is being written, with all text so far.
#[derive(Debug, Clone)]
pub struct OpenMessage {
    /// Which.
    pub message: MessageId,
    /// The durable event it follows.
    pub after: Seq,
    /// The turn.
    pub turn: TurnId,
    /// Where in the turn.
    pub at: StepPosition,
    /// Its parts by index: what kind, and the text so far. A part without text so far, such as
    /// hidden reasoning, is missing.
    pub parts: BTreeMap<u32, (DeltaKind, String)>,
}

/// A call of a model, from its beginning to its commit and a moment longer, for readers that lag by
/// a step.
#[derive(Debug)]
struct Open {
    after: Seq,
    turn: TurnId,
    at: StepPosition,
    /// The model that was called, if that is known.
    model: Option<String>,
    /// None: it has not answered yet.
    message: Option<MessageId>,
    /// Its parts by index. Indices may be missing: a part that the provider hid has no text to
    /// stream.
    parts: BTreeMap<u32, (DeltaKind, String)>,
    /// The newest chunk it was made of; 0 when it is written here.
    chunk: i32,
    /// Committed or void.
    closed: bool,
    /// When it was first found to be closed.
    lingers_since: Option<Instant>,
}

/// How much of the open message a reader has.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// The call whose beginning is known, by the event it follows.
    called: Option<Seq>,
    message: Option<MessageId>,
    /// Bytes of each part, by its index.
    parts: BTreeMap<u32, usize>,
}

/// A reader's place in a channel.
#[derive(Debug)]
pub struct Subscription {
    /// The channel; keeps it alive.
    pub channel: Arc<Channel>,
    /// How far the session got.
    pub head: watch::Receiver<Head>,
    /// That something is to be shown that is not kept.
    pub pulse: watch::Receiver<()>,
    shown: Shown,
    heard: usize,
    losses: u32,
}

impl Hub {
    /// The session's channel, for as long as it is held.
    pub fn enter(&self, key: &SessionKey) -> Arc<Channel> {
        let mut channels = lock(&self.channels);
        if let Some(channel) = channels.get(key).and_then(Weak::upgrade) {
            return channel;
        }
        let channel = Arc::new(Channel {
            key: key.clone(),
            hub: self.clone(),
            head: watch::Sender::new(Head::default()),
            pulse: watch::Sender::new(()),
            open: Mutex::new(None),
            announced: Mutex::default(),
            marks: Mutex::default(),
            elsewhere: AtomicBool::new(false),
        });
        channels.insert(key.clone(), Arc::downgrade(&channel));
        channel
    }

    /// The session's channel, if it is held.
    pub fn get(&self, key: &SessionKey) -> Option<Arc<Channel>> {
        lock(&self.channels).get(key).and_then(Weak::upgrade)
    }

    /// Every session that is followed or written here.
    pub fn channels(&self) -> Vec<Arc<Channel>> {
        lock(&self.channels)
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }
}

impl Channel {
    /// Tells readers that there are events up to `seq`.
    pub fn advance(&self, seq: Seq) {
        self.head.send_if_modified(|head| {
            let newer = seq > head.seq;
            head.seq = head.seq.max(seq);
            newer
        });
    }

    /// Tells readers that the session is gone. Another one may come to have its id: who enters from
    /// now on gets another channel.
    pub fn end(&self) {
        {
            let mut channels = lock(&self.hub.channels);
            if channels
                .get(&self.key)
                .is_some_and(|channel| std::ptr::eq(channel.as_ptr(), self))
            {
                channels.remove(&self.key);
            }
        }
        self.head.send_modify(|head| head.gone = true);
    }

    /// Notes an event that a reader has seen.
    pub fn mark(&self, mark: Mark) {
        lock(&self.marks).add(mark);
    }

    /// What is to be compared with what the database has.
    pub fn marks(&self) -> Vec<Mark> {
        let newest = self.seq();
        lock(&self.marks).all(newest)
    }

    /// Takes in what the database says of the marks that it was asked about. Of a session that lost
    /// events the newest seq is another one, and what was shown of an open message is void.
    pub fn compared(&self, asked: &[Mark], found: &[(Seq, Verdict)]) {
        let lost = found.iter().find_map(|(_, verdict)| match verdict {
            Verdict::Lost(last) => Some(*last),
            Verdict::Written(_) => None,
        });
        match lost {
            Some(last) => {
                lock(&self.marks).clear();
                lock(&self.open).take();
                self.head.send_modify(|head| {
                    *head = Head {
                        seq: last,
                        gone: head.gone,
                        losses: head.losses + 1,
                    }
                });
            }
            None => lock(&self.marks).compared(asked, found),
        }
    }

    /// Which session.
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// How far the session is known to have got.
    pub fn seq(&self) -> Seq {
        self.head.borrow().seq
    }

    /// Whether it has readers here.
    pub fn has_readers(&self) -> bool {
        self.pulse.receiver_count() > 0
    }

    /// Notes whether the session's turn runs on another replica.
    pub fn set_elsewhere(&self, runs: bool) {
        self.elsewhere.store(runs, Ordering::Relaxed);
    }

    /// Whether the session's turn ran on another replica when that was looked at.
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere.load(Ordering::Relaxed)
    }

    /// Shows something that is not kept.
    pub fn show(&self, live: Live) {
        let mut open = lock(&self.open);
        // A stale owner does not write over what follows a newer event.
        if open.as_ref().is_none_or(|open| open.after <= live.after) {
            match live.what {
                LiveKind::Thinking { model } => {
                    *open = Some(Open {
                        model: Some(model),
                        ..Open::at(live.after, live.turn, live.at)
                    });
                }
                LiveKind::Delta(delta) => add(&mut open, live.after, &live.turn, live.at, delta),
            }
            drop(open);
            self.pulse.send_replace(());
        }
    }

    /// Tells readers that a message waits.
    pub fn announce(&self, announced: Announced) {
        lock(&self.announced).add(announced);
        self.pulse.send_replace(());
    }

    /// The message is committed or void: newcomers do not see it any more. Another one stays open:
    /// it is a newer attempt's.
    pub fn close_message(&self, message: &MessageId) {
        if let Some(open) = lock(&self.open)
            .as_mut()
            .filter(|open| open.message.as_ref().is_none_or(|it| it == message))
        {
            open.closed = true;
        }
    }

    /// Forgets what was found to be closed a while ago. Who has not shown it by now shows its commit.
    pub fn tidy(&self, now: Instant) {
        lock(&self.open)
            .take_if(|open| open.closed && now - *open.lingers_since.get_or_insert(now) >= LINGER);
    }

    /// The message whose chunks were taken in, and up to which.
    pub fn taken(&self) -> (Option<MessageId>, i32) {
        let open = lock(&self.open);
        open.as_ref()
            .filter(|open| open.chunk > 0)
            .map_or((None, 0), |open| (open.message.clone(), open.chunk))
    }

    /// Takes in what another replica writes.
    pub fn take_in(&self, seen: Elsewhere) {
        let Elsewhere {
            key: _,
            last_seq: _,
            state,
            at,
            committed,
            chunks,
        } = seen;
        let mut open = lock(&self.open);
        let mut news = false;
        for chunk in chunks.into_iter().filter(|chunk| chunk.stretch.at == at) {
            let Some(message) = chunk.stretch.message() else {
                continue;
            };
            let known = open
                .as_ref()
                .filter(|open| open.message.as_ref() == Some(message))
                .map(|open| open.chunk);
            let newer = open
                .as_ref()
                .is_none_or(|open| open.after < chunk.stretch.after);
            if known.map_or(newer && chunk.n == 1, |known| {
                known > 0 && chunk.n == known + 1
            }) {
                let Stretch {
                    after,
                    turn,
                    at,
                    deltas,
                } = chunk.stretch;
                deltas
                    .into_iter()
                    .for_each(|delta| add(&mut open, after, &turn, at, delta));
                open.iter_mut().for_each(|open| open.chunk = chunk.n);
                news = true;
            }
        }
        if let Some(open) = open.as_mut().filter(|open| open.chunk > 0) {
            open.closed |= committed || state != SessionState::Running || open.at != at;
        }
        drop(open);
        if news {
            self.pulse.send_replace(());
        }
    }

    /// What was added to the message that is written here since `shown`. `None` means nothing, or
    /// no message.
    pub fn stretch(&self, shown: &mut Shown) -> Option<Stretch> {
        let open = lock(&self.open);
        let open = open
            .as_ref()
            .filter(|open| open.chunk == 0 && !open.closed)?;
        let deltas = open.since(shown);
        (!deltas.is_empty()).then(|| Stretch {
            after: open.after,
            turn: open.turn.clone(),
            at: open.at,
            deltas,
        })
    }

    /// A new reader's position: the open message is still to be shown. A closed one is not: it is
    /// kept for the readers that were there before it was closed, and a new reader gets its
    /// commit from the table.
    pub fn subscribe(self: &Arc<Self>) -> Subscription {
        let mut pulse = self.pulse.subscribe();
        pulse.mark_changed();
        let heard = lock(&self.announced).in_all();
        let mut shown = Shown::default();
        if let Some(closed) = lock(&self.open).as_ref().filter(|open| open.closed) {
            closed.mark_shown(&mut shown);
        }
        let head = self.head.subscribe();
        let losses = head.borrow().losses;
        Subscription {
            channel: Arc::clone(self),
            head,
            pulse,
            shown,
            heard,
            losses,
        }
    }
}

impl Subscription {
    /// The newest seq, if events of the session were lost since this place was taken.
    pub fn lost(&self) -> Option<Seq> {
        let head = *self.head.borrow();
        (head.losses != self.losses).then_some(head.seq)
    }

    /// The durable event that the newest call follows, if it is known here.
    pub fn follows(&self) -> Option<Seq> {
        lock(&self.channel.open).as_ref().map(|open| open.after)
    }

    /// What there is to show that was not shown yet, if it follows such an event.
    pub fn more_after(&mut self, is_wanted: impl Fn(Seq) -> bool) -> Vec<Live> {
        let open = lock(&self.channel.open);
        let Some(open) = open.as_ref().filter(|open| is_wanted(open.after)) else {
            return Vec::new();
        };
        let live = |what| Live {
            after: open.after,
            turn: open.turn.clone(),
            at: open.at,
            what,
        };
        let mut more = Vec::new();
        if let Some(model) = &open.model
            && self.shown.called != Some(open.after)
        {
            more.push(live(LiveKind::Thinking {
                model: model.clone(),
            }));
        }
        self.shown.called = Some(open.after);
        more.extend(
            open.since(&mut self.shown)
                .into_iter()
                .map(|delta| live(LiveKind::Delta(delta))),
        );
        more
    }

    /// Messages that were queued and not heard of yet.
    pub fn queued(&mut self) -> Vec<Announced> {
        let announced = lock(&self.channel.announced);
        let new = announced.after(self.heard);
        self.heard = announced.in_all();
        new
    }

    /// The durable event that the open message follows, if one is open.
    pub fn open_after(&self) -> Option<Seq> {
        lock(&self.channel.open)
            .as_ref()
            .filter(|open| !open.closed && open.message.is_some())
            .map(|open| open.after)
    }

    /// The open message with all text so far, which is shown by that; only if it follows an event
    /// that is `current`.
    pub fn so_far(&mut self, current: impl Fn(Seq) -> bool) -> Option<OpenMessage> {
        let open = lock(&self.channel.open);
        let open = open
            .as_ref()
            .filter(|open| !open.closed && current(open.after))?;
        let message = open.message.clone()?;
        open.mark_shown(&mut self.shown);
        let turn = open.turn.clone();
        let parts = open.parts.clone();
        Some(OpenMessage {
            message,
            after: open.after,
            turn,
            at: open.at,
            parts,
        })
    }
}

impl Shown {
    /// The message that it is about.
    pub fn message(&self) -> Option<&MessageId> {
        self.message.as_ref()
    }
}

impl Open {
    fn at(after: Seq, turn: TurnId, at: StepPosition) -> Self {
        Self {
            after,
            turn,
            at,
            model: None,
            message: None,
            parts: BTreeMap::new(),
            chunk: 0,
            closed: false,
            lingers_since: None,
        }
    }

    /// The text after what was shown, one delta for each part that has more. The first delta of a
    /// part may be empty: it announces a tool call. Returned deltas count as shown.
    fn since(&self, shown: &mut Shown) -> Vec<Delta> {
        let Some(message) = &self.message else {
            return Vec::new();
        };
        if shown.message.as_ref() != Some(message) {
            shown.message = Some(message.clone());
            shown.parts.clear();
        }
        let mut deltas = Vec::new();
        for (&part, (kind, text)) in &self.parts {
            let known = shown.parts.get(&part).copied();
            if known.is_none_or(|known| text.len() > known) {
                let offset = known.unwrap_or(0);
                deltas.push(Delta {
                    message: message.clone(),
                    part,
                    offset: u32::try_from(offset).unwrap_or(u32::MAX),
                    text: text[offset..].to_owned(),
                    kind: kind.clone(),
                });
                shown.parts.insert(part, text.len());
            }
        }
        deltas
    }

    /// Marks the call and all text so far as shown.
    fn mark_shown(&self, shown: &mut Shown) {
        shown.called = Some(self.after);
        shown.message.clone_from(&self.message);
        shown.parts = self
            .parts
            .iter()
            .map(|(&part, (_, text))| (part, text.len()))
            .collect();
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let mut channels = lock(&self.hub.channels);
        if channels
            .get(&self.key)
            .is_some_and(|channel| channel.strong_count() == 0)
        {
            channels.remove(&self.key);
        }
    }
}

/// Adds a delta to the open message, or opens a new one.
fn add(open: &mut Option<Open>, after: Seq, turn: &TurnId, at: StepPosition, delta: Delta) {
    let Delta {
        message,
        part,
        offset: _,
        text,
        kind,
    } = delta;
    if open.as_ref().is_none_or(|open| {
        open.after != after || open.message.as_ref().is_some_and(|it| *it != message)
    }) {
        *open = Some(Open::at(after, turn.clone(), at));
    }
    if let Some(open) = open {
        open.message = Some(message);
        let (_, written) = open
            .parts
            .entry(part)
            .or_insert_with(|| (kind, String::new()));
        written.push_str(&text);
    }
}

/// A lock that outlives a panic elsewhere: what it guards is replaced or appended to as a whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
