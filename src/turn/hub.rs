//! What is live: who follows a session on this replica, how far it got, and the text of the message that is being written.
//!
//! Durable events are read from the database by every reader; the hub only says that there are new ones. Deltas exist nowhere
//! else: each carries the seq it follows, so that a reader knows whether it still belongs to what it has shown.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::{broadcast, watch};

use crate::model::{Delivery, Delta, MessageId, Seq, SessionKey, TurnId, delta::DeltaKind, event::StepPosition};

/// All sessions that somebody on this replica follows or writes.
#[derive(Debug, Clone)]
pub struct Hub {
    channels: Arc<Mutex<BTreeMap<SessionKey, Weak<Channel>>>>,
    buffer: usize,
}

/// One session's news on this replica.
#[derive(Debug)]
pub struct Channel {
    key: SessionKey,
    hub: Hub,
    head: watch::Sender<Head>,
    live: broadcast::Sender<Live>,
    open: Mutex<Option<OpenMessage>>,
}

/// How far a session got, as far as this replica knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// The newest seq.
    pub seq: Seq,
    /// The session was deleted.
    pub gone: bool,
}

/// Something that is shown but not kept.
#[derive(Debug, Clone)]
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
#[derive(Debug, Clone)]
pub enum LiveKind {
    /// The model was called and has not answered yet.
    Thinking {
        /// Model reference.
        model: String,
    },
    /// More of the open message.
    Delta(Delta),
    /// A message waits in the queue.
    Queued {
        /// Its id there.
        message: MessageId,
        /// Its rank, from 1.
        position: u32,
        /// When it is to be taken.
        delivery: Delivery,
    },
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
    /// Its parts: what kind, and the text so far.
    pub parts: Vec<(DeltaKind, String)>,
}

/// A reader's place in a channel. What comes behind the snapshot follows without gaps.
#[derive(Debug)]
pub struct Subscription {
    /// The channel; keeps it alive.
    pub channel: Arc<Channel>,
    /// How far the session got.
    pub head: watch::Receiver<Head>,
    /// What is shown but not kept, from now on.
    pub live: broadcast::Receiver<Live>,
    /// The open message at this point.
    pub open: Option<OpenMessage>,
}

impl Hub {
    /// A hub whose channels hold `buffer` live items for readers that are slower than the model.
    pub fn new(buffer: usize) -> Self {
        Self { channels: Arc::default(), buffer }
    }

    /// The session's channel, for as long as somebody holds it.
    pub fn enter(&self, key: &SessionKey) -> Arc<Channel> {
        let mut channels = lock(&self.channels);
        if let Some(channel) = channels.get(key).and_then(Weak::upgrade) {
            return channel;
        }
        let channel = Arc::new(Channel {
            key: key.clone(),
            hub: self.clone(),
            head: watch::Sender::new(Head::default()),
            live: broadcast::Sender::new(self.buffer),
            open: Mutex::new(None),
        });
        channels.insert(key.clone(), Arc::downgrade(&channel));
        channel
    }

    /// The session's channel, if somebody holds it.
    pub fn get(&self, key: &SessionKey) -> Option<Arc<Channel>> {
        lock(&self.channels).get(key).and_then(Weak::upgrade)
    }

