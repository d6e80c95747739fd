//! Forwards the standard error of a PostgreSQL program to tracing, and keeps the last lines for error messages.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// Number of lines that an error message quotes.
const KEPT_LINES: usize = 20;
/// How long to wait for lines that are still in the pipe before quoting them.
const LAST_LINES_WAIT: Duration = Duration::from_millis(500);

/// The log of one running process.
#[derive(Debug)]
pub(super) struct Log {
    lines: Arc<Mutex<VecDeque<String>>>,
    ended: watch::Receiver<()>,
}

impl Log {
    /// Reads `source` to its end in a separate thread, so that the writer never blocks on us.
    pub(super) fn follow(source: impl Read + Send + 'static) -> io::Result<Self> {
        let lines = Arc::default();
        let (open, ended) = watch::channel(());
        let kept = Arc::clone(&lines);
        std::thread::Builder::new().name("postgres-log".into()).spawn(move || {
            copy(source, &kept);
            drop(open);
        })?;
        Ok(Self { lines, ended })
    }

    /// The latest line. Empty if there is none.
    pub(super) fn last_line(&self) -> String {
        lock(&self.lines).back().cloned().unwrap_or_default()
    }

    /// The last lines of a process that has exited.
    pub(super) async fn last_lines(&self) -> String {
        let mut ended = self.ended.clone();
        let _ = tokio::time::timeout(LAST_LINES_WAIT, ended.changed()).await; // better to lose late lines than to wait
        let lines: Vec<String> = lock(&self.lines).iter().cloned().collect();
        if lines.is_empty() { "(nothing)".into() } else { lines.join("\n") }
    }
}

fn copy(source: impl Read, kept: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(source).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        pass_on(&line);
        let mut kept = lock(kept);
        if kept.len() == KEPT_LINES {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}

/// Logs a line. An ERROR is logged at debug level: it is reported to the client that caused it.
fn pass_on(line: &str) {
    match line.split_once(':').map_or("", |(severity, _)| severity) {
        "PANIC" => tracing::error!(target: "contextd::postgres", "PostgreSQL: {line}"),
        "FATAL" | "WARNING" => tracing::warn!(target: "contextd::postgres", "PostgreSQL: {line}"),
        _ => tracing::debug!(target: "contextd::postgres", "PostgreSQL: {line}"),
    }
}

fn lock(lines: &Mutex<VecDeque<String>>) -> MutexGuard<'_, VecDeque<String>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}
