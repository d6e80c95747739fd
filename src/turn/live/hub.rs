//! Live state of sessions on this replica: their readers, the newest known seq, and the text of the
//! message that is being written.
//!
//! Each reader reads durable events from the database; the hub only notifies it of new ones. The
//! hub keeps the text of the open message once, and each reader tracks the part that it has been
//! sent. A slow reader gets larger deltas, uses no additional memory and does not delay others.
//! Live output carries the seq that it follows, so that a reader can tell whether it still applies.

mod announced;
mod marks;

pub use announced::Announcement;

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
        delta::{DeltaBatch, DeltaKind},
        event::StepPosition,
    },
    session::SessionState,
    store::{
        chunk::RemoteSession,
        lost_commits::{SeenEvent, SeenEventCheck},
    },
};

/// How long the text of a committed or void message stays for slow readers.
const LINGER: Duration = Duration::from_secs(1);

/// The channels of all sessions that are followed or written on this replica.
#[derive(Debug, Clone, Default)]
pub struct Hub {
    channels: Arc<Mutex<BTreeMap<SessionKey, Weak<Channel>>>>,
}

/// The live state of one session on this replica.
#[derive(Debug)]
pub struct Channel {
    key: SessionKey,
    hub: Hub,
    head: watch::Sender<Head>,
    pulse: watch::Sender<()>,
    open: Mutex<Option<OpenResponse>>,
    announced: Mutex<announced::Announcements>,
    marks: Mutex<marks::Marks>,
    /// The session's turn ran on another replica when that was last checked.
    runs_remotely: AtomicBool,
}

/// The newest state of a session that this replica knows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// The newest seq.
    pub seq: Seq,
    /// The session was deleted.
    pub is_deleted: bool,
    /// How often events of the session were found to be lost.
    pub losses: u32,
}

/// Live output, which is sent to readers but not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveOutput {
    /// Seq of the durable event that it follows.
    pub after: Seq,
    pub turn: TurnId,
    pub at: StepPosition,
    pub kind: LiveKind,
}

/// The kinds of live output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveKind {
    /// The model was called and has not responded yet.
    Thinking {
        /// Reference of the model.
        model: String,
    },
    /// More text of the open message.
    Delta(Delta),
}

/// The message that is being written, with its text so far.
#[derive(Debug, Clone)]
pub struct OpenMessage {
    pub message: MessageId,
    /// Seq of the durable event that it follows.
    pub after: Seq,
    pub turn: TurnId,
    pub at: StepPosition,
    /// Kind and text of each part by index. Parts without text, such as hidden reasoning, are
    /// missing.
    pub parts: BTreeMap<u32, (DeltaKind, String)>,
}

/// A model call, from its beginning until shortly after its commit, for slow readers.
#[derive(Debug)]
struct OpenResponse {
    after: Seq,
    turn: TurnId,
    at: StepPosition,
    /// Reference of the called model, if known.
    model: Option<String>,
    /// `None` until the model responds.
    message: Option<MessageId>,
    /// The parts by index. Parts without text to stream, such as hidden ones, are missing.
    parts: BTreeMap<u32, (DeltaKind, String)>,
    /// The newest chunk that was applied. 0 if the message is written on this replica.
    chunk: i32,
    /// The message is committed or void.
    closed: bool,
    /// When the message was first found to be closed.
    lingers_since: Option<Instant>,
}

/// How much of the open message a reader has been sent.
#[derive(Debug, Clone, Default)]
pub struct SentPosition {
    /// The newest call that the reader was notified of, by the seq that it follows.
    called: Option<Seq>,
    message: Option<MessageId>,
    /// Bytes sent of each part, by index.
    parts: BTreeMap<u32, usize>,
}

/// A reader's position in a channel.
#[derive(Debug)]
pub struct Subscription {
    /// The channel. This reference keeps it alive.
    pub channel: Arc<Channel>,
    /// The newest known state of the session.
    pub head: watch::Receiver<Head>,
    /// Fires when there is new live output.
    pub pulse: watch::Receiver<()>,
    shown: SentPosition,
    heard: usize,
    losses: u32,
}

impl Hub {
    /// The session's channel. It is created if needed, and lives until the last reference is
    /// dropped.
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
            runs_remotely: AtomicBool::new(false),
        });
        channels.insert(key.clone(), Arc::downgrade(&channel));
        channel
    }

    /// The session's channel, if it exists.
    pub fn get(&self, key: &SessionKey) -> Option<Arc<Channel>> {
        lock(&self.channels).get(key).and_then(Weak::upgrade)
    }

    /// All sessions that are followed or written here.
    pub fn channels(&self) -> Vec<Arc<Channel>> {
        lock(&self.channels).values().filter_map(Weak::upgrade).collect()
    }
}

impl Channel {
    /// Notifies readers of events up to `seq`.
    pub fn advance(&self, seq: Seq) {
        self.head.send_if_modified(|head| {
            let newer = seq > head.seq;
            head.seq = head.seq.max(seq);
            newer
        });
    }

