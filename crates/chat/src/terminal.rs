//! Terminal output of the chat, and keyboard input.

use std::io::{self, IsTerminal, Write};
use std::thread;

use rustyline::config::Config;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use tokio::sync::{mpsc, oneshot};

use super::typing::{self, Typed, Typing, Watcher};
use super::view::{Output, Style, View};
use contextd_proto as pb;

/// Number of lines in the editing history.
const HISTORY: usize = 1000;

/// Writes the output of a view: all of it to stdout on a terminal, otherwise only responses to stdout and the
/// rest to stderr.
#[derive(Debug)]
pub(super) struct Printer {
    view: View,
    style: Style,
    /// Output held back while the user is typing.
    held: Option<Vec<Output>>,
}

impl Printer {
    /// A printer for the standard streams. Colours are used only on a terminal, and not if `NO_COLOR` is set
    /// (<https://no-color.org>).
    pub(super) fn of_process() -> Self {
        let live = io::stdout().is_terminal();
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = !unwanted && (live || io::stderr().is_terminal());
        let style = Style { live, colour };
        Self { view: View::new(style), style, held: None }
    }

    /// Whether text is shown while it is streamed.
    pub(super) fn live(&self) -> bool {
        self.style.live
    }

    /// Prints an event.
    pub(super) fn event(&mut self, event: &pb::Event) -> io::Result<()> {
        let out = self.view.show(event);
        self.write(out)
    }

    /// Prints a notice.
    pub(super) fn print_notice(&mut self, line: &str) -> io::Result<()> {
        let out = self.view.notice(line);
        self.write(out)
    }

    /// Prints an error.
    pub(super) fn print_error(&mut self, line: &str) -> io::Result<()> {
        let out = self.view.error(line);
        self.write(out)
    }

    /// Prints the output of a command.
    pub(super) fn answer(&mut self, line: &str) -> io::Result<()> {
        self.write(vec![Output::Answer(format!("{line}\n"))])
    }

    /// Prints that the server has queued a message of the user.
    pub(super) fn queued(&mut self, message: &pb::QueuedMessage, words: &str) -> io::Result<()> {
        let out = self.view.queued(message, words);
        self.write(out)
    }

    /// Holds back output while the user types a line.
    pub(super) fn hold(&mut self) -> io::Result<()> {
        let out = self.view.pause();
        self.write(out)?;
        self.held = Some(Vec::new());
        Ok(())
    }

    /// Prints the output that was held back.
    pub(super) fn release(&mut self) -> io::Result<()> {
        let held = self.held.take().unwrap_or_default();
        self.write(held)
    }

    fn write(&mut self, out: Vec<Output>) -> io::Result<()> {
        if let Some(held) = &mut self.held {
            held.extend(out);
            return Ok(());
        }
        for piece in out {
            match piece {
                Output::Answer(text) => put(io::stdout().lock(), &text)?,
                Output::Notice(text) if self.style.live => put(io::stdout().lock(), &text)?,
                Output::Notice(text) => put(io::stderr().lock(), &text)?,
            }
        }
        Ok(())
    }
}

fn put(mut to: impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

/// A prompt for the user.
struct Question {
    prompt: String,
    /// Text to start editing with.
    initial: String,
    /// Whether to add the line to the history.
    keep: bool,
    answer: oneshot::Sender<Typed>,
}

/// What the keyboard thread must do.
enum KeyboardRequest {
    /// Read a line.
    Answer(Question),
    /// Report the next key press.
    Key(Watcher),
}

/// The keyboard. A separate thread reads it, so that the program can exit without waiting for input.
#[derive(Debug)]
pub(super) struct Keyboard {
    wanted: mpsc::UnboundedSender<KeyboardRequest>,
}

impl Keyboard {
    /// The keyboard of this process. Returns `None` unless stdin and stdout are terminals.
    pub(super) fn of_process() -> anyhow::Result<Option<Self>> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let config = Config::builder().max_history_size(HISTORY)?.build();
        let editor = rustyline::Editor::<(), _>::with_history(config, MemHistory::new())?;
        #[expect(clippy::disallowed_methods, reason = "one thing at a time is wanted of a person")]
        let (wanted, asked) = mpsc::unbounded_channel();
        thread::Builder::new().name("keyboard".to_owned()).spawn(move || read(editor, asked))?;
        Ok(Some(Self { wanted }))
    }

    /// Reads the next line of the conversation.
    pub(super) fn line(&self) -> oneshot::Receiver<Typed> {
        self.put("> ", "", true)
    }

    /// Reads an answer, which is not added to the history.
    pub(super) async fn ask(&self, prompt: &str, initial: &str) -> Typed {
        self.put(prompt, initial, false).await.unwrap_or(Typed::End)
    }

    /// Waits for a key press while no line is being read. The caller must then read a line.
    pub(super) fn watch(&self) -> io::Result<Typing> {
        let (watch, watcher) = typing::watch()?;
        // If the thread has ended, reading the next line reports the end of the conversation.
        let _ = self.wanted.send(KeyboardRequest::Key(watcher));
        Ok(Typing::Nothing(watch))
    }

    fn put(&self, prompt: &str, initial: &str, keep: bool) -> oneshot::Receiver<Typed> {
        let (answer, answered) = oneshot::channel();
        let question = Question { prompt: prompt.to_owned(), initial: initial.to_owned(), keep, answer };
        let _ = self.wanted.send(KeyboardRequest::Answer(question)); // as above
        answered
    }
}

fn read(mut editor: rustyline::Editor<(), MemHistory>, mut asked: mpsc::UnboundedReceiver<KeyboardRequest>) {
    let mut quiet = None;
    while let Some(wanted) = asked.blocking_recv() {
        let Question { prompt, initial, keep, answer } = match wanted {
            KeyboardRequest::Answer(question) => question,
            KeyboardRequest::Key(watcher) => {
                quiet = watcher.wait();
                continue;
            }
        };
        // Restore the terminal before the line editor reads the pressed key.
        drop(quiet.take());
        let typed = match editor.readline_with_initial(&prompt, (&initial, "")) {
            Ok(line) => Typed::Line(line),
            Err(ReadlineError::Interrupted) => Typed::Interrupted,
            // A closed terminal ends the conversation too.
            Err(_) => Typed::End,
        };
        if let Typed::Line(line) = &typed
            && keep
        {
            // A failure only means that the line is not in the history.
            let _ = editor.add_history_entry(line);
        }
        let _ = answer.send(typed);
    }
}
