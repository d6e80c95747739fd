//! The main loop of the chat: turns, and commands between them.

use std::io::{self, Read};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use tonic::{Code, Status};
use uuid::Uuid;

use super::command::{Command, HELP};
use super::context::{self, Context};
use super::conversation::{Conversation, REQUEST_ID_PREFIX, input};
use super::lines;
use super::queue::PendingMessages;
use super::turn::{End, Source, Stop, Turn};
use super::typing::{Typed, Typing};
use contextd_client::describe;
use contextd_proto as pb;

/// Number of messages that `/history` shows.
const NEWEST: i32 = 20;
/// Exit code of a program that was interrupted by Ctrl-C.
const INTERRUPTED: u8 = 130;

impl Conversation {
    /// Runs a single turn, for scripts.
    pub(super) async fn once(mut self, text: String) -> anyhow::Result<ExitCode> {
        if !self.resume_session().await? {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let end = self.say(text).await;
        let end = self.end_unless_left(end);
        self.print_resume_hint()?;
        Ok(match end? {
            Some(End::Completed) => ExitCode::SUCCESS,
            Some(End::Cancelled | End::Failed) => ExitCode::FAILURE,
            None => ExitCode::from(INTERRUPTED),
        })
    }

    /// Runs turns and commands until the user leaves.
    pub(super) async fn talk(mut self) -> anyhow::Result<ExitCode> {
        self.printer.print_notice("type /help for commands, Ctrl-D to exit")?;
        self.talks = true;
        if !self.resume_session().await? {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let mut code = ExitCode::SUCCESS;
        while let Some(command) = self.listen().await? {
            if !self.execute(command).await? {
                code = ExitCode::from(INTERRUPTED);
                break;
            }
        }
        self.print_resume_hint()?;
        Ok(code)
    }

    /// Prints how to continue the session.
    fn print_resume_hint(&mut self) -> io::Result<()> {
        if self.session_id.is_empty() {
            return Ok(());
        }
        self.printer.print_notice(&format!("to continue: contextd chat --session {}", self.session_id))
    }

    /// The user's next command. Returns `None` if the user leaves, with Ctrl-D, /quit or by pressing Ctrl-C
    /// twice.
    async fn listen(&mut self) -> anyhow::Result<Option<Command>> {
        let keyboard = self.keyboard.as_ref().context("standard input is not a terminal")?;
        let mut warned = false;
        loop {
            // The user may have started a line while a turn was running.
            let line = match std::mem::take(&mut self.typing) {
                Typing::Line(line) => line,
                Typing::Nothing(_) | Typing::Unwatched => keyboard.line(),
            };
            let typed = line.await.unwrap_or(Typed::End);
            self.printer.release()?;
            match typed {
                Typed::Line(line) => {
                    return Ok(Some(Command::of(&line)).filter(|command| *command != Command::Quit));
                }
                Typed::End => return Ok(None),
                Typed::Interrupted if warned => return Ok(None),
                Typed::Interrupted => {
                    warned = true;
                    self.printer.print_notice("(press Ctrl-C again or Ctrl-D to exit)")?;
                }
            }
        }
    }

    /// Executes a command. Returns false if the user leaves during it.
    async fn execute(&mut self, command: Command) -> anyhow::Result<bool> {
        match command {
            Command::Say(text) => {
                let end = self.say(text).await;
                return self.report_failure(end);
            }
            Command::Model(Some(model)) => {
                self.printer.print_notice(&format!("(using {model} from the next message on)"))?;
                self.options.model = Some(model);
            }
            Command::Model(None) => {
                let model = self.model().await;
                self.answer_or_tell(model)?;
            }
            Command::Stats => {
                let stats = self.stats().await;
                self.answer_or_tell(stats)?;
            }
            Command::History => {
                let history = self.history().await;
                self.answer_or_tell(history)?;
            }
            Command::New => {
                self.session_id.clear();
                self.context = Context::default();
                self.waiting = PendingMessages::default();
                self.printer.print_notice("(a new conversation)")?;
            }
            Command::Help => self.printer.answer(HELP)?,
            Command::Unknown(line) => self.printer.print_error(&format!("unknown command: {line} (see /help)"))?,
            Command::Nothing | Command::Quit => {}
        }
        Ok(true)
    }

    /// Resumes the session given on the command line by following its running turn. Returns false if the user
    /// leaves the turn.
    async fn resume_session(&mut self) -> anyhow::Result<bool> {
        if self.session_id.is_empty() {
            return Ok(true);
        }
        let Some(session) = self.session().await.map_err(|status| anyhow::anyhow!(describe(&status)))? else {
            return Ok(true);
        };
        if self.options.system.take().is_some() {
            self.printer.print_notice("(--system is ignored: it applies to new sessions only)")?;
        }
        if session.current_turn_id.is_empty() {
            return Ok(true);
        }
        self.printer.print_notice("(a turn is running in this session)")?;
        let end = self.follow(session.current_turn_id).await;
        self.report_failure(end)
    }

    async fn say(&mut self, text: String) -> Result<End, Stop> {
        let request = self.request(Some(text));
        self.run(Source::Execute(Box::new(request)), true).await
    }

    /// A request for a turn with this text, or with the queued messages if it is `None`.
    fn request(&self, text: Option<String>) -> pb::ExecuteTurnRequest {
        let model = self.options.model.clone().unwrap_or_default();
        let session = pb::Session {
            model: model.clone(),
            system_prompt: self.options.system.clone().unwrap_or_default(),
            ..pb::Session::default()
        };
        pb::ExecuteTurnRequest {
            session_id: self.session_id.clone(),
            request_id: format!("{REQUEST_ID_PREFIX}{}", Uuid::now_v7()),
            input: text.map(input),
            tools: Some(self.options.tools.clone()),
            model,
            busy_policy: pb::BusyPolicy::Reject.into(),
            stream: Some(self.stream()),
            session: Some(session),
            ..pb::ExecuteTurnRequest::default()
        }
    }

    async fn follow(&mut self, turn_id: String) -> Result<End, Stop> {
        let session_id = self.session_id.clone();
        let request = pb::GetTurnRequest { session_id: session_id.clone(), turn_id: turn_id.clone() };
        let turn = self.server.turns.clone().get_turn(request).await?.into_inner().turn.unwrap_or_default();
        let watch = pb::WatchEventsRequest {
            session_id,
            turn_id,
            after_seq: turn.first_seq.saturating_sub(1),
            follow: true,
            stream: Some(self.stream()),
        };
        self.run(Source::Watch(watch), turn.request_id.starts_with(REQUEST_ID_PREFIX)).await
    }

    /// Runs a turn to its end, then turns for messages that were queued too late for it. Then prints the
    /// state of the context.
    async fn run(&mut self, source: Source, ours: bool) -> Result<End, Stop> {
        let mut end = self.attend(source, ours).await?;
        while end == End::Completed && self.waiting.count() > 0 {
            self.waiting.forget();
            self.printer.print_notice("(continuing with queued messages)")?;
            let request = self.request(None);
            end = self.attend(Source::Execute(Box::new(request)), true).await?;
        }
        match self.waiting.count() {
            0 => {}
            1 => self.printer.print_notice("(1 message is queued; it is sent with your next one)")?,
            several => self
                .printer
                .print_notice(&format!("({several} messages are queued; they are sent with your next one)"))?,
        }
        // Report an error instead of returning it, because the turn itself has ended.
        match self.context.line(&self.server, &self.session_id).await {
            Ok(line) => self.printer.print_notice(&line)?,
            Err(status) => {
                self.printer.print_notice(&format!("(context statistics unavailable: {})", describe(&status)))?
            }
        }
        Ok(end)
    }

    /// Follows a turn to its end while watching the keyboard.
    async fn attend(&mut self, source: Source, ours: bool) -> Result<End, Stop> {
        self.listen_meanwhile()?;
        let end = Box::pin(Turn::new(self, source, ours).follow()).await;
        self.typing.rest().await;
        end
    }

    fn stream(&self) -> pb::StreamOptions {
        pb::StreamOptions { omit_deltas: !self.printer.live(), ..pb::StreamOptions::default() }
    }

    /// Prints the error if the turn failed. Returns false if the user left it.
    fn report_failure(&mut self, end: Result<End, Stop>) -> anyhow::Result<bool> {
        match end {
            Err(Stop::Refused(status)) => self.printer.print_error(&describe(&status))?,
            end => return Ok(self.end_unless_left(end)?.is_some()),
        }
        Ok(true)
    }

    /// How a turn ended. Returns `None` if the user left it.
    fn end_unless_left(&mut self, end: Result<End, Stop>) -> anyhow::Result<Option<End>> {
        match end {
            Ok(end) => Ok(Some(end)),
            Err(Stop::Left) => {
                self.printer.print_notice("(the turn continues in the background)")?;
                Ok(None)
            }
            Err(Stop::Refused(status)) => bail!(describe(&status)),
            Err(Stop::OutputFailed(error)) => Err(error.into()),
        }
    }

    fn answer_or_tell(&mut self, answer: Result<String, Status>) -> io::Result<()> {
        match answer {
            Ok(answer) => self.printer.answer(&answer),
            Err(status) => self.printer.print_error(&describe(&status)),
        }
    }

    /// Fetches the session. Returns `None` if it does not exist yet.
    async fn session(&self) -> Result<Option<pb::Session>, Status> {
        if self.session_id.is_empty() {
            return Ok(None);
        }
        let request = pb::GetSessionRequest { session_id: self.session_id.clone() };
        match self.server.sessions.clone().get_session(request).await {
            Ok(answer) => Ok(answer.into_inner().session),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    async fn model(&self) -> Result<String, Status> {
        let of_session = self.session().await?.map(|session| session.model).filter(|model| !model.is_empty());
        let model = self.options.model.clone().or(of_session);
        Ok(model.unwrap_or_else(|| "the server's default".to_owned()))
    }

    /// The server's statistics as text. If it has none, a summary of the session.
    async fn stats(&mut self) -> Result<String, Status> {
        let Some(session) = self.session().await? else {
            return Ok("no messages yet".to_owned());
        };
        if let Some(stats) = context::stats(&self.server, &self.session_id, pb::StatsFormat::Text).await?
            && !stats.text.is_empty()
        {
            return Ok(stats.text);
        }
        let line = self.context.line(&self.server, &self.session_id).await?;
        Ok(format!("session: {}\nmodel:   {}\n{line}", session.session_id, session.model))
    }

    async fn history(&self) -> Result<String, Status> {
        if self.session().await?.is_none() {
            return Ok("no messages yet".to_owned());
        }
        let request = pb::ListMessagesRequest {
            session_id: self.session_id.clone(),
            newest_first: true,
            page_size: NEWEST,
            ..pb::ListMessagesRequest::default()
        };
        let page = self.server.sessions.clone().list_messages(request).await?.into_inner();
        let lines: Vec<String> = page.messages.iter().rev().map(lines::message).collect();
        Ok(lines.join("\n"))
    }
}

/// Reads all piped input as one message.
pub(super) async fn piped() -> anyhow::Result<String> {
    let read = || {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text).map(|_| text)
    };
    tokio::task::spawn_blocking(read).await?.context("cannot read standard input")
}
