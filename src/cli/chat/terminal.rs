//! Where the chat writes, and where a person types.

use std::io::{self, IsTerminal, Write};
use std::thread;

use rustyline::config::Config;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use tokio::sync::{mpsc, oneshot};

use super::view::{Out, Style, View};
use crate::pb;

/// Lines that can be called up again.
const HISTORY: usize = 1000;

/// Writes what a view shows. On a terminal all of it; else the answers go where a program reads them, and the rest to stderr.
#[derive(Debug)]
pub(super) struct Printer {
    view: View,
    style: Style,
}

impl Printer {
    /// For this process: colours only on a terminal, and not if `NO_COLOR` says otherwise (<https://no-color.org>).
    pub(super) fn of_process() -> Self {
        let live = io::stdout().is_terminal();
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = !unwanted && (live || io::stderr().is_terminal());
        let style = Style { live, colour };
        Self { view: View::new(style), style }
    }

    /// Whether text is to be shown as it comes.
    pub(super) fn live(&self) -> bool {
        self.style.live
    }

    /// Shows an event.
    pub(super) fn event(&mut self, event: &pb::Event) -> io::Result<()> {
        let out = self.view.show(event);
        self.write(out)
    }

    /// Shows a line beside the conversation.
    pub(super) fn aside(&mut self, line: &str) -> io::Result<()> {
        let out = self.view.aside(line);
        self.write(out)
    }

    /// Shows a line about something that went wrong.
    pub(super) fn bad(&mut self, line: &str) -> io::Result<()> {
        let out = self.view.bad(line);
        self.write(out)
    }

    /// Shows what was asked for.
    pub(super) fn answer(&mut self, line: &str) -> io::Result<()> {
        self.write(vec![Out::Answer(format!("{line}\n"))])
    }

    fn write(&self, out: Vec<Out>) -> io::Result<()> {
        for piece in out {
            match piece {
                Out::Answer(text) => put(io::stdout().lock(), &text)?,
                Out::Aside(text) if self.style.live => put(io::stdout().lock(), &text)?,
                Out::Aside(text) => put(io::stderr().lock(), &text)?,
            }
        }
        Ok(())
    }
}

fn put(mut to: impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

/// What a person typed.
#[derive(Debug)]
pub(super) enum Typed {
    /// A line.
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D.
    End,
}

/// A question to the person at the terminal.
struct Question {
    prompt: String,
    /// Text that is there already, to be edited.
    initial: String,
    /// The line can be called up again.
    keep: bool,
    answer: oneshot::Sender<Typed>,
}

/// The person at the terminal. Their lines are read by a thread of its own, so that nobody waits for it at the end.
#[derive(Debug)]
pub(super) struct Keyboard {
    questions: mpsc::Sender<Question>,
}

impl Keyboard {
    /// The person, if there is one: who types on a terminal and sees one.
    pub(super) fn of_process() -> anyhow::Result<Option<Self>> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let config = Config::builder().max_history_size(HISTORY)?.build();
        let editor = rustyline::Editor::<(), _>::with_history(config, MemHistory::new())?;
        let (questions, asked) = mpsc::channel(1);
        thread::Builder::new().name("keyboard".to_owned()).spawn(move || read(editor, asked))?;
        Ok(Some(Self { questions }))
    }

    /// The next line of the conversation.
    pub(super) async fn line(&self) -> Typed {
        self.put("> ", "", true).await
    }

    /// An answer, which is not called up again.
    pub(super) async fn ask(&self, prompt: &str, initial: &str) -> Typed {
        self.put(prompt, initial, false).await
    }

    async fn put(&self, prompt: &str, initial: &str, keep: bool) -> Typed {
        let (answer, answered) = oneshot::channel();
        let question = Question { prompt: prompt.to_owned(), initial: initial.to_owned(), keep, answer };
        match self.questions.send(question).await {
            Ok(()) => answered.await.unwrap_or(Typed::End),
            Err(_) => Typed::End,
        }
    }
}

fn read(mut editor: rustyline::Editor<(), MemHistory>, mut asked: mpsc::Receiver<Question>) {
    while let Some(Question { prompt, initial, keep, answer }) = asked.blocking_recv() {
        let typed = match editor.readline_with_initial(&prompt, (&initial, "")) {
            Ok(line) => Typed::Line(line),
            Err(ReadlineError::Interrupted) => Typed::Interrupted,
            // A terminal that went away ends the conversation as well.
            Err(_) => Typed::End,
        };
        if let Typed::Line(line) = &typed
            && keep
        {
            // A line that cannot be kept cannot be called up again, and that is all.
            let _ = editor.add_history_entry(line);
        }
        let _ = answer.send(typed);
    }
}
