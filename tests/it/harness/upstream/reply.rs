//! A planned response: what is sent, when, and where it breaks.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Received;

/// A planned response.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) hold: Option<String>,
    pub(super) moves: Vec<Move>,
}

/// The next action of a response.
#[derive(Debug, Clone)]
pub(super) enum Move {
    /// Sends bytes.
    Send(Bytes),
    /// Sends bytes that depend on the request.
    Write(Written),
    /// Waits for a signal.
    Hold(String),
    /// Breaks the connection.
    Cut,
    /// Waits forever.
    Stall,
}

/// Bytes that depend on the request.
#[derive(Clone)]
pub(super) struct Written(Arc<Write>);

type Write = dyn Fn(&Received) -> Vec<u8> + Send + Sync;

impl fmt::Debug for Written {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Written")
    }
}

impl Move {
    /// The move in the response to that request.
    pub(super) fn to(self, request: &Received) -> Self {
        match self {
            Self::Write(Written(write)) => Self::Send(write(request).into()),
            Self::Send(_) | Self::Hold(_) | Self::Cut | Self::Stall => self,
        }
    }
}

impl Reply {
    /// A successful response with these events.
    pub fn events(body: impl Into<Bytes>) -> Self {
        Self::new(200, "text/event-stream").then(body)
    }

    /// A successful response with events that depend on the request, as ids and signatures do.
    pub fn to(write: impl Fn(&Received) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let written = Written(Arc::new(write));
        Self::new(200, "text/event-stream").moving(Move::Write(written))
    }

    /// A response of that status with a JSON body.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json").then(body.to_string())
    }

    /// A response of that status and content type, without a body yet.
    pub fn new(status: u16, content_type: &str) -> Self {
        Self { status, headers: Vec::new(), hold: None, moves: Vec::new() }.header("content-type", content_type)
    }

    /// An error in OpenAI's format.
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        Self::json(status, &json!({"error": {"message": message, "type": code, "param": null, "code": code}}))
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends nothing, not even the headers, before the signal is released.
    #[must_use]
    pub fn after(mut self, signal: &str) -> Self {
        self.hold = Some(signal.to_owned());
        self
    }

    /// Appends to the body.
    #[must_use]
    pub fn then(self, body: impl Into<Bytes>) -> Self {
        self.moving(Move::Send(body.into()))
    }

    /// Appends to the body, in pieces of `size` bytes.
    #[must_use]
    pub fn pieces(mut self, body: &[u8], size: usize) -> Self {
        self.moves.extend(body.chunks(size).map(|piece| Move::Send(Bytes::copy_from_slice(piece))));
        self
    }

    /// Sends nothing more before the signal is released.
    #[must_use]
    pub fn hold(self, signal: &str) -> Self {
        self.moving(Move::Hold(signal.to_owned()))
    }

    /// Breaks the connection at this point.
    #[must_use]
    pub fn cut(self) -> Self {
        self.moving(Move::Cut)
    }

    /// Sends nothing more, but keeps the connection open.
    #[must_use]
    pub fn stall(self) -> Self {
        self.moving(Move::Stall)
    }

    fn moving(mut self, next: Move) -> Self {
        self.moves.push(next);
        self
    }
}

/// A text of 64 characters that identifies the request.
pub(super) fn mark(request: &Received) -> String {
    let digest = Sha256::digest(&request.body);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Splits a text into two pieces.
pub(super) fn halves(text: &str) -> [&str; 2] {
    text.split_at(text.floor_char_boundary(text.len() / 2)).into()
}
