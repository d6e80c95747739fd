//! Reports the progress of long-running startup work to the process that started contextd.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use crate::config::LogFormat;

/// A progress message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A step that may take a while has begun, for example "creating the database cluster".
    Step(String),
    /// The server is ready, for example "listening on 127.0.0.1:7070".
    Ready(String),
}

/// The receiver of notices. Clones share it.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(Notice) + Send + Sync>);

impl Progress {
    /// Passes notices to `listener`.
    pub fn new(listener: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }

    /// Discards all notices.
    pub fn silent() -> Self {
        Self::new(drop)
    }

    /// Writes steps to stderr, and the ready line to stdout as its only line, both in the log's format.
    pub fn to_terminal(format: LogFormat) -> Self {
        Self::new(move |notice| match (notice, format) {
            (Notice::Step(step), LogFormat::Text) => eprintln!("contextd: {step}"),
            (Notice::Step(step), LogFormat::Json) => tracing::info!("{step}"),
            (Notice::Ready(line), LogFormat::Text) => print_line(&line),
            (Notice::Ready(line), LogFormat::Json) => {
                print_line(&serde_json::json!({"level": "INFO", "message": line}).to_string());
            }
        })
    }

    /// Reports the start of a step that may take a while.
    pub fn step(&self, step: impl Into<String>) {
        (self.0)(Notice::Step(step.into()));
    }

    /// Reports that the server is ready.
    pub fn ready(&self, line: impl Into<String>) {
        (self.0)(Notice::Ready(line.into()));
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Progress")
    }
}

/// Ignores write errors, because a closed stdout is no reason to stop serving.
fn print_line(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