    /// Notifies readers that the session was deleted. A new session may reuse the id: later callers
    /// of [`Hub::enter`] get a new channel.
    pub fn end(&self) {
        {
            let mut channels = lock(&self.hub.channels);
            if channels.get(&self.key).is_some_and(|channel| std::ptr::eq(channel.as_ptr(), self)) {
                channels.remove(&self.key);
            }
        }
        self.head.send_modify(|head| head.is_deleted = true);
    }

    /// Records an event that a reader has seen.
    pub fn mark(&self, mark: SeenEvent) {
        lock(&self.marks).add(mark);
    }

    /// The events to compare with the database.
    pub fn marks(&self) -> Vec<SeenEvent> {
        let newest = self.seq();
        lock(&self.marks).all(newest)
    }

    /// Applies the result of comparing the marks in `asked` with the database. If the session lost
    /// events, its newest seq is reset, and the open message is discarded.
    pub fn compared(&self, asked: &[SeenEvent], found: &[(Seq, SeenEventCheck)]) {
        let lost = found.iter().find_map(|(_, verdict)| match verdict {
            SeenEventCheck::Lost(last) => Some(*last),
            SeenEventCheck::Written(_) => None,
        });
        match lost {
            Some(last) => {
                lock(&self.marks).clear();
                lock(&self.open).take();
                self.head.send_modify(|head| {
                    *head = Head { seq: last, is_deleted: head.is_deleted, losses: head.losses + 1 }
                });
            }
            None => lock(&self.marks).compared(asked, found),
        }
    }

    /// The session of this channel.
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// The newest known seq of the session.
    pub fn seq(&self) -> Seq {
        self.head.borrow().seq
    }

    /// Whether the session has readers on this replica.
    pub fn has_readers(&self) -> bool {
        self.pulse.receiver_count() > 0
    }

    /// Records whether the session's turn runs on another replica.
    pub fn set_runs_remotely(&self, runs: bool) {
        self.runs_remotely.store(runs, Ordering::Relaxed);
    }

    /// Whether the session's turn ran on another replica when that was last checked.
    pub fn runs_remotely(&self) -> bool {
        self.runs_remotely.load(Ordering::Relaxed)
    }

    /// Publishes live output.
    pub fn show(&self, live: LiveOutput) {
        let mut open = lock(&self.open);
        // A stale owner must not overwrite output that follows a newer event.
        if open.as_ref().is_none_or(|open| open.after <= live.after) {
            match live.kind {
                LiveKind::Thinking { model } => {
                    *open =
                        Some(OpenResponse { model: Some(model), ..OpenResponse::at(live.after, live.turn, live.at) });
                }
                LiveKind::Delta(delta) => add(&mut open, live.after, &live.turn, live.at, delta),
            }
            drop(open);
            self.pulse.send_replace(());
        }
    }

    /// Notifies readers of a queued message.
    pub fn announce(&self, announced: Announcement) {
        lock(&self.announced).add(announced);
        self.pulse.send_replace(());
    }

    /// Closes a committed or void message: new readers no longer get its text. A different open
    /// message stays open: it belongs to a newer attempt.
    pub fn close_message(&self, message: &MessageId) {
        if let Some(open) =
            lock(&self.open).as_mut().filter(|open| open.message.as_ref().is_none_or(|it| it == message))
        {
            open.closed = true;
        }
    }

    /// Drops a message that was found closed at least `LINGER` ago. A reader that lags behind it
    /// gets the committed message.
    pub fn tidy(&self, now: Instant) {
        lock(&self.open).take_if(|open| open.closed && now - *open.lingers_since.get_or_insert(now) >= LINGER);
    }

    /// The message whose chunks were applied, and the newest of them.
    pub fn applied_chunk(&self) -> (Option<MessageId>, i32) {
        let open = lock(&self.open);
        open.as_ref().filter(|open| open.chunk > 0).map_or((None, 0), |open| (open.message.clone(), open.chunk))
    }

