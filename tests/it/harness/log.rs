//! What is logged by a server that runs on one thread.

use std::{
    io,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tracing::{Dispatch, subscriber::DefaultGuard};

/// What is logged on this thread.
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
    /// Keeps what is logged on this thread for as long as the result lives.
    pub fn begin(&self) -> (DefaultGuard, Dispatch) {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_writer(move || writer.clone())
            .finish();
        let guard = tracing::subscriber::set_default(subscriber);
        // With one subscriber in the process, whichever thread meets a line of code first decides
        // for all whether it is logged, by its own subscriber; other tests have none. With two, all
        // subscribers are asked.
        (guard, Dispatch::new(tracing_subscriber::registry()))
    }

    /// All of it.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The fields of the lines with this message.
    pub fn lines(&self, message: &str) -> Vec<Value> {
        let lines = self.text();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .filter(|line| line["fields"]["message"] == message)
            .collect()
    }
}
