//! What PostgreSQL writes to its standard error: passed on to tracing, the last lines kept for
//! error messages.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// How many lines an error message quotes.
const KEPT_LINES: usize = 20;
/// How long the quotation waits for lines that are still in the pipe.
const LAST_LINES_WAIT: Duration = Duration::from_millis(500);

/// The running log of one process.
#[derive(Debug)]
pub(super) struct Log {
    lines: Arc<Mutex<VecDeque<String>>>,
    ended: watch::Receiver<()>,
}

impl Log {
    /// Reads to the end in a thread of its own, so that the writer never has to wait for us.
    pub(super) fn follow(source: impl Read + Send + 'static) -> io::Result<Self> {
        let lines = Arc::default();
        let (open, ended) = watch::channel(());
        let kept = Arc::clone(&lines);
        std::thread::Builder::new()
            .name("postgres-log".into())
            .spawn(move || {
                copy(source, &kept);
                drop(open);
            })?;
        Ok(Self { lines, ended })
    }

    /// The latest line.
    pub(super) fn last_line(&self) -> String {
        lock(&self.lines).back().cloned().unwrap_or_default()
    }

    /// The last lines of a process that has ended.
    pub(super) async fn last_lines(&self) -> String {
        let mut ended = self.ended.clone();
        let _ = tokio::time::timeout(LAST_LINES_WAIT, ended.changed()).await; // late lines are better lost than waited for
        let lines: Vec<String> = lock(&self.lines).iter().cloned().collect();
        if lines.is_empty() {
            "(nothing)".into()
        } else {
            lines.join("\n")
        }
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

/// An ERROR is reported to the client that caused it; here it is detail.
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