    /// Applies the chunks of another replica.
    pub fn apply_chunks(&self, seen: RemoteSession) {
        let RemoteSession { key: _, last_seq: _, state, at, committed, chunks } = seen;
        let mut open = lock(&self.open);
        let mut news = false;
        for chunk in chunks.into_iter().filter(|chunk| chunk.stretch.at == at) {
            let Some(message) = chunk.stretch.message() else {
                continue;
            };
            let known = open.as_ref().filter(|open| open.message.as_ref() == Some(message)).map(|open| open.chunk);
            let newer = open.as_ref().is_none_or(|open| open.after < chunk.stretch.after);
            if known.map_or(newer && chunk.n == 1, |known| known > 0 && chunk.n == known + 1) {
                let DeltaBatch { after, turn, at, deltas } = chunk.stretch;
                deltas.into_iter().for_each(|delta| add(&mut open, after, &turn, at, delta));
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

    /// The text added since `shown` to the message that is written on this replica. Returns `None`
    /// if there is none.
    pub fn take_unshared_text(&self, shown: &mut SentPosition) -> Option<DeltaBatch> {
        let open = lock(&self.open);
        let open = open.as_ref().filter(|open| open.chunk == 0 && !open.closed)?;
        let deltas = open.since(shown);
        (!deltas.is_empty()).then(|| DeltaBatch { after: open.after, turn: open.turn.clone(), at: open.at, deltas })
    }

    /// Subscribes a new reader. It is sent the open message from the beginning. It is not sent a
    /// closed one, which is kept for earlier readers only: it gets the committed message from the
    /// table.
    pub fn subscribe(self: &Arc<Self>) -> Subscription {
        let mut pulse = self.pulse.subscribe();
        pulse.mark_changed();
        let heard = lock(&self.announced).total();
        let mut shown = SentPosition::default();
        if let Some(closed) = lock(&self.open).as_ref().filter(|open| open.closed) {
            closed.mark_shown(&mut shown);
        }
        let head = self.head.subscribe();
        let losses = head.borrow().losses;
        Subscription { channel: Arc::clone(self), head, pulse, shown, heard, losses }
    }
}

impl Subscription {
    /// The newest seq, if events of the session were lost since the subscription.
    pub fn lost(&self) -> Option<Seq> {
        let head = *self.head.borrow();
        (head.losses != self.losses).then_some(head.seq)
    }

    /// Seq that the newest known call follows.
    pub fn follows(&self) -> Option<Seq> {
        lock(&self.channel.open).as_ref().map(|open| open.after)
    }

    /// New live output, if `is_wanted` accepts the seq that it follows.
    pub fn more_after(&mut self, is_wanted: impl Fn(Seq) -> bool) -> Vec<LiveOutput> {
        let open = lock(&self.channel.open);
        let Some(open) = open.as_ref().filter(|open| is_wanted(open.after)) else {
            return Vec::new();
        };
        let live = |what| LiveOutput { after: open.after, turn: open.turn.clone(), at: open.at, kind: what };
        let mut more = Vec::new();
        if let Some(model) = &open.model
            && self.shown.called != Some(open.after)
        {
            more.push(live(LiveKind::Thinking { model: model.clone() }));
        }
        self.shown.called = Some(open.after);
        more.extend(open.since(&mut self.shown).into_iter().map(|delta| live(LiveKind::Delta(delta))));
        more
    }

    /// Messages queued since the last call.
    pub fn queued(&mut self) -> Vec<Announcement> {
        let announced = lock(&self.channel.announced);
        let new = announced.after(self.heard);
        self.heard = announced.total();
        new
    }

    /// Seq that the open message follows, if there is an open message.
    pub fn open_after(&self) -> Option<Seq> {
        lock(&self.channel.open).as_ref().filter(|open| !open.closed && open.message.is_some()).map(|open| open.after)
    }

    /// The open message with its text so far, which then counts as sent. Returns `None` if there is
    /// none, or `current` rejects the seq that it follows.
    pub fn open_message(&mut self, current: impl Fn(Seq) -> bool) -> Option<OpenMessage> {
        let open = lock(&self.channel.open);
        let open = open.as_ref().filter(|open| !open.closed && current(open.after))?;
        let message = open.message.clone()?;
        open.mark_shown(&mut self.shown);
        let turn = open.turn.clone();
        let parts = open.parts.clone();
        Some(OpenMessage { message, after: open.after, turn, at: open.at, parts })
    }
}

impl SentPosition {
    /// The message that this state describes. `None` before the first one.
    pub fn message(&self) -> Option<&MessageId> {
        self.message.as_ref()
    }
}

impl OpenResponse {
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

    /// The text after `shown`, one delta per part with new text. The first delta of a part may be
    /// empty: it announces a tool call. The returned deltas count as shown.
    fn since(&self, shown: &mut SentPosition) -> Vec<Delta> {
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

    /// Marks the call and its text so far as shown.
    fn mark_shown(&self, shown: &mut SentPosition) {
        shown.called = Some(self.after);
        shown.message.clone_from(&self.message);
        shown.parts = self.parts.iter().map(|(&part, (_, text))| (part, text.len())).collect();
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let mut channels = lock(&self.hub.channels);
        if channels.get(&self.key).is_some_and(|channel| channel.strong_count() == 0) {
            channels.remove(&self.key);
        }
    }
}

/// Appends a delta to the open message, or opens a new one.
fn add(open: &mut Option<OpenResponse>, after: Seq, turn: &TurnId, at: StepPosition, delta: Delta) {
    let Delta { message, part, offset: _, text, kind } = delta;
    if open.as_ref().is_none_or(|open| open.after != after || open.message.as_ref().is_some_and(|it| *it != message)) {
        *open = Some(OpenResponse::at(after, turn.clone(), at));
    }
    if let Some(open) = open {
        open.message = Some(message);
        let (_, written) = open.parts.entry(part).or_insert_with(|| (kind, String::new()));
        written.push_str(&text);
    }
}

/// Locks even if another holder has panicked: the guarded values are always replaced or appended to
/// as a whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
