//! Follows one turn, over as many connections as needed.
//!
//! The rule for clients: read until the stream ends. If the connection breaks, send the same request again,
//! with the seq of the last event handled. Run each tool call once; after a reconnect or restart, `sync`
//! lists the pending calls. What the user types during the turn is queued.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};
use uuid::Uuid;

use super::approval::{Decision, decide};
use super::client::{Backoff, Server, is_retryable};
use super::command::Command;
use super::conversation::{Conversation, REQUEST_ID_PREFIX, input};
use super::tools;
use super::typing::{Typed, Typing, TypingEvent};
use contextd_client::describe;
use contextd_proto::{self as pb, event::Payload};

/// How long to wait, when the user leaves, for typed messages to be queued.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The server sends a heartbeat every 10 seconds. A stream without events for longer than this is dead.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(30);

/// The source of a turn's events.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// Start a turn with this request.
    Execute(Box<pb::ExecuteTurnRequest>),
    /// Follow a running turn.
    Watch(pb::WatchEventsRequest),
}

type Events = BoxStream<'static, Result<pb::Event, Status>>;

impl Source {
    async fn open(self, server: Server, after_seq: i64) -> Result<Events, Status> {
        let mut turns = server.turns;
        match self {
            Self::Execute(request) => {
                let request = pb::ExecuteTurnRequest { after_seq: request.after_seq.max(after_seq), ..*request };
                let stream = turns.execute_turn(request).await?.into_inner();
                Ok(stream.map(|answer| Ok(answer?.event.unwrap_or_default())).boxed())
            }
            Self::Watch(request) => {
                let request = pb::WatchEventsRequest { after_seq: request.after_seq.max(after_seq), ..request };
                let stream = turns.watch_events(request).await?.into_inner();
                Ok(stream.map(|answer| Ok(answer?.event.unwrap_or_default())).boxed())
            }
        }
    }
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Completed,
    Cancelled,
    Failed,
}

/// Why the chat stopped following a turn.
#[derive(Debug)]
pub(super) enum Stop {
    /// The server rejected a request, or was unavailable for too long.
    Refused(Status),
    /// The user left.
    Left,
    /// Output failed.
    OutputFailed(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::OutputFailed(error)
    }
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

/// A turn that is being followed.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    chat: &'a mut Conversation,
    source: Source,
    /// Whether the chat's tools handle the turn's calls.
    runs_tools: bool,
    /// The seq of the last event handled.
    cursor: i64,
    /// The turn id. Empty until the turn is admitted.
    turn_id: String,
    end: Option<End>,
    /// Whether the connection is lost.
    lost: bool,
    cancelling: bool,
    /// Requests to submit results or to cancel that are in flight.
    sending: JoinSet<Result<(), Status>>,
    /// Messages typed before the turn was admitted.
    unsent: Vec<String>,
    /// Messages being sent to the queue.
    sent: Vec<String>,
    /// The outcomes of these requests.
    queueing: JoinSet<(String, Result<pb::QueuedMessage, Status>)>,
}

impl<'a> Turn<'a> {
    /// Creates a turn. `ours` is true if the chat's tools handle its calls.
    pub(super) fn new(chat: &'a mut Conversation, source: Source, ours: bool) -> Self {
        let turn_id = match &source {
            Source::Execute(_) => String::new(),
            Source::Watch(request) => request.turn_id.clone(),
        };
        Self {
            chat,
            source,
            runs_tools: ours,
            cursor: 0,
            turn_id,
            end: None,
            lost: false,
            cancelling: false,
            sending: JoinSet::new(),
            unsent: Vec::new(),
            sent: Vec::new(),
            queueing: JoinSet::new(),
        }
    }

    /// Follows the turn to its end. If the chat stops earlier, prints the messages that may not have been
    /// sent.
    pub(super) async fn follow(mut self) -> Result<End, Stop> {
        match self.until_its_end().await {
            Ok(end) => Ok(end),
            Err(stop @ Stop::OutputFailed(_)) => Err(stop),
            Err(stop @ (Stop::Left | Stop::Refused(_))) => {
                self.part().await?;
                Err(stop)
            }
        }
    }

    async fn until_its_end(&mut self) -> Result<End, Stop> {
        let mut backoff = None;
        loop {
            let status = match self.attach(&mut backoff).await {
                Ok(()) => Status::unavailable("the stream ended before the turn ended"),
                Err(Stop::Refused(status)) => status,
                Err(stop) => return Err(stop),
            };
            if let Some(end) = self.end {
                self.settle().await?;
                return Ok(end);
            }
            if backoff.is_none() && is_retryable(&status) {
                self.lost = true;
                self.chat.printer.print_notice("(connection lost; reconnecting ...)")?;
            }
            let mut waiting = backoff.take().unwrap_or_else(Backoff::new);
            self.await_handling_input(waiting.wait(status)).await??;
            backoff = Some(waiting);
        }
    }

