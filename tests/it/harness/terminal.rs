//! Runs contextd's commands at a terminal, with the displayed output and typed input.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::SocketAddr,
    process::{ExitStatus, Output, Stdio},
};

use nix::{
    pty::{Winsize, openpty},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    sync::watch,
    time::timeout,
};

use super::events::TEST_TIMEOUT;

fn chat(address: SocketAddr, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_contextd"));
    command.arg("chat").arg("--address").arg(address.to_string()).args(args);
    command.env_clear().env("NO_COLOR", "1").env("TERM", "xterm").kill_on_drop(true);
    command
}

/// Runs `contextd chat` without a terminal, as a script does.
pub async fn chat_output(address: SocketAddr, args: &[&str]) -> Output {
    let output = chat(address, args).stdin(Stdio::null()).output();
    timeout(TEST_TIMEOUT, output).await.expect("it goes on and on").unwrap()
}

/// `contextd chat` at a terminal.
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: watch::Receiver<Screen>,
}

/// The output displayed so far.
#[derive(Default)]
struct Screen {
    text: String,
    /// The number of prompts.
    prompts: usize,
}

/// The start of a prompt: from here on, pasted text is marked (bracketed paste).
const PROMPT: &str = "\x1b[?2004h";

impl Terminal {
    /// Starts `contextd chat`.
    pub fn chat(address: SocketAddr, args: &[&str]) -> Self {
        let size = Winsize { ws_row: 50, ws_col: 400, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let side = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = chat(address, args).stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let keyboard = File::from(pty.master);
        let mut shown = keyboard.try_clone().unwrap();
        let (show, screen) = watch::channel(Screen::default());
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut buffer = [0; 4096];
            // Reading fails when the other side is closed.
            while let Ok(length @ 1..) = shown.read(&mut buffer) {
                bytes.extend_from_slice(&buffer[..length]);
                let shown = String::from_utf8_lossy(&bytes);
                show.send_replace(Screen { text: plain(&shown), prompts: shown.matches(PROMPT).count() });
            }
        });
        Self { child, keyboard, screen }
    }

    /// Waits until a text is displayed.
    pub async fn shows(&mut self, text: &str) {
        self.becomes(text, |screen| screen.text.contains(text)).await;
    }

    /// Waits until this number of prompts has been displayed.
    pub async fn asks(&mut self, times: usize) {
        self.becomes("a prompt", |screen| screen.prompts >= times).await;
    }

    async fn becomes(&mut self, what: &str, wanted: impl Fn(&Screen) -> bool) {
        let shown = self.screen.wait_for(|screen| wanted(screen));
        let found = timeout(TEST_TIMEOUT, shown).await.is_ok_and(|screen| screen.is_ok());
        assert!(found, "never shown: {what}; but:\n{}", self.screen());
    }

    /// Types a line.
    pub fn types(&mut self, line: &str) {
        self.presses(&format!("{line}\r"));
    }

    /// Types keys.
    pub fn presses(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Sends Ctrl-C while no line is being typed.
    pub fn interrupt(&self) {
        let pid = i32::try_from(self.child.id().expect("it has ended")).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGINT).unwrap();
    }

    /// Waits for the exit. Returns the exit code and everything that was displayed.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let status: ExitStatus = match timeout(TEST_TIMEOUT, self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(_) => panic!("does not end:\n{}", self.screen()),
        };
        // The last output is read before the other side is detected as closed.
        while timeout(TEST_TIMEOUT, self.screen.changed()).await.expect("the terminal stays open").is_ok() {}
        (status.code(), self.screen())
    }

    fn screen(&self) -> String {
        self.screen.borrow().text.clone()
    }
}

/// The displayed text without cursor sequences and with plain line ends.
fn plain(shown: &str) -> String {
    let mut pieces = shown.split("\x1b[");
    let first = pieces.next().unwrap_or_default().to_owned();
    let rest =
        pieces.map(|piece| piece.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).get(1..).unwrap_or_default());
    rest.fold(first, |text, piece| text + piece).replace("\r\n", "\n").replace('\r', "\n")
}
