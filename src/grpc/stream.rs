//! Streams the events of a session: stored events after a cursor, then live ones, without gaps or duplicates.
//!
//! Durable events are sent in order of seq. They are read from the database, or from this replica's memory if
//! it has just committed them and the stream has sent everything before. Deltas come from the hub. Each delta
//! names the durable event that it follows: it is sent after that event, and never after its message is
//! committed or void. A slow reader gets more text per delta: all text before its message is committed, or,
//! if the hub has dropped it by then, with the committed message.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, StreamExt as _};
use jiff::Timestamp;
use prost::Message as _;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, sleep_until},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, metadata::MetadataMap};

use super::{decode::StreamOptions, encode::session_state, nearly_full::nearly_full, preview::fit_event, raw_output};
use crate::{
    codec::{
        self,
        field::{Choice as _, Field as _},
    },
    config::StreamConfig,
    model::{Content, MessageId, Seq, SessionKey, ToolCall, TurnId, delta::DeltaKind, event::StepPosition},
    pb::{self, event::Payload},
    store::{
        Reach,
        event_page::{EventPage, EventPageLimits},
        lost_commits::SeenEvent,
    },
    turn::{
        Engine, Error,
        live::hub::{Announcement, LiveKind, LiveOutput, OpenMessage, Subscription},
    },
};

/// Maximum number of events per database read.
const MAX_EVENTS_PER_READ: u32 = 32;
/// Bytes of an event in addition to its payload and content: the message struct, its ids and its time.
const EVENT_OVERHEAD_BYTES: u32 = size_of::<pb::Event>() as u32 + 256;
/// The trailer with the final state of the turn.
const TURN_STATE: &str = "contextd-turn-state";

/// A stream of responses as tonic sends it.
pub type EventStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The parameters of a stream to open.
#[derive(Debug)]
pub struct Reader {
    pub engine: Arc<Engine>,
    pub key: SessionKey,
    /// Only events of this turn are sent.
    pub only: Option<TurnId>,
    /// The stream ends when this turn ends.
    pub ends_with: Option<TurnId>,
    /// The stream ends with the turn that takes this queued message, or when the message is removed from the
    /// queue.
    pub awaited_message: Option<MessageId>,
    /// The last seq that the client has handled.
    pub cursor: Seq,
    /// The turn has ended, and the client has received its end.
    pub has_ended: bool,
    /// Events up to this seq are marked as replayed.
    pub replay_until: Seq,
    /// Whether to send a `Sync` event after the replay.
    pub sync: bool,
    /// Whether to continue with live events.
    pub follow: bool,
    pub options: StreamOptions,
    /// The first event of ExecuteTurn, with the turn that it belongs to.
    pub admitted: Option<(Option<TurnId>, pb::Admitted)>,
    /// A subscription that was taken earlier. `None` to subscribe when the stream starts.
    pub subscription: Option<Subscription>,
}

impl Reader {
    /// Opens the stream: starts a task that ends when the client disconnects.
    pub fn open<T: Send + 'static>(self, config: StreamConfig, wrap: fn(pb::Event) -> T) -> EventStream<T> {
        let (to_client, stream) = mpsc::channel(config.reader_events);
        let room = Arc::new(Semaphore::new(config.reader_bytes as usize));
        let client = Client { to_client, room, reader_bytes: config.reader_bytes, wrap, last_sent: Instant::now() };
        let unknown_before = self.cursor;
        // A turn that was just admitted has no earlier events.
        let is_caught_up = self.admitted.is_some();
        let stream_task = Box::new(RunningStream {
            reader: self,
            client,
            settled: Seq(0),
            unknown_before,
            written_at: None,
            state: None,
            nearly_full: false,
            is_caught_up,
        });
        tokio::spawn(Reach::in_current_scope(stream_task.run()));
        // Dropping the permit here frees the buffer space once tonic has the event.
        Box::pin(ReceiverStream::new(stream).map(|sent| sent.0))
    }
}