    /// Reads one stream to its end. The first event shows that the server is available again.
    async fn attach(&mut self, backoff: &mut Option<Backoff>) -> Result<(), Stop> {
        let opening = Box::pin(self.source.clone().open(self.chat.server.clone(), self.cursor));
        let mut events = self.await_handling_input(opening).await??;
        while let Some(event) = self.await_handling_input(next(&mut events)).await?? {
            *backoff = None;
            self.lost = false;
            self.handle(&event).await?;
        }
        Ok(())
    }

    /// Awaits `work` while handling requests in flight, the keyboard and interrupts.
    async fn await_handling_input<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                // A permanent error would leave the turn waiting for the call, so it is reported.
                Some(sent) = self.sending.join_next() => sent.map_err(|lost| Status::unknown(lost.to_string()))??,
                Some(queued) = self.queueing.join_next() => self.queued(queued)?,
                event = self.chat.typing.next() => self.handle_typing(event)?,
                _ = self.chat.interrupts.recv() => self.interrupted()?,
            }
        }
    }

    /// Waits for the outcomes of all queued messages.
    async fn settle(&mut self) -> Result<(), Stop> {
        loop {
            tokio::select! {
                queued = self.queueing.join_next() => match queued {
                    Some(queued) => self.queued(queued)?,
                    None => return Ok(()),
                },
                _ = self.chat.interrupts.recv() => self.interrupted()?,
            }
        }
    }

    /// Waits briefly for messages in flight, and prints those that were not confirmed.
    async fn part(&mut self) -> Result<(), Stop> {
        let until = Instant::now() + LEAVE_TIMEOUT;
        while let Ok(Some(queued)) = timeout_at(until, self.queueing.join_next()).await {
            self.queued(queued)?;
        }
        for words in &self.sent {
            self.chat.printer.print_error(&format!("may not have been sent: {words}"))?;
        }
        for words in &self.unsent {
            self.chat.printer.print_error(&format!("not sent: {words}"))?;
        }
        Ok(())
    }

    async fn handle(&mut self, event: &pb::Event) -> Result<(), Stop> {
        self.chat.printer.event(event)?;
        self.chat.context.record_event(event);
        self.chat.waiting.record_event(event);
        match &event.payload {
            Some(Payload::Admitted(_)) => self.admitted(event),
            Some(Payload::ToolCallRequested(pending)) if !event.replay => self.run(pending),
            Some(Payload::ApprovalRequested(pending)) if !event.replay => self.ask(pending).await?,
            Some(Payload::Sync(sync)) => {
                sync.pending_calls.iter().for_each(|pending| self.run(pending));
                for pending in &sync.pending_approvals {
                    self.ask(pending).await?;
                }
            }
            Some(Payload::TurnCompleted(_)) => self.ended(event, End::Completed),
            Some(Payload::TurnCancelled(_)) => self.ended(event, End::Cancelled),
            Some(Payload::TurnFailed(_)) => self.ended(event, End::Failed),
            Some(_) | None => {}
        }
        self.cursor = self.cursor.max(event.seq);
        Ok(())
    }

    fn admitted(&mut self, event: &pb::Event) {
        self.chat.session_id.clone_from(&event.session_id);
        if self.turn_id.is_empty() {
            self.turn_id.clone_from(&event.turn_id);
            if self.cancelling {
                self.cancel();
            }
            for words in std::mem::take(&mut self.unsent) {
                self.queue(words);
            }
        }
    }

    /// Ignores the end of other turns, which the stream may contain.
    fn ended(&mut self, event: &pb::Event, end: End) {
        if event.turn_id == self.turn_id {
            self.end = Some(end);
        }
    }

    /// Runs a tool call, once, and submits its result.
    fn run(&mut self, pending: &pb::PendingCall) {
        let Some(call) = pending.call.as_ref().filter(|_| self.runs_tools) else {
            return;
        };
        let host = pending.executor() == pb::ToolExecutor::Host;
        if host && self.chat.begun.insert(call.call_id.clone()) {
            let results = vec![tools::run(call)];
            self.submit(pb::SubmitToolResultsRequest { results, ..pb::SubmitToolResultsRequest::default() });
        }
    }

    /// Asks the user about a tool call, once, and submits the decision.
    async fn ask(&mut self, pending: &pb::PendingApproval) -> Result<(), Stop> {
        let Some(call) = pending.call.as_ref().filter(|call| !self.chat.decided.contains(&call.call_id)) else {
            return Ok(());
        };
        while matches!(self.chat.typing, Typing::Line(_)) {
            let event = self.chat.typing.next().await;
            self.handle_typing(event)?;
        }
        self.chat.typing.rest().await;
        let decision = decide(self.chat.keyboard.as_ref(), call).await;
        self.chat.listen_meanwhile()?;
        match decision {
            Decision::Approval(approval) => {
                self.chat.decided.insert(call.call_id.clone());
                let approvals = vec![approval];
                self.submit(pb::SubmitToolResultsRequest { approvals, ..pb::SubmitToolResultsRequest::default() });
                Ok(())
            }
            Decision::Interrupted => self.interrupted(),
        }
    }

    fn submit(&mut self, answer: pb::SubmitToolResultsRequest) {
        let session_id = self.chat.session_id.clone();
        self.sending.spawn(self.chat.server.clone().submit(pb::SubmitToolResultsRequest { session_id, ..answer }));
    }

    /// The user has started or finished a line.
    fn handle_typing(&mut self, event: TypingEvent) -> Result<(), Stop> {
        let Some(keyboard) = &self.chat.keyboard else {
            return Ok(());
        };
        let typed = match event {
            TypingEvent::Key => {
                self.chat.printer.hold()?;
                self.chat.typing = Typing::Line(keyboard.line());
                return Ok(());
            }
            TypingEvent::Done(typed) => typed,
        };
        self.chat.typing = keyboard.watch()?;
        self.chat.printer.release()?;
        match typed {
            Typed::Line(line) => self.handle_command(Command::of(&line)),
            Typed::Interrupted => Ok(()),
            Typed::End => Err(Stop::Left),
        }
    }

    /// Handles a line typed while the turn is running.
    fn handle_command(&mut self, command: Command) -> Result<(), Stop> {
        match command {
            Command::Say(words) => {
                if self.turn_id.is_empty() {
                    self.unsent.push(words);
                } else {
                    self.queue(words);
                }
                if self.lost {
                    self.chat.printer.print_notice("(kept until the server is available again)")?;
                }
            }
            Command::Quit => return Err(Stop::Left),
            Command::Nothing => {}
            Command::Model(_)
            | Command::Stats
            | Command::History
            | Command::New
            | Command::Help
            | Command::Unknown(_) => {
                self.chat.printer.print_notice("(while a turn is running, only messages and /quit are accepted)")?;
            }
        }
        Ok(())
    }

    /// Queues a message. The turn takes it with its next step; if the turn ends first, the message stays in
    /// the queue.
    fn queue(&mut self, words: String) {
        let request = pb::EnqueueMessageRequest {
            session_id: self.chat.session_id.clone(),
            request_id: format!("{REQUEST_ID_PREFIX}{}", Uuid::now_v7()),
            message: Some(input(words.clone())),
            ..pb::EnqueueMessageRequest::default()
        };
        let server = self.chat.server.clone();
        self.sent.push(words.clone());
        self.queueing.spawn(async move { (words, server.enqueue(request).await) });
    }

    fn queued(&mut self, done: Result<(String, Result<pb::QueuedMessage, Status>), JoinError>) -> Result<(), Stop> {
        let (words, answer) = done.map_err(|lost| Status::unknown(lost.to_string()))?;
        if let Some(at) = self.sent.iter().position(|sent| *sent == words) {
            self.sent.remove(at);
        }
        match answer {
            Ok(message) => {
                self.chat.waiting.add(&message);
                self.chat.printer.queued(&message, &words)?;
            }
            Err(status) => self.chat.printer.print_error(&format!("not queued: {}", describe(&status)))?,
        }
        Ok(())
    }

    /// Handles Ctrl-C: the first cancels the turn, the second leaves it.
    fn interrupted(&mut self) -> Result<(), Stop> {
        if std::mem::replace(&mut self.cancelling, true) {
            return Err(Stop::Left);
        }
        self.chat.printer.print_notice("(cancelling; press Ctrl-C again to exit)")?;
        if !self.turn_id.is_empty() {
            self.cancel();
        }
        Ok(())
    }

    fn cancel(&mut self) {
        let session = self.chat.session_id.clone();
        let turn = self.turn_id.clone();
        self.sending.spawn(self.chat.server.clone().cancel(session, turn));
    }
}

/// The next event. Returns `None` at the end of the stream.
async fn next(events: &mut Events) -> Result<Option<pb::Event>, Status> {
    match tokio::time::timeout(HEARTBEAT_TIMEOUT, events.next()).await {
        Ok(event) => event.transpose(),
        Err(_) => Err(Status::new(Code::Unavailable, "no heartbeat received")),
    }
}
