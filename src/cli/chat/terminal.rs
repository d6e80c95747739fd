//! Where the chat writes, and where a person types.

use std::io::{self, IsTerminal, Write};
use std::thread;

use rustyline::config::Config;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use tokio::sync::{mpsc, oneshot};

use super::typing::{self, Typed, Typing, Watcher};
use super::view::{Out, Style, View};
use crate::pb;

/// Lines that can be called up again.
const HISTORY: usize = 1000;

/// Writes what a view shows. On a terminal all of it; else the answers go where a program reads
/// them, and the rest to stderr.
#[derive(Debug)]
pub(super) struct Printer {
    view: View,
    style: Style,
    /// What is to be shown later, while a person types.
    held: Option<Vec<Out>>,
}

impl Printer {
    /// For this process: colours only on a terminal, and not if `NO_COLOR` says otherwise (<https://no-color.org>).
    pub(super) fn of_process() -> Self {
        let live = io::stdout().is_terminal();
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = !unwanted && (live || io::stderr().is_terminal());
        let style = Style { live, colour };
        Self {
            view: View::new(style),
            style,
            held: None,
        }
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

    /// Shows that the server has a message of the person's.
    pub(super) fn queued(&mut self, message: &pb::QueuedMessage, words: &str) -> io::Result<()> {
        let out = self.view.queued(message, words);
        self.write(out)
    }

    /// Shows nothing more until the line that a person types is done.
    pub(super) fn hold(&mut self) -> io::Result<()> {
        let out = self.view.pause();
        self.write(out)?;
        self.held = Some(Vec::new());
        Ok(())
    }

    /// Shows what was held back.
    pub(super) fn release(&mut self) -> io::Result<()> {
        let held = self.held.take().unwrap_or_default();
        self.write(held)
    }

    fn write(&mut self, out: Vec<Out>) -> io::Result<()> {
        if let Some(held) = &mut self.held {
            held.extend(out);
            return Ok(());
        }
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

/// A question to the person at the terminal.
struct Question {
    prompt: String,
    /// Text that is there already, to be edited.
    initial: String,
    /// The line can be called up again.
    keep: bool,
    answer: oneshot::Sender<Typed>,
}

/// What is wanted of the person.
enum Wanted {
    /// An answer.
    Answer(Question),
    /// To be notified when they press a key.
    Key(Watcher),
}

/// The person at the terminal. Their lines are read by a thread of its own, so that the end does
/// not wait for it.
#[derive(Debug)]
pub(super) struct Keyboard {
    wanted: mpsc::UnboundedSender<Wanted>,
}

impl Keyboard {
    /// The person, if there is one: who types on a terminal and sees one.
    pub(super) fn of_process() -> anyhow::Result<Option<Self>> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let config = Config::builder().max_history_size(HISTORY)?.build();
        let editor = rustyline::Editor::<(), _>::with_history(config, MemHistory::new())?;
        #[expect(
            clippy::disallowed_methods,
            reason = "one thing at a time is wanted of a person"
        )]
        let (wanted, asked) = mpsc::unbounded_channel();
        thread::Builder::new()
            .name("keyboard".to_owned())
            .spawn(move || read(editor, asked))?;
        Ok(Some(Self { wanted }))
    }

    /// The next line of the conversation.
    pub(super) fn line(&self) -> oneshot::Receiver<Typed> {
        self.put("> ", "", true)
    }

    /// An answer, which is not called up again.
    pub(super) async fn ask(&self, prompt: &str, initial: &str) -> Typed {
        self.put(prompt, initial, false).await.unwrap_or(Typed::End)
    }

    /// Waits for a key while nothing is asked for. A line is to be asked for when one is pressed.
    pub(super) fn watch(&self) -> io::Result<Typing> {
        let (watch, watcher) = typing::watch()?;
        // If no line is read any more, the next line ends the conversation.
        let _ = self.wanted.send(Wanted::Key(watcher));
        Ok(Typing::Nothing(watch))
    }

    fn put(&self, prompt: &str, initial: &str, keep: bool) -> oneshot::Receiver<Typed> {
        let (answer, answered) = oneshot::channel();
        let question = Question {
            prompt: prompt.to_owned(),
            initial: initial.to_owned(),
            keep,
            answer,
        };
        let _ = self.wanted.send(Wanted::Answer(question)); // as above
        answered
    }
}

fn read(mut editor: rustyline::Editor<(), MemHistory>, mut asked: mpsc::UnboundedReceiver<Wanted>) {
    let mut quiet = None;
    while let Some(wanted) = asked.blocking_recv() {
        let Question {
            prompt,
            initial,
            keep,
            answer,
        } = match wanted {
            Wanted::Answer(question) => question,
            Wanted::Key(watcher) => {
                quiet = watcher.wait();
                continue;
            }
        };
        // Whoever edits a line finds the terminal as it should be, with the key that was pressed.
        drop(quiet.take());
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