/// Why a stream ends.
enum Stop {
    /// The client disconnected.
    Disconnected,
    /// The turn or queued message that the stream follows has ended.
    Ended,
    /// All stored events were sent, and the client did not request live events.
    CaughtUp,
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

/// The client at the other end of a bounded channel. This is the only sender.
struct Client<T> {
    to_client: mpsc::Sender<BufferedItem<T>>,
    room: Arc<Semaphore>,
    reader_bytes: u32,
    wrap: fn(pb::Event) -> T,
    last_sent: Instant,
}

/// A buffered item and the buffer space that it takes. Boxed, because the channel allocates space for many
/// items at once.
type BufferedItem<T> = Box<(Result<T, Status>, Option<OwnedSemaphorePermit>)>;

impl<T> Client<T> {
    async fn send(&mut self, event: pb::Event) -> Result<(), Stop> {
        self.last_sent = Instant::now();
        let size = self.size(&event);
        let room = tokio::select! {
            room = Arc::clone(&self.room).acquire_many_owned(size) => room.ok(),
            () = self.to_client.closed() => return Err(Stop::Disconnected),
        };
        let item = Ok((self.wrap)(event));
        self.to_client.send(Box::new((item, room))).await.map_err(|_| Stop::Disconnected)
    }

    /// Buffer space that an event takes. A larger event takes all of it.
    fn size(&self, event: &pb::Event) -> u32 {
        u32::try_from(size_of::<pb::Event>() + event.encoded_len()).unwrap_or(u32::MAX).min(self.reader_bytes)
    }

    /// The free buffer space: a number of events, and bytes.
    fn free_space(&self) -> (u32, u32) {
        let narrow = |room| u32::try_from(room).unwrap_or(u32::MAX);
        (narrow(self.to_client.capacity()), narrow(self.room.available_permits()))
    }

    /// Waits until `size` bytes are free, and at least half of the buffer, so that another read pays off.
    async fn wait_for_space(&self, size: u32) -> Result<(), Stop> {
        let size = size.max(self.reader_bytes / 2);
        let events = self.to_client.max_capacity().div_ceil(2);
        let room = async {
            drop(self.room.acquire_many(size).await);
            drop(self.to_client.reserve_many(events).await);
        };
        tokio::select! {
            () = room => Ok(()),
            () = self.to_client.closed() => Err(Stop::Disconnected),
        }
    }
}

/// The state of a running stream.
struct RunningStream<T> {
    reader: Reader,
    client: Client<T>,
    /// The newest event that settled an open message. Deltas that follow an older event are void.
    settled: Seq,
    /// Whether events before this seq settled messages is unknown, because the client had handled them before
    /// the stream started.
    unknown_before: Seq,
    /// When the event at the cursor was written. `None` if this stream has not read it.
    written_at: Option<Timestamp>,
    /// The final state of the turn.
    state: Option<&'static str>,
    /// Whether the newest step's prompt nearly filled the context window, so that the notice was sent.
    nearly_full: bool,
    /// Whether everything that was stored when the stream started has been sent.
    is_caught_up: bool,
}

impl<T: Send + 'static> RunningStream<T> {
    /// Boxed, so that the task contains it only once.
    async fn run(mut self: Box<Self>) {
        let status = match self.serve().await {
            Ok(()) | Err(Stop::Disconnected | Stop::CaughtUp) => return,
            Err(Stop::Ended) => trailer(self.state),
            Err(Stop::Failed(status)) => status,
        };
        let _ = self.client.to_client.send(Box::new((Err(status), None))).await;
    }

    async fn serve(&mut self) -> Result<(), Stop> {
        if let Some((turn, admitted)) = self.reader.admitted.take() {
            Box::pin(self.send_ephemeral(turn, StepPosition::default(), Payload::Admitted(admitted))).await?;
        }
        // The future of each action is boxed, so that an idle stream takes little memory.
        if self.reader.has_ended {
            return Err(Box::pin(self.end_finished_turn()).await?);
        }
        // Subscribe to the deltas before reading the events, so that none is missed in between.
        let mut news = match self.reader.subscription.take() {
            Some(news) => news,
            None => Box::pin(self.reader.engine.live.subscribe(&self.reader.key)).await?,
        };
        // With a `Sync` event, the open message is part of that event.
        let shows = (!self.reader.sync).then_some(&mut news);
        Box::pin(self.catch_up(shows)).await?;
        self.is_caught_up = true;
        if self.reader.sync {
            Box::pin(self.sync(&mut news)).await?;
        }
        if !self.reader.follow {
            return Err(Stop::CaughtUp);
        }
        loop {
            self.live(&mut news).await?;
        }
    }

