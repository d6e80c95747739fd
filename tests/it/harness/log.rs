//! Captures the log of a server that runs on one thread.

use std::{
    io,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tracing::{Dispatch, subscriber::DefaultGuard};

/// The captured log of this thread.
#[derive(Debug, Clone, Default)]
pub struct Logged(Arc<Mutex<Vec<u8>>>);

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Logged {
    /// Captures the log of this thread while the result lives.
    pub fn begin(&self) -> (DefaultGuard, Dispatch) {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
        let guard = tracing::subscriber::set_default(subscriber);
        // With a single subscriber in the process, the first thread that reaches a callsite decides for all threads
        // whether it is logged, and other tests have no subscriber. With two, all subscribers are consulted.
        (guard, Dispatch::new(tracing_subscriber::registry()))
    }

    /// The whole log.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The fields of the lines with this message.
    pub fn lines(&self, message: &str) -> Vec<Value> {
        let lines = self.text();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["fields"]["message"] == message).collect()
    }
}
