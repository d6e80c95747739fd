//! Bytes to server-sent events: incremental, without a socket. Any split of the bytes gives the
//! same events.
//!
//! As the HTML standard says: lines end with LF, CR or CRLF, a byte order mark may come first,
//! comments and unknown fields are passed over, data of several lines is joined. Unlike there, a last
//! event without its blank line is passed on, because some services omit it; the decoder decides
//! whether it is complete.

#[cfg(test)]
mod tests;

/// Bytes of one event, the names of its fields included, and of one line. Room for a whole answer
/// of the most bytes that one may have (960 KiB) in a single event, each byte as an escape of six,
/// twice, and as much beside it.
pub const MAX_EVENT_BYTES: usize = 16 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// Its name; empty when it has none.
    pub name: String,
    /// Its data. Bytes that are no UTF-8 are replaced.
    pub data: String,
}

/// An event or a line is longer than [`MAX_EVENT_BYTES`], or than what the reader was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {0} bytes")]
pub struct TooLarge(pub usize);

/// Reads a stream, piece by piece.
#[derive(Debug)]
pub struct Reader {
    most: usize,
    /// The line so far.
    line: Vec<u8>,
    /// The bytes of the event so far.
    weight: usize,
    name: String,
    /// The data so far. `None` means the event has no data.
    data: Option<Vec<u8>>,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_return: bool,
    /// No line has ended yet.
    first_line: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new(MAX_EVENT_BYTES)
    }
}

impl Reader {
    /// A reader of events of at most so many bytes.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            line: Vec::new(),
            weight: 0,
            name: String::new(),
            data: None,
            after_return: false,
            first_line: true,
        }
    }

    /// Takes the next bytes and adds the events that are complete.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLarge> {
        let mut rest = bytes;
        if self.after_return && !rest.is_empty() {
            self.after_return = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&rest[..end])?;
            self.end_line(events);
            let after = &rest[end + 1..];
            rest = if rest[end] == b'\r' {
                after.strip_prefix(b"\n").unwrap_or(after)
            } else {
                after
            };
            self.after_return = bytes.ends_with(b"\r") && rest.is_empty();
        }
        self.extend(rest)
    }

    /// The stream ended: the event that it cut off from its blank line, if there is one.
    pub fn finish(mut self) -> Option<Event> {
        let mut events = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut events);
        }
        self.dispatch(&mut events);
        events.pop()
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        self.weight = self.weight.saturating_add(bytes.len());
        if self.weight > self.most {
            return Err(TooLarge(self.most));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) {
        let mut line = std::mem::take(&mut self.line);
        let skip = if self.first_line && line.starts_with(BYTE_ORDER_MARK) {
            BYTE_ORDER_MARK.len()
        } else {
            0
        };
        self.first_line = false;
        match &line[skip..] {
            [] => self.dispatch(events),
            // A comment weighs nothing once it is over: a service may send any number of them.
            [b':', ..] => self.weight -= line.len(),
            field => self.field(field),
        }
        line.clear();
        self.line = line;
    }

    fn field(&mut self, line: &[u8]) {
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            // `id` and `retry` are for reconnecting, which these streams cannot; the rest is
            // unknown.
            _ => {}
        }
    }

    fn dispatch(&mut self, events: &mut Vec<Event>) {
        self.weight = 0;
        let name = std::mem::take(&mut self.name);
        if let Some(data) = self.data.take() {
            events.push(Event {
                name,
                data: text(data),
            });
        }
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
