//! Tells whoever started contextd how long work is coming along.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use crate::config::LogFormat;

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Something that may take a while begins: "creating the database cluster".
    Step(String),
    /// Serving has begun: "listening on 127.0.0.1:7070".
    Ready(String),
}

/// Where notices go. Clones tell the same listener.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(Notice) + Send + Sync>);

impl Progress {
    /// Notices go to `listener`.
    pub fn new(listener: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }

    /// Notices go nowhere.
    pub fn silent() -> Self {
        Self::new(drop)
    }

    /// Steps go to stderr, and the ready line goes to stdout as its only line; both have the log's
    /// format.
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

    /// Something that may take a while begins.
    pub fn step(&self, step: impl Into<String>) {
        (self.0)(Notice::Step(step.into()));
    }

    /// Serving has begun.
    pub fn ready(&self, line: impl Into<String>) {
        (self.0)(Notice::Ready(line.into()));
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Progress")
    }
}

/// A closed stdout is no reason to stop serving.
fn print_line(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
