//! Lines of the log on their way to stderr. A thread of its own writes them: a reader of the log that
//! stalls must not hold the threads that serve. What does not fit is dropped and counted.

use std::{
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Bytes of lines that may wait.
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// How long the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Writes lines; a clone writes to the same place.
#[derive(Debug, Clone)]
pub(super) struct LogWriter(Arc<Queue>);

/// The log of this process. Waits for its last lines when it is dropped.
#[must_use]
#[derive(Debug)]
pub struct Log(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    pending: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Pending {
    lines: Vec<u8>,
    /// Lines that did not fit since the last report.
    dropped: u64,
    /// Lines were taken that are not written yet.
    is_writing: bool,
}

/// Begins to write lines to a sink.
pub(super) fn start(sink: impl Write + Send + 'static) -> io::Result<(LogWriter, Log)> {
    let queue = Arc::new(Queue::default());
    let writing = Arc::clone(&queue);
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || writing.write_all(sink))?;
    Ok((LogWriter(Arc::clone(&queue)), Log(queue)))
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, line: &[u8]) {
        let mut pending = self.lock();
        if pending.lines.len() + line.len() > MOST_BYTES {
            pending.dropped += 1;
            return;
        }
        pending.lines.extend_from_slice(line);
        drop(pending);
        self.changed.notify_all();
    }

    /// Writes what comes, all that waits at once.
    fn write_all(&self, mut sink: impl Write) {
        loop {
            let pending = self.lock();
            let waits = |pending: &mut Pending| pending.lines.is_empty();
            let pending = self.changed.wait_while(pending, waits);
            let mut pending = pending.unwrap_or_else(PoisonError::into_inner);
            let lines = std::mem::take(&mut pending.lines);
            pending.is_writing = true;
            drop(pending);
            // Where the log cannot be written, it cannot be said either.
            let _ = sink.write_all(&lines).and_then(|()| sink.flush());
            let mut pending = self.lock();
            pending.is_writing = false;
            let dropped = std::mem::take(&mut pending.dropped);
            drop(pending);
            self.changed.notify_all();
            if dropped > 0 {
                tracing::warn!(
                    lines = dropped,
                    "lines of the log were dropped: its reader is too slow"
                );
            }
        }
    }

    /// Waits until all lines are written.
    fn flush(&self, patience: Duration) {
        let unwritten = |pending: &mut Pending| pending.is_writing || !pending.lines.is_empty();
        let _ = self
            .changed
            .wait_timeout_while(self.lock(), patience, unwritten);
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush(LAST_LINES);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// A sink that takes what it is given only when it is told to.
    struct Stalled {
        go_on: Receiver<()>,
        written: SyncSender<Vec<u8>>,
    }

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.go_on.recv().map_err(io::Error::other)?;
            self.written
                .send(bytes.to_vec())
                .map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stalled() -> (Stalled, SyncSender<()>, Receiver<Vec<u8>>) {
        let (go, go_on) = sync_channel(8);
        let (written, reader) = sync_channel(8);
        (Stalled { go_on, written }, go, reader)
    }

    #[test]
    fn a_reader_that_stalls_holds_no_writer_and_lines_beyond_the_bound_are_dropped() {
        let (sink, go, reader) = stalled();
        let (mut writer, log) = start(sink).unwrap();
        let line = vec![b'x'; MOST_BYTES / 4];
        for _ in 0..20 {
            writer.write_all(&line).unwrap();
        }
        let pending = log.0.lock();
        assert!(pending.lines.len() <= MOST_BYTES);
        assert!(
            pending.dropped >= 20 - 8,
            "{} were dropped",
            pending.dropped
        );
        drop(pending);
        for _ in 0..2 {
            go.send(()).unwrap();
        }
        drop(log);
        let written: usize = reader.try_iter().map(|bytes| bytes.len()).sum();
        assert_eq!(written % line.len(), 0);
        assert!(written > 0);
    }

    #[test]
    fn the_last_lines_are_written_before_the_log_is_dropped() {
        let (sink, go, reader) = stalled();
        let (mut writer, log) = start(sink).unwrap();
        go.send(()).unwrap();
        writer.write_all(b"the last\n").unwrap();
        drop(log);
        assert_eq!(reader.recv().unwrap(), b"the last\n");
    }
}
