//! A stream of events: what is stored behind a cursor, then what comes, without gap and without double.
//!
//! Durable events are always read from the database, in order of seq. Deltas come from the hub; each says which durable event it
//! follows, so that it is shown after that event, and never once the message it belongs to is settled. A reader that is too slow
//! loses deltas, never events, and gets the open message anew.

use std::sync::Arc;

use tokio::{
    sync::{broadcast::error::RecvError, mpsc},
    time::{Instant, sleep_until},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, metadata::MetadataMap};

use super::{decode::StreamOptions, encode::session_state, preview::fit_event};
use crate::{
    codec,
    model::{Content, Delta, MessageId, Seq, SessionKey, ToolCall, TurnId, delta::DeltaKind, event::StepPosition},
    pb::{self, event::Payload},
    store::event::Follow,
    turn::{
        Engine, Error,
        hub::{Live, LiveKind, OpenMessage, Subscription},
    },
};

/// Events that are read at once.
const READ: u32 = 128;
/// Deltas that are merged into one when they are ready together.
const MERGE: usize = 64;
/// The trailer that repeats how the turn ended.
const TURN_STATE: &str = "contextd-turn-state";

/// What tonic sends.
pub type EventStream<T> = ReceiverStream<Result<T, Status>>;

/// A stream that is about to be opened.
#[derive(Debug)]
pub struct Reader {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The session.
    pub key: SessionKey,
    /// Only events of this turn.
    pub only: Option<TurnId>,
    /// The stream ends with this turn.
    pub ends_with: Option<TurnId>,
    /// The stream ends with the turn that takes this queued message, or with the message.
    pub awaits: Option<MessageId>,
    /// The last seq that the client handled.
    pub cursor: Seq,
    /// The turn ended, and the client has seen it.
    pub over: bool,
    /// Events up to here happened before the stream began.
    pub replay_until: Seq,
    /// Tell the state once the replay is over.
    pub sync: bool,
    /// Go on with live events.
    pub follow: bool,
    /// What to stream.
    pub options: StreamOptions,
    /// The first event, of ExecuteTurn.
    pub admitted: Option<pb::Admitted>,
    /// A place among the news that was taken earlier.
    pub news: Option<Subscription>,
}

impl Reader {
    /// Opens the stream: a task that ends with the client.
    pub fn open<T: Send + 'static>(self, buffer: usize, wrap: fn(pb::Event) -> T) -> EventStream<T> {
        let (to_client, stream) = mpsc::channel(buffer);
        tokio::spawn(async move {
            let client = Client { to_client, wrap, last_sent: Instant::now() };
            Reading { reader: self, client, settled: Seq(0), state: None }.run().await;
        });
        ReceiverStream::new(stream)
    }
}