    /// Handles the next occurrence: a delta, a new event, a drain or a due heartbeat.
    async fn live(&mut self, news: &mut Subscription) -> Result<(), Stop> {
        let draining = self.reader.engine.capacity.draining.clone();
        let heartbeat = self.client.last_sent + self.reader.options.heartbeat;
        tokio::select! {
            biased;
            () = self.client.to_client.closed() => Err(Stop::Disconnected),
            _ = news.pulse.changed() => Box::pin(self.send_live(news)).await,
            _ = news.head.changed() => {
                if news.head.borrow().is_deleted {
                    return Err(Box::pin(self.end_deleted_session()).await?);
                }
                if let Some(last) = news.lost() {
                    return Err(Error::EventsLost { last }.into());
                }
                if news.head.borrow().seq <= self.reader.cursor {
                    return Ok(());
                }
                Box::pin(self.catch_up(Some(news))).await
            }
            () = draining.cancelled() => {
                Box::pin(self.catch_up(Some(news))).await?;
                Err(Error::Draining.into())
            }
            () = sleep_until(heartbeat) => Box::pin(self.heartbeat(news)).await,
        }
    }

    /// Sends all stored events after the cursor. Their content is read from the database once there is buffer
    /// space for it, so that a slow reader neither keeps it in memory nor causes it to be read again.
    async fn catch_up(&mut self, mut news: Option<&mut Subscription>) -> Result<(), Stop> {
        loop {
            let (events, bytes) = self.client.free_space();
            if events == 0 || bytes == 0 {
                self.client.wait_for_space(0).await?;
                continue;
            }
            let events = events.min(MAX_EVENTS_PER_READ);
            let most = EventPageLimits {
                events,
                bytes: bytes.into(),
                overhead: EVENT_OVERHEAD_BYTES,
                at_least_one: bytes == self.client.reader_bytes,
            };
            let (store, key, cursor) = (self.reader.engine.store(), &self.reader.key, self.reader.cursor);
            let known = self.is_caught_up.then(|| store.recent_events(key, cursor, most));
            let page = match known.flatten() {
                Some(page) => page,
                None => store.follow(key, cursor, most).await?,
            };
            if page.is_gone {
                let deleted = self.reader.key.session.clone();
                return Err(Error::SessionNotFound(deleted).into());
            }
            let full = page.events.len() == events as usize;
            let next = page.oversized_bytes;
            self.send_page(page, news.as_deref_mut()).await?;
            match next {
                Some(bytes) => {
                    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.client.reader_bytes);
                    self.client.wait_for_space(bytes).await?;
                }
                None if full => {}
                None => break,
            }
        }
        if let Some(channel) = self.reader.engine.live.hub.get(&self.reader.key) {
            channel.advance(self.reader.cursor);
            channel.mark(SeenEvent { seq: self.reader.cursor, at: self.written_at });
        }
        Ok(())
    }

    /// Sends a page of events. Deltas that were not sent yet are sent before the event that settles their
    /// message.
    async fn send_page(&mut self, page: EventPage, mut news: Option<&mut Subscription>) -> Result<(), Stop> {
        for stored in page.events {
            let ours = self.reader.only.as_ref().is_none_or(|only| stored.turn.as_ref() == Some(only));
            let mut event = codec::event::to_pb(&stored, &self.reader.key.session, &page.content);
            event.replay = stored.seq <= self.reader.replay_until;
            if settles(&event)
                && !event.replay
                && let Some(news) = &mut news
            {
                Box::pin(self.send_pending_deltas(news)).await?;
            }
            if ours {
                if self.reader.options.raw_tool_output {
                    raw_output::add(&self.reader.engine, &self.reader.key, &mut event).await.map_err(Stop::Failed)?;
                }
                fit_event(&self.reader.engine, &self.reader.key, &mut event).await.map_err(Stop::Failed)?;
            }
            (self.reader.cursor, self.written_at) = (stored.seq, Some(stored.at));
            if settles(&event) {
                self.settled = stored.seq;
            }
            let withdrawn = self.track_awaited_message(&event);
            let terminal = terminal(&event).filter(|_| stored.turn.is_some() && stored.turn == self.reader.ends_with);
            let deleted = is_cancelled_by_deletion(&event);
            if ours {
                let payload = event.payload.as_ref().filter(|_| !event.replay);
                let told = payload.and_then(|payload| {
                    nearly_full(payload, &mut self.nearly_full).or_else(|| codec::notice::for_event(payload))
                });
                self.measure(&event, stored.at);
                self.client.send(event).await?;
                if let Some(notice) = told {
                    self.send_ephemeral(stored.turn, StepPosition::default(), Payload::Notice(notice)).await?;
                }
            }
            if withdrawn {
                return Err(Stop::Ended);
            }
            if terminal.is_some() {
                self.state = terminal;
                return Err(if deleted { self.ended_with_session() } else { Stop::Ended });
            }
        }
        Ok(())
    }

    fn measure(&self, event: &pb::Event, written: Timestamp) {
        let engine = &self.reader.engine;
        if event.replay {
            engine.metrics().replayed(event.encoded_len());
        } else {
            // Zero if the clock of the database is ahead of ours.
            let lag = engine.prompts.now().duration_since(written).try_into();
            engine.metrics().streamed(lag.unwrap_or_default());
        }
    }

    /// Notes which turn took the queued message that the stream follows. Returns true if no turn will. A
    /// message dropped because its session was deleted does not count: the stream then ends with the session.
    fn track_awaited_message(&mut self, event: &pb::Event) -> bool {
        let Some(awaited) = self.reader.awaited_message.as_ref().map(MessageId::as_str) else {
            return false;
        };
        match &event.payload {
            Some(Payload::MessagesApplied(applied)) => {
                if applied.messages.iter().any(|message| message.queued_message_id == awaited) {
                    self.reader.ends_with = Some(TurnId::new(event.turn_id.clone()));
                    self.reader.awaited_message = None;
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

    /// Sends queue notices and deltas that were not sent yet, each delta after the event that it follows.
    async fn send_live(&mut self, news: &mut Subscription) -> Result<(), Stop> {
        for Announcement { turn, message, position, delivery } in news.queued() {
            if self.reader.only.is_some() && self.reader.only != turn {
                continue;
            }
            let queued = pb::MessageQueued {
                queued_message_id: message.into_string(),
                position: i32::try_from(position).unwrap_or(i32::MAX),
                delivery: delivery.to_field(),
            };
            self.send_ephemeral(turn, StepPosition::default(), Payload::MessageQueued(queued)).await?;
        }
        // Send the event that the deltas follow first.
        if news.follows() > Some(self.reader.cursor) {
            self.catch_up(Some(news)).await?;
        }
        self.send_pending_deltas(news).await
    }

    /// Sends the deltas that follow events already sent.
    async fn send_pending_deltas(&mut self, news: &mut Subscription) -> Result<(), Stop> {
        let sent = self.reader.cursor;
        for LiveOutput { after, turn, at, kind: what } in news.more_after(|after| after <= sent) {
            if self.is_settled(after).await? || self.reader.only.as_ref().is_some_and(|only| *only != turn) {
                continue;
            }
            let payload = match what {
                LiveKind::Thinking { model } => Payload::Thinking(pb::Thinking { model }),
                LiveKind::Delta(_) if self.reader.options.omit_deltas => continue,
                LiveKind::Delta(delta) => codec::delta::to_pb(&delta),
            };
            self.send_ephemeral(Some(turn), at, payload).await?;
        }
        Ok(())
    }

    /// Whether the message whose deltas follow this event is committed or void, according to the events sent
    /// to the client. The hub cannot decide this: it learns of a commit slightly later than the table, and a
    /// stream may start in between.
    async fn is_settled(&mut self, after: Seq) -> Result<bool, Stop> {
        if after >= self.settled && after < self.unknown_before {
            let store = self.reader.engine.store();
            let settled = store.settled_between(&self.reader.key, after, self.unknown_before).await?;
            // Deltas that follow an older event belong to an older model call.
            self.settled = self.settled.max(settled.unwrap_or_default()).max(after);
            self.unknown_before = Seq(0);
        }
        Ok(after < self.settled)
    }

    /// Sends the state of the session at the cursor.
    async fn sync(&mut self, news: &mut Subscription) -> Result<(), Stop> {
        let key = &self.reader.key;
        let cursor = self.reader.cursor;
        let Some(session) = self.reader.engine.store().session(key).await? else {
            return Err(self.end_deleted_session().await?);
        };
        let open_calls = self.reader.engine.store().open_calls(key).await?;
        let (pending_calls, pending_approvals) =
            codec::turn::pending_to_pb(open_calls.iter().map(|open| &open.pending));
        let open = match news.open_after() {
            // An open message that follows an event not read yet is sent after that event.
            Some(after) if after <= cursor && !self.is_settled(after).await? => news.open_message(|it| it == after),
            Some(_) | None => None,
        };
        let open = open.filter(|_| !self.reader.options.omit_deltas);
        let key = &self.reader.key;
        let sync = pb::Sync {
            last_seq: self.reader.cursor.0,
            caught_up: true,
            state: session_state(session.state).into(),
            open_message: open.as_ref().map(|open| open_message(open, key)),
            pending_calls,
            queued_count: i32::try_from(session.queued).unwrap_or(i32::MAX),
            currently_compacting: session.compacting,
            pending_approvals,
        };
        self.send_ephemeral(session.current_turn, StepPosition::default(), Payload::Sync(sync)).await
    }

    async fn heartbeat(&mut self, news: &Subscription) -> Result<(), Stop> {
        let last = news.head.borrow().seq.max(self.reader.cursor);
        let beat = pb::Heartbeat { last_seq: last.0 };
        self.send_ephemeral(None, StepPosition::default(), Payload::Heartbeat(beat)).await
    }

    /// Ends the stream of a deleted session. The session's events are kept for a while, so the last ones, up
    /// to the end of its turn, are sent first.
    async fn end_deleted_session(&mut self) -> Result<Stop, Stop> {
        self.catch_up(None).await?;
        Ok(Error::SessionNotFound(self.reader.key.session.clone()).into())
    }

    /// Ends a stream whose client had already received the end of the turn.
    async fn end_finished_turn(&mut self) -> Result<Stop, Stop> {
        if let Some(turn) = &self.reader.ends_with
            && let Some(turn) = self.reader.engine.store().turn(&self.reader.key, turn).await?
        {
            self.state = Some(state_name(turn.state.to_pb()));
        }
        Ok(Stop::Ended)
    }

    /// Ends the stream of a turn that was cancelled because its session was deleted. The status has both.
    fn ended_with_session(&self) -> Stop {
        let mut status = Status::from(Error::SessionNotFound(self.reader.key.session.clone()));
        insert_turn_state(status.metadata_mut(), self.state);
        Stop::Failed(status)
    }

    async fn send_ephemeral(&mut self, turn: Option<TurnId>, at: StepPosition, payload: Payload) -> Result<(), Stop> {
        let event = pb::Event {
            seq: 0,
            session_id: self.reader.key.session.to_string(),
            turn_id: turn.to_field(),
            step: at.step.to_field(),
            attempt: at.attempt.to_field(),
            time: self.reader.engine.prompts.now().to_field(),
            replay: false,
            payload: Some(payload),
        };
        self.client.send(event).await
    }
}

/// Encodes the open message, which has no seq yet.
fn open_message(open: &OpenMessage, key: &SessionKey) -> pb::Message {
    // The index of a part is its position in the list, so a part without text so far is encoded too, as
    // reasoning that the provider hides.
    let hidden = || Content::Reasoning { text: String::new(), redacted: true };
    let count = open.parts.last_key_value().map_or(0, |(last, _)| last + 1);
    let part = |index| open.parts.get(&index).map_or_else(hidden, |(kind, text)| open_part(kind, text));
    let parts = (0..count).map(|index| codec::part::open_to_pb(&part(index)));
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

/// Whether an event settles the open message: commits it or makes it void.
fn settles(event: &pb::Event) -> bool {
    match &event.payload {
        Some(Payload::MessageCommitted(committed)) => {
            committed.message.as_ref().is_some_and(|message| message.role() == pb::Role::Assistant)
        }
        Some(Payload::TurnRetrying(_) | Payload::TurnRecovered(_)) => true,
        _ => terminal(event).is_some(),
    }
}

/// The final state of the turn. Returns `None` if the event is not terminal.
fn terminal(event: &pb::Event) -> Option<&'static str> {
    let state = match &event.payload {
        Some(Payload::TurnCompleted(_)) => pb::TurnState::Completed,
        Some(Payload::TurnCancelled(_)) => pb::TurnState::Cancelled,
        Some(Payload::TurnFailed(_)) => pb::TurnState::Failed,
        _ => return None,
    };
    Some(state_name(state))
}

/// Whether the event cancels a turn because its session was deleted.
fn is_cancelled_by_deletion(event: &pb::Event) -> bool {
    matches!(&event.payload, Some(Payload::TurnCancelled(end)) if end.cause() == pb::CancelCause::SessionDeleted)
}

fn state_name(state: pb::TurnState) -> &'static str {
    let name = state.as_str_name();
    name.strip_prefix("TURN_STATE_").unwrap_or(name)
}

/// The final status of a stream whose turn ended: OK, with the turn's state.
fn trailer(state: Option<&'static str>) -> Status {
    let mut metadata = MetadataMap::new();
    insert_turn_state(&mut metadata, state);
    Status::with_metadata(Code::Ok, "", metadata)
}

fn insert_turn_state(metadata: &mut MetadataMap, state: Option<&'static str>) {
    if let Some(state) = state {
        metadata.insert(TURN_STATE, tonic::metadata::MetadataValue::from_static(state));
    }
}
