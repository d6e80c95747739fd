//! Writes log lines to stderr from a separate thread, so that a stalled reader of the log does not block the threads
//! that serve requests. Lines that do not fit in the buffer or cannot be written are dropped and counted. Audit lines
//! have reserved space in the buffer and are counted separately.

use std::{
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

use super::names::AUDIT;

/// Maximum bytes of buffered lines.
const MAX_BUFFERED_BYTES: usize = 8 * 1024 * 1024;
/// Additional bytes that are reserved for audit lines.
const RESERVED_AUDIT_BYTES: usize = 8 * 1024 * 1024;
/// How long the process waits at exit for the last lines to be written.
const EXIT_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Creates a writer for each log line.
#[derive(Debug, Clone)]
pub(super) struct LogWriter(Arc<Queue>);

/// Writes one line to the queue.
#[derive(Debug)]
pub(super) struct LineWriter {
    queue: Arc<Queue>,
    kind: Line,
}

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Log,
    Audit,
}

/// The log of this process. Dropping it waits for the last lines to be written.
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
    /// How many of them are audit lines.
    audit_lines: u64,
    /// Lines dropped since the last report.
    dropped: Dropped,
    /// Set while lines that were taken from the queue are not written yet.
    is_writing: bool,
}

/// Counts of dropped lines.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Dropped {
    log: u64,
    audit: u64,
}

impl Dropped {
    /// Logs the counts.
    fn report(self) {
        let Self { log, audit } = self;
        if log > 0 {
            tracing::warn!(lines = log, "log lines were dropped: stderr is blocked or closed");
        }
        if audit > 0 {
            tracing::error!(
                target: AUDIT,
                audit = true,
                lines = audit,
                "audit lines were dropped: stderr is blocked or closed"
            );
        }
    }
}

/// Starts the thread that writes lines to `sink`.
pub(super) fn start(sink: impl Write + Send + 'static) -> io::Result<(LogWriter, Log)> {
    let queue = Arc::new(Queue::default());
    let writing = Arc::clone(&queue);
    std::thread::Builder::new().name("log".to_owned()).spawn(move || writing.write_all(sink))?;
    Ok((LogWriter(Arc::clone(&queue)), Log(queue)))
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, line: &[u8], kind: Line) {
        let most = match kind {
            Line::Log => MAX_BUFFERED_BYTES,
            Line::Audit => MAX_BUFFERED_BYTES + RESERVED_AUDIT_BYTES,
        };
        let mut pending = self.lock();
        let fits = pending.lines.len() + line.len() <= most;
        match (fits, kind) {
            (true, Line::Log) => {}
            (true, Line::Audit) => pending.audit_lines += 1,
            (false, Line::Log) => pending.dropped.log += 1,
            (false, Line::Audit) => pending.dropped.audit += 1,
        }
        if !fits {
            return;
        }
        pending.lines.extend_from_slice(line);
        drop(pending);
        self.changed.notify_all();
    }

    /// Writes queued lines forever; all pending lines are written at once.
    fn write_all(&self, mut sink: impl Write) {
        loop {
            let pending = self.lock();
            let waits = |pending: &mut Pending| pending.lines.is_empty();
            let pending = self.changed.wait_while(pending, waits);
            let mut pending = pending.unwrap_or_else(PoisonError::into_inner);
            let lines = std::mem::take(&mut pending.lines);
            let audit_lines = std::mem::take(&mut pending.audit_lines);
            pending.is_writing = true;
            drop(pending);
            let written = sink.write_all(&lines).and_then(|()| sink.flush());
            let mut pending = self.lock();
            pending.is_writing = false;
            // Dropped lines are reported once writing succeeds again.
            let mut dropped = Dropped::default();
            match written {
                Ok(()) => dropped = std::mem::take(&mut pending.dropped),
                Err(_) => {
                    let all = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
                    pending.dropped.log += all.saturating_sub(audit_lines);
                    pending.dropped.audit += audit_lines;
                }
            }
            drop(pending);
            self.changed.notify_all();
            dropped.report();
        }
    }

    /// Waits until all lines are written, for at most `patience`.
    fn flush(&self, patience: Duration) {
        let unwritten = |pending: &mut Pending| pending.is_writing || !pending.lines.is_empty();
        let _ = self.changed.wait_timeout_while(self.lock(), patience, unwritten);
    }
}

impl LogWriter {
    fn line(&self, kind: Line) -> LineWriter {
        LineWriter { queue: Arc::clone(&self.0), kind }
    }
}

impl MakeWriter<'_> for LogWriter {
    type Writer = LineWriter;

    fn make_writer(&self) -> LineWriter {
        self.line(Line::Log)
    }

    fn make_writer_for(&self, metadata: &Metadata<'_>) -> LineWriter {
        self.line(if metadata.target() == AUDIT { Line::Audit } else { Line::Log })
    }
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.put(line, self.kind);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush(EXIT_FLUSH_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// A sink that accepts a write only after it receives a signal.
    struct Stalled {
        go_on: Receiver<()>,
        written: SyncSender<Vec<u8>>,
    }

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.go_on.recv().map_err(io::Error::other)?;
            self.written.send(bytes.to_vec()).map_err(io::Error::other)?;
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
        let (writer, log) = start(sink).unwrap();
        let line = vec![b'x'; MAX_BUFFERED_BYTES / 4];
        for _ in 0..20 {
            writer.make_writer().write_all(&line).unwrap();
        }
        let pending = log.0.lock();
        assert!(pending.lines.len() <= MAX_BUFFERED_BYTES);
        assert!(pending.dropped.log >= 20 - 8, "{:?} were dropped", pending.dropped);
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
    fn audit_lines_have_room_that_no_others_take_and_are_counted_apart() {
        let (sink, go, _reader) = stalled();
        let (writer, log) = start(sink).unwrap();
        let line = vec![b'x'; MAX_BUFFERED_BYTES / 4];
        for _ in 0..20 {
            writer.line(Line::Log).write_all(&line).unwrap();
        }
        let fit = RESERVED_AUDIT_BYTES / line.len();
        for _ in 0..fit {
            writer.line(Line::Audit).write_all(&line).unwrap();
        }
        assert_eq!(log.0.lock().dropped.audit, 0);
        // The writer may have taken everything queued before it stalled.
        for _ in 0..fit * 3 {
            writer.line(Line::Audit).write_all(&line).unwrap();
        }
        assert!(log.0.lock().dropped.audit > 0);
        drop(go);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let (sink, go, _reader) = stalled();
        let (writer, log) = start(sink).unwrap();
        // The sink fails from here on.
        drop(go);
        writer.line(Line::Audit).write_all(b"one\n").unwrap();
        writer.line(Line::Log).write_all(b"two\n").unwrap();
        log.0.flush(EXIT_FLUSH_TIMEOUT);
        assert_eq!(log.0.lock().dropped, Dropped { log: 1, audit: 1 });
    }

    #[test]
    fn the_last_lines_are_written_before_the_log_is_dropped() {
        let (sink, go, reader) = stalled();
        let (writer, log) = start(sink).unwrap();
        go.send(()).unwrap();
        writer.make_writer().write_all(b"the last\n").unwrap();
        drop(log);
        assert_eq!(reader.recv().unwrap(), b"the last\n");
    }
}
