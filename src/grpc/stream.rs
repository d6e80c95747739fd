//! A stream of events: what is stored after a cursor, then what comes, without gap and without
//! double.
//!
//! Durable events come in order of seq, from the database, or from this replica's memory where it has just committed them and the
//! stream has all that were before. Deltas come from the hub;
//! each says which durable event it follows, so that it is shown after that event, and never once
//! the message it belongs to is settled. A reader that is slow gets more text at a time: all of it before
//! the commit of its message, or, where the hub has forgotten it by then, with the commit.

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

use super::{
    decode::StreamOptions, encode::session_state, nearly_full::nearly_full, preview::fit_event,
    raw_output,
};
use crate::{
    codec,
    model::{
        Content, MessageId, Seq, SessionKey, ToolCall, TurnId, delta::DeltaKind,
        event::StepPosition,
    },
    pb::{self, event::Payload},
    store::{
        Reach,
        event_page::{Follow, Most},
        lost_commits::Mark,
    },
    turn::{
        Engine, Error,
        live::hub::{Announced, Live, LiveKind, OpenMessage, Subscription},
    },
};

/// Events that are read at once.
const READ: u32 = 32;
/// Bytes of an event beside its payload and content: its memory as a message, its ids and its time.
const OVERHEAD: u32 = size_of::<pb::Event>() as u32 + 256;
/// The trailer that repeats how the turn ended.
const TURN_STATE: &str = "contextd-turn-state";

/// What tonic sends.
pub type EventStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// What may wait for one reader, beside what its connection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Events.
    pub events: usize,
    /// Bytes of them; a larger event waits alone.
    pub bytes: u32,
}

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
    /// The first event, of ExecuteTurn, with the turn that it is of.
    pub admitted: Option<(Option<TurnId>, pb::Admitted)>,
    /// A place among the news that was taken earlier.
    pub news: Option<Subscription>,
}

