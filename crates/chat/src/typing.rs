//! Keyboard input while a turn is running. There is no prompt and no echo until the user presses a key. From
//! then on output is held back, so that it does not mix with the line being typed.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use tokio::sync::oneshot;

/// Input of the user.
#[derive(Debug)]
pub(super) enum Typed {
    /// A line.
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D.
    End,
}

/// The state of the keyboard while a turn is running.
#[derive(Debug, Default)]
pub(super) enum Typing {
    /// The keyboard is not watched.
    #[default]
    Unwatched,
    /// The keyboard is watched, and no key was pressed yet.
    Nothing(Watch),
    /// The user is typing a line.
    Line(oneshot::Receiver<Typed>),
}

/// What the user did.
#[derive(Debug)]
pub(super) enum TypingEvent {
    /// A key was pressed.
    Key,
    /// The line was finished.
    Done(Typed),
}

impl Typing {
    /// The next event. Never resolves if the keyboard is not watched.
    pub(super) async fn next(&mut self) -> TypingEvent {
        let pressed = match self {
            Self::Unwatched => false,
            Self::Nothing(watch) => (&mut watch.key).await.is_ok(),
            Self::Line(line) => return TypingEvent::Done(line.await.unwrap_or(Typed::End)),
        };
        if pressed {
            return TypingEvent::Key;
        }
        // The terminal is closed. Reading the next line will report the end of the conversation.
        *self = Self::Unwatched;
        std::future::pending().await
    }

    /// Stops watching the keyboard, unless the user is typing a line.
    pub(super) async fn rest(&mut self) {
        match std::mem::take(self) {
            Self::Nothing(watch) => watch.end().await,
            line @ Self::Line(_) => *self = line,
            Self::Unwatched => {}
        }
    }
}

/// Waits for a key press.
#[derive(Debug)]
pub(super) struct Watch {
    key: oneshot::Receiver<()>,
    /// Dropped to end the wait.
    open: UnixStream,
    ended: oneshot::Receiver<()>,
}

/// The keyboard thread's side of a [`Watch`].
#[derive(Debug)]
pub(super) struct Watcher {
    key: oneshot::Sender<()>,
    open: UnixStream,
    ended: oneshot::Sender<()>,
}

/// Creates both sides of a wait for a key press.
pub(super) fn watch() -> io::Result<(Watch, Watcher)> {
    let (ours, theirs) = UnixStream::pair()?;
    let (press, key) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    Ok((Watch { key, open: ours, ended }, Watcher { key: press, open: theirs, ended: end }))
}

impl Watch {
    /// Ends the wait and restores the terminal.
    async fn end(self) {
        let Self { key, open, ended } = self;
        drop((open, key));
        // An error means that the thread has already ended the wait.
        let _ = ended.await;
    }
}

impl Watcher {
    /// Waits until a key is pressed or the wait is ended. Does not consume the key. Returns the previous
    /// terminal mode if a key was pressed; the terminal stays without echo until it is dropped.
    pub(super) fn wait(self) -> Option<Quiet> {
        let Self { key, open, ended } = self;
        let quiet = Quiet::begin().ok()?;
        let pressed = pressed(&open).unwrap_or(false) && key.send(()).is_ok();
        if !pressed {
            drop(quiet);
            let _ = ended.send(());
            return None;
        }
        Some(quiet)
    }
}

/// Whether a key is pressed before the other side is closed.
fn pressed(open: &UnixStream) -> nix::Result<bool> {
    let stdin = io::stdin();
    loop {
        let mut files = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN), PollFd::new(open.as_fd(), PollFlags::POLLIN)];
        match poll(&mut files, PollTimeout::NONE) {
            Ok(_) => {}
            Err(nix::Error::EINTR) => continue,
            Err(error) => return Err(error),
        }
        let [keys, ended] = files.map(|file| file.any().unwrap_or(false));
        if ended || keys {
            return Ok(!ended);
        }
    }
}

/// A terminal in non-canonical mode without echo. Dropping this restores the previous mode.
#[derive(Debug)]
pub(super) struct Quiet {
    before: Termios,
}

impl Quiet {
    fn begin() -> nix::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        // ISIG stays set, so that Ctrl-C sends a signal.
        quiet.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        tcsetattr(io::stdin(), SetArg::TCSANOW, &quiet)?;
        Ok(Self { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // An error means that the terminal is gone, so there is nothing to restore.
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
    }
}
