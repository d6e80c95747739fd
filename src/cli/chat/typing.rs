//! What a person does while a turn runs. Nothing is asked for then and nothing of theirs is shown,
//! until they press a key: from there on what there is to show waits, so that it does not run
//! through the line that they type.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use tokio::sync::oneshot;

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

/// What the person does while a turn runs.
#[derive(Debug, Default)]
pub(super) enum Typing {
    /// Keys are not read.
    #[default]
    Unheard,
    /// They do nothing so far.
    Nothing(Watch),
    /// They type a line.
    Line(oneshot::Receiver<Typed>),
}

/// Something that they did.
#[derive(Debug)]
pub(super) enum TypingEvent {
    /// They pressed a key.
    Key,
    /// They are done with their line.
    Done(Typed),
}

impl Typing {
    /// The next thing that they do; never comes where keys are not read.
    pub(super) async fn next(&mut self) -> TypingEvent {
        let pressed = match self {
            Self::Unheard => false,
            Self::Nothing(watch) => (&mut watch.key).await.is_ok(),
            Self::Line(line) => return TypingEvent::Done(line.await.unwrap_or(Typed::End)),
        };
        if pressed {
            return TypingEvent::Key;
        }
        // Without a key the terminal is gone, which ends the conversation with the next line that
        // is asked for.
        *self = Self::Unheard;
        std::future::pending().await
    }

    /// Listens no more, unless they are in the middle of a line.
    pub(super) async fn rest(&mut self) {
        match std::mem::take(self) {
            Self::Nothing(watch) => watch.end().await,
            line @ Self::Line(_) => *self = line,
            Self::Unheard => {}
        }
    }
}

/// The wait for a key.
#[derive(Debug)]
pub(super) struct Watch {
    key: oneshot::Receiver<()>,
    /// Closed to end it.
    open: UnixStream,
    ended: oneshot::Receiver<()>,
}

/// The other side of a wait for a key: the thread that reads the keyboard.
#[derive(Debug)]
pub(super) struct Watcher {
    key: oneshot::Sender<()>,
    open: UnixStream,
    ended: oneshot::Sender<()>,
}

/// Both sides of a wait for a key.
pub(super) fn watch() -> io::Result<(Watch, Watcher)> {
    let (ours, theirs) = UnixStream::pair()?;
    let (press, key) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    Ok((
        Watch {
            key,
            open: ours,
            ended,
        },
        Watcher {
            key: press,
            open: theirs,
            ended: end,
        },
    ))
}

impl Watch {
    /// Ends it. The terminal is as it was before.
    async fn end(self) {
        let Self { key, open, ended } = self;
        drop((open, key));
        // An error says that it has ended.
        let _ = ended.await;
    }
}

impl Watcher {
    /// Waits until a key is pressed, which remains to be read, or the wait is over. With a key the
    /// terminal stays quiet; what it was before is given, for whoever reads the line.
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
        let mut files = [
            PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
            PollFd::new(open.as_fd(), PollFlags::POLLIN),
        ];
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

/// A terminal that gives keys at once and does not show them. As it was before when this is
/// dropped.
#[derive(Debug)]
pub(super) struct Quiet {
    before: Termios,
}

impl Quiet {
    fn begin() -> nix::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        // Ctrl-C stays a signal.
        quiet
            .local_flags
            .remove(LocalFlags::ICANON | LocalFlags::ECHO);
        tcsetattr(io::stdin(), SetArg::TCSANOW, &quiet)?;
        Ok(Self { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A terminal that is gone need not be mended.
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
    }
}