impl Reader {
    /// Opens the stream: a task that ends with the client.
    pub fn open<T: Send + 'static>(
        self,
        waiting: Waiting,
        wrap: fn(pb::Event) -> T,
    ) -> EventStream<T> {
        let (to_client, stream) = mpsc::channel(waiting.events);
        let room = Arc::new(Semaphore::new(waiting.bytes as usize));
        tokio::spawn(Reach::kept(async move {
            let client = Client {
                to_client,
                room,
                bytes: waiting.bytes,
                wrap,
                last_sent: Instant::now(),
            };
            let unknown_before = self.cursor;
            // A turn that was just admitted has no past.
            let waits = self.admitted.is_some();
            Reading {
                reader: self,
                client,
                settled: Seq(0),
                unknown_before,
                written_at: None,
                state: None,
                nearly_full: false,
                waits,
            }
            .run()
            .await;
        }));
        // The room is free again once tonic has the event.
        Box::pin(ReceiverStream::new(stream).map(|sent| sent.0))
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

/// A client at the other end of a bounded channel, of which this is the only sender.
struct Client<T> {
    to_client: mpsc::Sender<Sent<T>>,
    room: Arc<Semaphore>,
    bytes: u32,
    wrap: fn(pb::Event) -> T,
    last_sent: Instant,
}

/// What waits for a client, and the room that it takes. Boxed, since a channel makes room for many
/// at once.
type Sent<T> = Box<(Result<T, Status>, Option<OwnedSemaphorePermit>)>;

impl<T> Client<T> {
    async fn send(&mut self, event: pb::Event) -> Result<(), Stop> {
        self.last_sent = Instant::now();
        let size = self.size(&event);
        let room = tokio::select! {
            room = Arc::clone(&self.room).acquire_many_owned(size) => room.ok(),
            () = self.to_client.closed() => return Err(Stop::Left),
        };
        let item = Ok((self.wrap)(event));
        self.to_client
            .send(Box::new((item, room)))
            .await
            .map_err(|_| Stop::Left)
    }

    /// What an event takes of the room, which an event that is larger has for itself.
    fn size(&self, event: &pb::Event) -> u32 {
        u32::try_from(size_of::<pb::Event>() + event.encoded_len())
            .unwrap_or(u32::MAX)
            .min(self.bytes)
    }

    /// What there is room for now: events, and bytes of them.
    fn room(&self) -> (u32, u32) {
        let narrow = |room| u32::try_from(room).unwrap_or(u32::MAX);
        (
            narrow(self.to_client.capacity()),
            narrow(self.room.available_permits()),
        )
    }

    /// Waits for that, and for enough more that it is worth reading on.
    async fn room_for(&self, size: u32) -> Result<(), Stop> {
        let size = size.max(self.bytes / 2);
        let events = self.to_client.max_capacity().div_ceil(2);
        let room = async {
            drop(self.room.acquire_many(size).await);
            drop(self.to_client.reserve_many(events).await);
        };
        tokio::select! {
            () = room => Ok(()),
            () = self.to_client.closed() => Err(Stop::Left),
        }
    }
}

/// A stream that is being read.
struct Reading<T> {
    reader: Reader,
    client: Client<T>,
    /// The newest event that settled an open message: deltas that follow an older one are void.
    settled: Seq,
    /// What settled messages up to here is not known: the client had handled these events before
    /// the stream began.
    unknown_before: Seq,
    /// When the event at the cursor was written, if this stream has read it.
    written_at: Option<Timestamp>,
    /// How the turn ended.
    state: Option<&'static str>,
    /// The notice that the context is nearly full was sent for the newest step.
    nearly_full: bool,
    /// It has everything that was there when it began, and waits for what comes.
    waits: bool,
}

impl<T: Send + 'static> Reading<T> {
    async fn run(mut self) {
        let status = match self.serve().await {
            Ok(()) | Err(Stop::Left | Stop::Done) => return,
            Err(Stop::Over) => trailer(self.state),
            Err(Stop::Failed(status)) => status,
        };
        let _ = self
            .client
            .to_client
            .send(Box::new((Err(status), None)))
            .await;
    }

    async fn serve(&mut self) -> Result<(), Stop> {
        if let Some((turn, admitted)) = self.reader.admitted.take() {
            let event = self.ephemeral(turn, StepPosition::default(), Payload::Admitted(admitted));
            Box::pin(self.client.send(event)).await?;
        }
        // Whatever happens has a box of its own: while nothing does, a stream takes up next to
        // nothing.
        if self.reader.over {
            return Err(Box::pin(self.ended()).await?);
        }
        // The place among the deltas is taken before the events are read, so that nothing falls
        // between.
        let mut news = match self.reader.news.take() {
            Some(news) => news,
            None => Box::pin(self.reader.engine.subscribe(&self.reader.key)).await?,
        };
        // Where the state is told, it tells the open message.
        let shows = (!self.reader.sync).then_some(&mut news);
        Box::pin(self.catch_up(shows)).await?;
        self.waits = true;
        if self.reader.sync {
            Box::pin(self.sync(&mut news)).await?;
        }
        if !self.reader.follow {
            return Err(Stop::Done);
        }
        loop {
            self.live(&mut news).await?;
        }
    }

    /// One thing that happens.
    async fn live(&mut self, news: &mut Subscription) -> Result<(), Stop> {
        let draining = self.reader.engine.draining().clone();
        let heartbeat = self.client.last_sent + self.reader.options.heartbeat;
        tokio::select! {
            biased;
            () = self.client.to_client.closed() => Err(Stop::Left),
            _ = news.pulse.changed() => Box::pin(self.show(news)).await,
            _ = news.head.changed() => {
                if news.head.borrow().gone {
                    return Err(Box::pin(self.gone()).await?);
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

    /// Sends every stored event after the cursor. Content is read from the database once there is
    /// room for it, so that a slow reader neither holds it in memory nor has it read again.
    async fn catch_up(&mut self, mut news: Option<&mut Subscription>) -> Result<(), Stop> {
        loop {
            let (events, bytes) = self.client.room();
            if events == 0 || bytes == 0 {
                self.client.room_for(0).await?;
                continue;
            }
            let events = events.min(READ);
            let most = Most {
                events,
                bytes: bytes.into(),
                overhead: OVERHEAD,
                or_one: bytes == self.client.bytes,
            };
            let (store, key, cursor) = (
                self.reader.engine.store(),
                &self.reader.key,
                self.reader.cursor,
            );
            let known = self.waits.then(|| store.just_committed(key, cursor, most));
            let page = match known.flatten() {
                Some(page) => page,
                None => store.follow(key, cursor, most).await?,
            };
            if page.is_gone {
                let deleted = self.reader.key.session.clone();
                return Err(Error::SessionNotFound(deleted).into());
            }
            let full = page.events.len() == events as usize;
            let next = page.next;
            self.send_page(page, news.as_deref_mut()).await?;
            match next {
                Some(bytes) => {
                    let bytes = u32::try_from(bytes)
                        .unwrap_or(u32::MAX)
                        .min(self.client.bytes);
                    self.client.room_for(bytes).await?;
                }
                None if full => {}
                None => break,
            }
        }
        if let Some(channel) = self.reader.engine.hub().get(&self.reader.key) {
            channel.advance(self.reader.cursor);
            channel.mark(Mark {
                seq: self.reader.cursor,
                at: self.written_at,
            });
        }
        Ok(())
    }

    /// Sends a page, and what was not shown yet of a message before the event that settles it.
    async fn send_page(
        &mut self,
        page: Follow,
        mut news: Option<&mut Subscription>,
    ) -> Result<(), Stop> {
        for stored in page.events {
            let ours = self
                .reader
                .only
                .as_ref()
                .is_none_or(|only| stored.turn.as_ref() == Some(only));
            let mut event = codec::event::to_pb(&stored, &self.reader.key.session, &page.content);
            event.replay = stored.seq <= self.reader.replay_until;
            if settles(&event)
                && !event.replay
                && let Some(news) = &mut news
            {
                Box::pin(self.show_rest(news)).await?;
            }
            if ours {
                if self.reader.options.raw_tool_output {
                    raw_output::add(&self.reader.engine, &self.reader.key, &mut event)
                        .await
                        .map_err(Stop::Failed)?;
                }
                fit_event(&self.reader.engine, &self.reader.key, &mut event)
                    .await
                    .map_err(Stop::Failed)?;
            }
            (self.reader.cursor, self.written_at) = (stored.seq, Some(stored.at));
            if settles(&event) {
                self.settled = stored.seq;
            }
            let withdrawn = self.note_queue(&event);
            let terminal = terminal(&event)
                .filter(|_| stored.turn.is_some() && stored.turn == self.reader.ends_with);
            let deleted = went_with_session(&event);
            if ours {
                let payload = event.payload.as_ref().filter(|_| !event.replay);
                let told = payload.and_then(|payload| {
                    nearly_full(payload, &mut self.nearly_full)
                        .or_else(|| codec::notice::after(payload))
                });
                self.measure(&event, stored.at);
                self.client.send(event).await?;
                if let Some(notice) = told {
                    let line = self.ephemeral(
                        stored.turn,
                        StepPosition::default(),
                        Payload::Notice(notice),
                    );
                    self.client.send(line).await?;
                }
            }
            if withdrawn {
                return Err(Stop::Over);
            }
            if terminal.is_some() {
                self.state = terminal;
                return Err(if deleted {
                    self.ended_with_session()
                } else {
                    Stop::Over
                });
            }
        }
        Ok(())
    }

    fn measure(&self, event: &pb::Event, written: Timestamp) {
        let engine = &self.reader.engine;
        if event.replay {
            engine.metrics().replayed(event.encoded_len());
        } else {
            // Zero where the clock of the database is ahead of ours.
            let lag = engine.now().duration_since(written).try_into();
            engine.metrics().streamed(lag.unwrap_or_default());
        }
    }

    /// Learns which turn took the message that the stream is about. True: none will. A message that
    /// goes with its session is left to the session's end.
    fn note_queue(&mut self, event: &pb::Event) -> bool {
        let Some(awaited) = self.reader.awaits.as_ref().map(MessageId::as_str) else {
            return false;
        };
        match &event.payload {
            Some(Payload::MessagesApplied(applied)) => {
                if applied
                    .messages
                    .iter()
                    .any(|message| message.queued_message_id == awaited)
                {
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

    /// Shows what is not kept and was not shown yet, each after the event it follows.
    async fn show(&mut self, news: &mut Subscription) -> Result<(), Stop> {
        for Announced {
            turn,
            message,
            position,
            delivery,
        } in news.queued()
        {
            if self.reader.only.is_some() && self.reader.only != turn {
                continue;
            }
            let queued = pb::MessageQueued {
                queued_message_id: message.into_string(),
                position: i32::try_from(position).unwrap_or(i32::MAX),
                delivery: codec::queue::delivery_to_pb(delivery).into(),
            };
            let event = self.ephemeral(
                turn,
                StepPosition::default(),
                Payload::MessageQueued(queued),
            );
            self.client.send(event).await?;
        }
        // The event that it follows comes first.
        if news.follows() > Some(self.reader.cursor) {
            self.catch_up(Some(news)).await?;
        }
        self.show_rest(news).await
    }

    /// Shows what follows the events that were sent, and was not shown yet.
    async fn show_rest(&mut self, news: &mut Subscription) -> Result<(), Stop> {
        let sent = self.reader.cursor;
        for Live {
            after,
            turn,
            at,
            what,
        } in news.more_after(|after| after <= sent)
        {
            if self.is_settled(after).await?
                || self.reader.only.as_ref().is_some_and(|only| *only != turn)
            {
                continue;
            }
            let payload = match what {
                LiveKind::Thinking { model } => Payload::Thinking(pb::Thinking { model }),
                LiveKind::Delta(_) if self.reader.options.omit_deltas => continue,
                LiveKind::Delta(delta) => codec::delta::to_pb(&delta),
            };
            let event = self.ephemeral(Some(turn), at, payload);
            self.client.send(event).await?;
        }
        Ok(())
    }

    /// Whether a message that follows this event is committed or void, as far as the client has
    /// been shown. The hub does not decide that: it learns of a commit a moment later than the
    /// table, and a stream may begin in between.
    async fn is_settled(&mut self, after: Seq) -> Result<bool, Stop> {
        if after >= self.settled && after < self.unknown_before {
            let store = self.reader.engine.store();
            let settled = store
                .settled_between(&self.reader.key, after, self.unknown_before)
                .await?;
            // Whatever follows an older event belongs to an older call.
            self.settled = self.settled.max(settled.unwrap_or_default()).max(after);
            self.unknown_before = Seq(0);
        }
        Ok(after < self.settled)
    }

    /// The state at this point.
    async fn sync(&mut self, news: &mut Subscription) -> Result<(), Stop> {
        let key = &self.reader.key;
        let cursor = self.reader.cursor;
        let Some(session) = self.reader.engine.store().session(key).await? else {
            return Err(self.gone().await?);
        };
        let open_calls = self.reader.engine.store().open_calls(key).await?;
        let (pending_calls, pending_approvals) =
            codec::turn::pending_to_pb(open_calls.iter().map(|open| &open.pending));
        let open = match news.open_after() {
            // One that follows an event which is not read yet is shown after that event.
            Some(after) if after <= cursor && !self.is_settled(after).await? => {
                news.so_far(|it| it == after)
            }
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
        let event = self.ephemeral(
            session.current_turn,
            StepPosition::default(),
            Payload::Sync(sync),
        );
        self.client.send(event).await
    }

    async fn heartbeat(&mut self, news: &Subscription) -> Result<(), Stop> {
        let last = news.head.borrow().seq.max(self.reader.cursor);
        let beat = pb::Heartbeat { last_seq: last.0 };
        let event = self.ephemeral(None, StepPosition::default(), Payload::Heartbeat(beat));
        self.client.send(event).await
    }

    /// The session was deleted. Its events are there for a while: the last of them, the end of its
    /// turn, is shown first.
    async fn gone(&mut self) -> Result<Stop, Stop> {
        self.catch_up(None).await?;
        Ok(Error::SessionNotFound(self.reader.key.session.clone()).into())
    }

    /// The turn ended before the client came back, and it has seen everything.
    async fn ended(&mut self) -> Result<Stop, Stop> {
        if let Some(turn) = &self.reader.ends_with
            && let Some(turn) = self
                .reader
                .engine
                .store()
                .turn(&self.reader.key, turn)
                .await?
        {
            self.state = Some(state_name(codec::turn::state_to_pb(turn.state)));
        }
        Ok(Stop::Over)
    }

    /// The turn ended because its session was deleted: both are reported.
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

/// The open message as a message without a seq.
fn open_message(open: &OpenMessage, key: &SessionKey) -> pb::Message {
    // A part's place in the list is its index, so one that has no text so far takes its place too:
    // the provider hides it.
    let hidden = || Content::Reasoning {
        text: String::new(),
        redacted: true,
    };
    let count = open.parts.last_key_value().map_or(0, |(last, _)| last + 1);
    let part = |index| {
        open.parts
            .get(&index)
            .map_or_else(hidden, |(kind, text)| open_part(kind, text))
    };
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
        DeltaKind::Reasoning => Content::Reasoning {
            text: text.to_owned(),
            redacted: false,
        },
        DeltaKind::ToolInput { call, name } => Content::ToolCall(ToolCall {
            id: call.clone(),
            name: name.clone(),
            arguments: text.to_owned(),
        }),
    }
}

/// Whether an event makes what was shown of an open message final or void.
fn settles(event: &pb::Event) -> bool {
    match &event.payload {
        Some(Payload::MessageCommitted(committed)) => committed
            .message
            .as_ref()
            .is_some_and(|message| message.role() == pb::Role::Assistant),
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
        metadata.insert(
            TURN_STATE,
            tonic::metadata::MetadataValue::from_static(state),
        );
    }
}