/// Why a stream ends.
enum Stop {
    /// The client left.
    Left,
    /// The turn it was about ended.
    Over,
    /// Everything there was is sent, and nothing more was wanted.
    Done,
    /// An error.
    Failed(Status),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<crate::store::Error> for Stop {
    fn from(error: crate::store::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// A client at the other end of a bounded channel.
struct Client<T> {
    to_client: mpsc::Sender<Result<T, Status>>,
    wrap: fn(pb::Event) -> T,
    last_sent: Instant,
}

impl<T> Client<T> {
    async fn send(&mut self, event: pb::Event) -> Result<(), Stop> {
        self.last_sent = Instant::now();
        self.to_client.send(Ok((self.wrap)(event))).await.map_err(|_| Stop::Left)
    }
}

/// A stream that is being read.
struct Reading<T> {
    reader: Reader,
    client: Client<T>,
    /// The newest event that settled an open message: deltas that follow an older one are void.
    settled: Seq,
    /// How the turn ended.
    state: Option<&'static str>,
}

impl<T: Send + 'static> Reading<T> {
    async fn run(mut self) {
        let status = match self.serve().await {
            Ok(()) | Err(Stop::Left | Stop::Done) => return,
            Err(Stop::Over) => trailer(self.state),
            Err(Stop::Failed(status)) => status,
        };
        let _ = self.client.to_client.send(Err(status)).await;
    }

    async fn serve(&mut self) -> Result<(), Stop> {
        if let Some(admitted) = self.reader.admitted.take() {
            let event =
                self.ephemeral(self.reader.ends_with.clone(), StepPosition::default(), Payload::Admitted(admitted));
            self.client.send(event).await?;
        }
        if self.reader.over {
            return Err(self.ended().await?);
        }
        // The place among the deltas is taken before the events are read, so that nothing falls between.
        let mut news = match self.reader.news.take() {
            Some(news) => news,
            None => self.subscribe(),
        };
        self.catch_up().await?;
        if self.reader.sync {
            self.sync(news.open.take()).await?;
        }
        if !self.reader.follow {
            return Err(Stop::Done);
        }
        loop {
            self.live(&mut news).await?;
        }
    }

    fn subscribe(&self) -> Subscription {
        let mut news = self.reader.engine.hub().enter(&self.reader.key).subscribe();
        news.head.mark_unchanged();
        news
    }

    /// One thing that happens.
    async fn live(&mut self, news: &mut Subscription) -> Result<(), Stop> {
        let draining = self.reader.engine.draining().clone();
        let heartbeat = self.client.last_sent + self.reader.options.heartbeat;
        tokio::select! {
            biased;
            () = self.client.to_client.closed() => Err(Stop::Left),
            live = news.live.recv() => match live {
                Ok(live) => self.show(live, news).await,
                Err(RecvError::Lagged(_)) => self.start_over(news).await,
                Err(RecvError::Closed) => Err(Stop::Failed(Error::Draining.into())),
            },
            _ = news.head.changed() => {
                if news.head.borrow().gone {
                    return Err(self.gone().await?);
                }
                self.catch_up().await
            }
            () = draining.cancelled() => {
                self.catch_up().await?;
                Err(Error::Draining.into())
            }
            () = sleep_until(heartbeat) => self.heartbeat(news).await,
        }
    }

    /// Sends every stored event behind the cursor.
    async fn catch_up(&mut self) -> Result<(), Stop> {
        loop {
            let page = self.reader.engine.store().follow(&self.reader.key, self.reader.cursor, READ).await?;
            let full = page.events.len() == READ as usize;
            self.send_page(page).await?;
            if !full {
                break;
            }
        }
        if let Some(channel) = self.reader.engine.hub().get(&self.reader.key) {
            channel.advance(self.reader.cursor);
        }
        Ok(())
    }

    async fn send_page(&mut self, page: Follow) -> Result<(), Stop> {
        for stored in page.events {
            self.reader.cursor = stored.seq;
            let ours = self.reader.only.as_ref().is_none_or(|only| stored.turn.as_ref() == Some(only));
            let mut event = codec::event::to_pb(&stored, &self.reader.key.session, &page.content);
            event.replay = stored.seq <= self.reader.replay_until;
            if settles(&event) {
                self.settled = stored.seq;
            }
            let withdrawn = self.heed_queue(&event);
            let terminal = terminal(&event).filter(|_| stored.turn.is_some() && stored.turn == self.reader.ends_with);
            let deleted = went_with_session(&event);
            if ours {
                fit_event(&self.reader.engine, &self.reader.key, &mut event).await.map_err(Stop::Failed)?;
                self.client.send(event).await?;
            }
            if withdrawn {
                return Err(Stop::Over);
            }
            if terminal.is_some() {
                self.state = terminal;
                return Err(if deleted { self.ended_with_session() } else { Stop::Over });
            }
        }
        Ok(())
    }

    /// Learns which turn took the message that the stream is about. True: none will. A message that goes with its session is left
    /// to the session's end.
    fn heed_queue(&mut self, event: &pb::Event) -> bool {
        let Some(awaited) = self.reader.awaits.as_ref().map(MessageId::as_str) else { return false };
        match &event.payload {
            Some(Payload::MessagesApplied(applied)) => {
                if applied.messages.iter().any(|message| message.queued_message_id == awaited) {
                    self.reader.ends_with = Some(TurnId::new(event.turn_id.clone()));
                    self.reader.awaits = None;
                }
                false
            }
            Some(Payload::QueuedMessageCancelled(gone)) => gone.queued_message_id == awaited,
            Some(Payload::QueuedMessageExpired(gone)) => gone.queued_message_id == awaited,
            Some(Payload::QueuedMessageDropped(gone)) => {
                gone.queued_message_id == awaited && gone.reason() != pb::DropReason::SessionDeleted
            }
            _ => false,
        }
    }

    /// Shows something that is not kept, behind the event it follows.
    async fn show(&mut self, live: Live, news: &mut Subscription) -> Result<(), Stop> {
        if live.after > self.reader.cursor {
            self.catch_up().await?;
        }
        let written = match live.what {
            LiveKind::Thinking { .. } | LiveKind::Delta(_) => true,
            LiveKind::Queued { .. } => false,
        };
        if (written && live.after < self.settled) || self.reader.only.as_ref().is_some_and(|only| *only != live.turn) {
            return Ok(());
        }
        let Live { after, turn, at, what } = live;
        match what {
            LiveKind::Thinking { model } => {
                let event = self.ephemeral(Some(turn), at, Payload::Thinking(pb::Thinking { model }));
                self.client.send(event).await
            }
            LiveKind::Queued { message, position, delivery } => {
                let queued = pb::MessageQueued {
                    queued_message_id: message.into_string(),
                    position: i32::try_from(position).unwrap_or(i32::MAX),
                    delivery: codec::queue::delivery_to_pb(delivery).into(),
                };
                let event = self.ephemeral(Some(turn), at, Payload::MessageQueued(queued));
                self.client.send(event).await
            }
            LiveKind::Delta(_) if self.reader.options.omit_deltas => Ok(()),
            LiveKind::Delta(delta) => {
                let (delta, next) = merge(delta, after, news);
                let event = self.ephemeral(Some(turn), at, codec::delta::to_pb(&delta));
                self.client.send(event).await?;
                match next {
                    Merged::Ready => Ok(()),
                    Merged::Other(live) => Box::pin(self.show(live, news)).await,
                    Merged::Lagged => self.start_over(news).await,
                }
            }
        }
    }

    /// A reader that was too slow: the open message anew, then what comes.
    async fn start_over(&mut self, news: &mut Subscription) -> Result<(), Stop> {
        *news = self.subscribe();
        self.catch_up().await?;
        self.sync(news.open.take()).await
    }

    /// The state at this point.
    async fn sync(&mut self, open: Option<OpenMessage>) -> Result<(), Stop> {
        let key = &self.reader.key;
        let Some(session) = self.reader.engine.store().session(key).await? else {
            return Err(self.gone().await?);
        };
        let open_calls = self.reader.engine.store().open_calls(key).await?;
        let (pending_calls, pending_approvals) =
            codec::turn::pending_to_pb(open_calls.iter().map(|open| &open.pending));
        let open = open.filter(|open| open.after >= self.settled && !self.reader.options.omit_deltas);
        let sync = pb::Sync {
            last_seq: self.reader.cursor.0,
            caught_up: true,
            state: session_state(session.state).into(),
            open_message: open.as_ref().map(|open| open_message(open, key)),
            pending_calls,
            queued_count: i32::try_from(session.queued).unwrap_or(i32::MAX),
            currently_compacting: false,
            pending_approvals,
        };
        let event = self.ephemeral(session.current_turn, StepPosition::default(), Payload::Sync(sync));
        self.client.send(event).await
    }

    async fn heartbeat(&mut self, news: &Subscription) -> Result<(), Stop> {
        let last = news.head.borrow().seq.max(self.reader.cursor);
        let beat = pb::Heartbeat { last_seq: last.0 };
        let event = self.ephemeral(None, StepPosition::default(), Payload::Heartbeat(beat));
        self.client.send(event).await
    }

    /// The session was deleted. Its events are there for a while: the last of them, the end of its turn, is shown first.
    async fn gone(&mut self) -> Result<Stop, Stop> {
        self.catch_up().await?;
        Ok(Error::SessionNotFound(self.reader.key.session.clone()).into())
    }

    /// The turn ended before the client came back, and it has seen everything.
    async fn ended(&mut self) -> Result<Stop, Stop> {
        if let Some(turn) = &self.reader.ends_with
            && let Some(turn) = self.reader.engine.store().turn(&self.reader.key, turn).await?
        {
            self.state = Some(state_name(codec::turn::state_to_pb(turn.state)));
        }
        Ok(Stop::Over)
    }

    /// The turn ended because its session was deleted: both are told.
    fn ended_with_session(&self) -> Stop {
        let mut status = Status::from(Error::SessionNotFound(self.reader.key.session.clone()));
        tell_state(status.metadata_mut(), self.state);
        Stop::Failed(status)
    }

    fn ephemeral(&self, turn: Option<TurnId>, at: StepPosition, payload: Payload) -> pb::Event {
        pb::Event {
            seq: 0,
            session_id: self.reader.key.session.to_string(),
            turn_id: turn.map(TurnId::into_string).unwrap_or_default(),
            step: i32::try_from(at.step).unwrap_or(i32::MAX),
            attempt: i32::try_from(at.attempt).unwrap_or(i32::MAX),
            time: Some(codec::time::timestamp_to_pb(self.reader.engine.now())),
            replay: false,
            payload: Some(payload),
        }
    }
}

/// What came behind a delta that was merged with others.
enum Merged {
    /// Nothing that is ready.
    Ready,
    /// Something else.
    Other(Live),
    /// The reader was too slow.
    Lagged,
}

/// Joins a delta with the following ones of the same part that are ready.
fn merge(mut delta: Delta, after: Seq, news: &mut Subscription) -> (Delta, Merged) {
    for _ in 0..MERGE {
        match news.live.try_recv() {
            Ok(Live { after: next_after, what: LiveKind::Delta(next), .. })
                if next_after == after && next.message == delta.message && next.part == delta.part =>
            {
                delta.text.push_str(&next.text);
            }
            Ok(other) => return (delta, Merged::Other(other)),
            Err(tokio::sync::broadcast::error::TryRecvError::Lagged(_)) => return (delta, Merged::Lagged),
            Err(_) => break,
        }
    }
    (delta, Merged::Ready)
}

/// The open message as a message without a seq.
fn open_message(open: &OpenMessage, key: &SessionKey) -> pb::Message {
    let parts = open.parts.iter().map(|(kind, text)| codec::part::open_to_pb(&open_part(kind, text)));
    pb::Message {
        message_id: open.message.to_string(),
        session_id: key.session.to_string(),
        turn_id: open.turn.to_string(),
        step: i32::try_from(open.at.step).unwrap_or(i32::MAX),
        role: pb::Role::Assistant.into(),
        parts: parts.collect(),
        ..pb::Message::default()
    }
}

fn open_part(kind: &DeltaKind, text: &str) -> Content {
    match kind {
        DeltaKind::Text => Content::Text(text.to_owned()),
        DeltaKind::Reasoning => Content::Reasoning { text: text.to_owned(), redacted: false },
        DeltaKind::ToolInput { call, name } => {
            Content::ToolCall(ToolCall { id: call.clone(), name: name.clone(), arguments: text.to_owned() })
        }
    }
}

/// Whether an event makes what was shown of an open message final or void.
fn settles(event: &pb::Event) -> bool {
    match &event.payload {
        Some(Payload::MessageCommitted(committed)) => {
            committed.message.as_ref().is_some_and(|message| message.role() == pb::Role::Assistant)
        }
        Some(Payload::TurnRetrying(_) | Payload::TurnRecovered(_)) => true,
        _ => terminal(event).is_some(),
    }
}

/// The state that a terminal event leaves its turn in.
fn terminal(event: &pb::Event) -> Option<&'static str> {
    let state = match &event.payload {
        Some(Payload::TurnCompleted(_)) => pb::TurnState::Completed,
        Some(Payload::TurnCancelled(_)) => pb::TurnState::Cancelled,
        Some(Payload::TurnFailed(_)) => pb::TurnState::Failed,
        _ => return None,
    };
    Some(state_name(state))
}

/// Whether a turn was cancelled because its session was deleted.
fn went_with_session(event: &pb::Event) -> bool {
    matches!(&event.payload, Some(Payload::TurnCancelled(end)) if end.cause() == pb::CancelCause::SessionDeleted)
}

fn state_name(state: pb::TurnState) -> &'static str {
    let name = state.as_str_name();
    name.strip_prefix("TURN_STATE_").unwrap_or(name)
}

/// The end of a stream whose turn ended: OK, with how it ended.
fn trailer(state: Option<&'static str>) -> Status {
    let mut metadata = MetadataMap::new();
    tell_state(&mut metadata, state);
    Status::with_metadata(Code::Ok, "", metadata)
}

fn tell_state(metadata: &mut MetadataMap, state: Option<&'static str>) {
    if let Some(state) = state {
        metadata.insert(TURN_STATE, tonic::metadata::MetadataValue::from_static(state));
    }
}
