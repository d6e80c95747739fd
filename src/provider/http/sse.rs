//! Parses server-sent events incrementally, independent of a socket. The events do not depend on
//! how the bytes are split.
//!
//! As in the HTML standard, lines end with LF, CR or CRLF, a byte order mark may come first,
//! comments and unknown fields are ignored, and multiple data lines are joined. Unlike in the
//! standard, a last event without a blank line after it is passed on, because some services omit
//! the line; the decoder decides whether the event is complete.

#[cfg(test)]
mod tests;

/// Limit on the bytes of one event, including its field names, and of one line. It leaves room for
/// the largest possible response (960 KiB) in a single event, each byte as an escape of six bytes,
/// twice, and the same amount for other fields.
pub const MAX_EVENT_BYTES: usize = 16 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// Empty if the event has no name.
    pub name: String,
    /// The data. Invalid UTF-8 is replaced.
    pub data: String,
}

/// An event or line exceeds the reader's limit, which is given in bytes. The default is
/// [`MAX_EVENT_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {0} bytes")]
pub struct TooLarge(pub usize);

/// Reads a stream incrementally.
#[derive(Debug)]
pub struct Reader {
    max_event_bytes: usize,
    /// The incomplete last line.
    line: Vec<u8>,
    /// Bytes of the current event, counted against the limit.
    weight: usize,
    name: String,
    /// The data of the current event. `None` if it has none.
    data: Option<Vec<u8>>,
    /// The last byte was a CR. An LF that follows belongs to it.
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
    /// Creates a reader of events of at most `most` bytes.
    pub fn new(most: usize) -> Self {
        Self {
            max_event_bytes: most,
            line: Vec::new(),
            weight: 0,
            name: String::new(),
            data: None,
            after_return: false,
            first_line: true,
        }
    }

    /// Reads the next bytes and appends the events that they complete.
    ///
    /// # Errors
    ///
    /// Returns [`TooLarge`] if an event or line exceeds the limit.
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
            rest = if rest[end] == b'\r' { after.strip_prefix(b"\n").unwrap_or(after) } else { after };
            self.after_return = bytes.ends_with(b"\r") && rest.is_empty();
        }
        self.extend(rest)
    }

    /// Ends the stream. Returns the last event if it has no blank line after it.
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
        if self.weight > self.max_event_bytes {
            return Err(TooLarge(self.max_event_bytes));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) {
        let mut line = std::mem::take(&mut self.line);
        let skip = if self.first_line && line.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        self.first_line = false;
        match &line[skip..] {
            [] => self.dispatch(events),
            // A complete comment does not count against the limit: a service may send any number of
            // them.
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
            // `id` and `retry` are for reconnecting, which these streams do not support. Other
            // fields are unknown.
            _ => {}
        }
    }

    fn dispatch(&mut self, events: &mut Vec<Event>) {
        self.weight = 0;
        let name = std::mem::take(&mut self.name);
        if let Some(data) = self.data.take() {
            events.push(Event { name, data: text(data) });
        }
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