    /// Every session that is followed here, with how far it is known.
    pub fn followed(&self) -> Vec<(SessionKey, Seq)> {
        let channels = lock(&self.channels);
        channels
            .values()
            .filter_map(Weak::upgrade)
            .map(|channel| (channel.key.clone(), channel.head.borrow().seq))
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

    /// The newest seq that is known here.
    pub fn seq(&self) -> Seq {
        self.head.borrow().seq
    }

    /// Tells readers that the session is gone. Another one may come to have its id: who enters from now on gets another channel.
    pub fn end(&self) {
        {
            let mut channels = lock(&self.hub.channels);
            if channels.get(&self.key).is_some_and(|channel| std::ptr::eq(channel.as_ptr(), self)) {
                channels.remove(&self.key);
            }
        }
        self.head.send_modify(|head| head.gone = true);
    }

    /// Shows something that is not kept.
    pub fn show(&self, live: Live) {
        let mut open = lock(&self.open);
        if let LiveKind::Delta(delta) = &live.what {
            append(&mut open, &live, delta);
        }
        // Nobody may be listening.
        let _ = self.live.send(live);
    }

    /// The message is committed or void. Another one stays open: it is a newer attempt's.
    pub fn close_message(&self, message: &MessageId) {
        lock(&self.open).take_if(|open| open.message == *message);
    }

    /// A reader's place, from now on.
    pub fn subscribe(self: &Arc<Self>) -> Subscription {
        let open = lock(&self.open);
        Subscription {
            channel: Arc::clone(self),
            head: self.head.subscribe(),
            live: self.live.subscribe(),
            open: open.clone(),
        }
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

/// Adds a delta to the open message, or opens a new one.
fn append(open: &mut Option<OpenMessage>, live: &Live, delta: &Delta) {
    if open.as_ref().is_none_or(|open| open.message != delta.message) {
        *open = Some(OpenMessage {
            message: delta.message.clone(),
            after: live.after,
            turn: live.turn.clone(),
            at: live.at,
            parts: Vec::new(),
        });
    }
    if let Some(open) = open {
        let index = usize::try_from(delta.part).unwrap_or(usize::MAX);
        if index >= open.parts.len() {
            open.parts.push((delta.kind.clone(), String::new()));
        }
        if let Some((_, text)) = open.parts.get_mut(index) {
            text.push_str(&delta.text);
        }
    }
}

/// A lock that outlives a panic elsewhere: what it guards is replaced or appended to as a whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SessionId, TenantId};

    fn key() -> SessionKey {
        SessionKey::new(TenantId::new("t"), SessionId::new("s"))
    }

    fn delta(message: &str, part: u32, text: &str) -> Live {
        Live {
            after: Seq(3),
            turn: TurnId::new("turn"),
            at: StepPosition { step: 1, attempt: 1 },
            what: LiveKind::Delta(Delta {
                message: MessageId::new(message),
                part,
                offset: 0,
                text: text.to_owned(),
                kind: DeltaKind::Text,
            }),
        }
    }

    fn texts(open: Option<&OpenMessage>) -> Vec<String> {
        open.map(|open| open.parts.iter().map(|(_, text)| text.clone()).collect()).unwrap_or_default()
    }

    #[test]
    fn a_newcomer_gets_the_text_so_far_and_then_exactly_what_follows() {
        let channel = Hub::new(16).enter(&key());
        channel.show(delta("m", 0, "one "));
        channel.show(delta("m", 0, "two"));
        channel.show(delta("m", 1, "three"));
        let mut reader = channel.subscribe();
        channel.show(delta("m", 1, " four"));
        assert_eq!(texts(reader.open.as_ref()), ["one two", "three"]);
        let LiveKind::Delta(next) = reader.live.try_recv().expect("a delta").what else { panic!("not a delta") };
        assert_eq!((next.part, next.text.as_str()), (1, " four"));
        assert!(reader.live.try_recv().is_err());
    }

    #[test]
    fn a_message_that_is_settled_is_not_shown_to_newcomers() {
        let channel = Hub::new(16).enter(&key());
        channel.show(delta("m", 0, "text"));
        channel.close_message(&MessageId::new("m"));
        assert!(channel.subscribe().open.is_none());
        channel.show(delta("n", 0, "new"));
        assert_eq!(texts(channel.subscribe().open.as_ref()), ["new"]);
    }

    #[test]
    fn the_head_only_moves_forward() {
        let channel = Hub::new(16).enter(&key());
        let reader = channel.subscribe();
        channel.advance(Seq(5));
        channel.advance(Seq(4));
        assert_eq!(reader.head.borrow().seq, Seq(5));
    }

    #[test]
    fn a_channel_lives_as_long_as_somebody_holds_it() {
        let hub = Hub::new(16);
        let channel = hub.enter(&key());
        assert!(Arc::ptr_eq(&channel, &hub.enter(&key())));
        assert_eq!(hub.followed().len(), 1);
        drop(channel);
        assert!(hub.get(&key()).is_none());
        assert!(hub.followed().is_empty());
    }

    #[test]
    fn who_enters_after_the_end_gets_another_channel() {
        let hub = Hub::new(16);
        let old = hub.enter(&key());
        old.advance(Seq(9));
        old.end();
        let new = hub.enter(&key());
        assert!(old.subscribe().head.borrow().gone);
        assert_eq!(*new.subscribe().head.borrow(), Head::default());
        old.end();
        drop(old);
        assert!(Arc::ptr_eq(&new, &hub.enter(&key())), "the old one took nothing with it");
    }

    #[test]
    fn a_reader_that_is_too_slow_is_told_so_and_costs_a_bounded_buffer() {
        let channel = Hub::new(4).enter(&key());
        let mut reader = channel.subscribe();
        for _ in 0..100 {
            channel.show(delta("m", 0, "x"));
        }
        assert!(matches!(reader.live.try_recv(), Err(broadcast::error::TryRecvError::Lagged(96))));
    }
}
