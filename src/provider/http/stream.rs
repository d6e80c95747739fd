//! Performs one model call: sends the body, reads events, and passes them to the decoder of a
//! dialect, which returns chunks.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, header};
use reqwest::Response;
use tokio::time::timeout;

use super::{
    Chunks, Client, Decoded, Fault,
    client::{read_timeout_fault, unreachable},
    sse,
};
use crate::{
    model::ProviderItem,
    provider::{Chunk, Error, ResponseStream},
};

/// Decodes the events of a response in one dialect.
pub trait Decoder: Send + 'static {
    /// Decodes the next event and appends its chunks. No event is read after [`Chunk::Finished`].
    fn event(&mut self, event: &sse::Event, chunks: &mut Chunks) -> Decoded;

    /// Whether the finish reason was received. Events after it add nothing to the model's output,
    /// and if none follow the response is complete.
    fn has_finish_reason(&self) -> bool {
        false
    }

    /// Handles the end of a stream without [`Chunk::Finished`]. Adds it if the response is
    /// complete, otherwise returns an error.
    fn end(&mut self, chunks: &mut Chunks) -> Decoded;
}

/// A request whose response is an event stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Path and query, relative to the base URL.
    pub path: String,
    /// Headers in addition to those of every request.
    pub headers: HeaderMap,
    /// The JSON body.
    pub body: Vec<u8>,
}

impl Client {
    /// Calls the service. The request is sent when the stream is first polled; dropping the stream
    /// closes the connection.
    pub fn stream(self, call: Call, decoder: impl Decoder) -> ResponseStream {
        let call = ActiveCall { client: self, decoder, chunks: Chunks::default(), phase: Phase::Ready(call) };
        Box::pin(stream::unfold(call, |mut call| async move {
            let next = call.next().await.transpose()?;
            if next.is_err() {
                call.phase = Phase::Ended;
            }
            Some((next, call))
        }))
    }
}

/// A response that is replaced if it begins with an error for which `retry` returns another one.
pub(crate) fn retried(
    mut first: ResponseStream,
    retry: impl FnOnce(&Error) -> Option<ResponseStream> + Send + 'static,
) -> ResponseStream {
    let answer = async move {
        let begin = first.next().await;
        let other = match &begin {
            Some(Err(error)) => retry(error),
            Some(Ok(_)) | None => None,
        };
        other.unwrap_or_else(|| Box::pin(stream::iter(begin).chain(first)))
    };
    Box::pin(stream::once(answer).flatten())
}

/// How long to wait for a usage report or an end marker after the finish reason. Some services
/// leave the connection open.
const END_MARKER_TIMEOUT: Duration = Duration::from_secs(3);

/// A call in progress.
struct ActiveCall<D> {
    client: Client,
    decoder: D,
    /// Chunks that are decoded but not yet returned.
    chunks: Chunks,
    phase: Phase,
}

enum Phase {
    /// The request has not been sent.
    Ready(Call),
    /// The response is being read.
    Reading(Box<OpenResponse>),
    /// Nothing more is read.
    Ended,
}

struct OpenResponse {
    response: Response,
    events: sse::Reader,
    /// Whether any byte of the body was received.
    has_received_bytes: bool,
}

impl<D: Decoder> ActiveCall<D> {
    /// The next chunk. Returns `None` at the end.
    async fn next(&mut self) -> Result<Option<Chunk>, Error> {
        loop {
            if let Some(chunk) = self.chunks.pop() {
                if matches!(chunk, Chunk::Finished(_)) {
                    self.phase = Phase::Ended;
                    self.chunks = Chunks::default();
                }
                return Ok(Some(self.named(chunk)));
            }
            match &mut self.phase {
                Phase::Ready(call) => {
                    let body = std::mem::take(&mut call.body);
                    let response = self.client.post(&call.path, "text/event-stream", &call.headers, body).await?;
                    if is_another_type(response.headers()) {
                        return Err(self.client.response_error(response).await);
                    }
                    let events = sse::Reader::default();
                    self.phase = Phase::Reading(Box::new(OpenResponse { response, events, has_received_bytes: false }));
                }
                Phase::Reading(reading) => {
                    let is_whole = self.decoder.has_finish_reason();
                    let patience = reading.read_timeout(&self.client);
                    let patience = if is_whole { patience.min(END_MARKER_TIMEOUT) } else { patience };
                    let bytes = match timeout(patience, reading.response.chunk()).await {
                        Ok(Ok(bytes)) => bytes,
                        Ok(Err(error)) => return Err(self.fail(unreachable(&error))),
                        Err(_) if is_whole => None,
                        Err(_) => return Err(self.fail(read_timeout_fault(patience))),
                    };
                    self.take(bytes.as_deref())?;
                }
                Phase::Ended => return Ok(None),
            }
        }
    }

    /// Sets the provider name of a provider item.
    fn named(&self, chunk: Chunk) -> Chunk {
        let Chunk::Item(item) = chunk else {
            return chunk;
        };
        Chunk::Item(ProviderItem { provider: self.client.provider().to_owned(), ..item })
    }

    /// Decodes the next bytes, or the end of the stream.
    fn take(&mut self, bytes: Option<&[u8]>) -> Result<(), Error> {
        let Phase::Reading(reading) = &mut self.phase else {
            return Ok(());
        };
        let mut events = Vec::new();
        let ended = match bytes {
            Some(bytes) => {
                reading.has_received_bytes = true;
                let pushed = reading.events.push(bytes, &mut events);
                pushed.map_err(|error| self.fail(Fault::oversized(error.to_string())))?;
                false
            }
            None => {
                events.extend(std::mem::take(&mut reading.events).finish());
                true
            }
        };
        for event in &events {
            self.decoder.event(event, &mut self.chunks).map_err(|fault| self.fail(fault))?;
            if matches!(self.chunks.last(), Some(Chunk::Finished(_))) {
                return Ok(());
            }
        }
        if ended {
            self.decoder.end(&mut self.chunks).map_err(|fault| self.fail(fault))?;
            if self.chunks.is_empty() {
                self.phase = Phase::Ended;
            }
        }
        Ok(())
    }

    /// Converts a fault to the error of this call. Chunks that were decoded but not yet returned
    /// are lost.
    fn fail(&self, fault: Fault) -> Error {
        match &self.phase {
            Phase::Reading(reading) => self.client.error_in(fault, &reading.response),
            Phase::Ready { .. } | Phase::Ended => self.client.error(fault, 0, ""),
        }
    }
}

impl OpenResponse {
    fn read_timeout(&self, client: &Client) -> Duration {
        if self.has_received_bytes { client.config.stall_timeout } else { client.config.first_byte_timeout }
    }
}

/// Whether the response declares a content type other than an event stream. Some services omit the
/// type or send plain text.
fn is_another_type(headers: &HeaderMap) -> bool {
    let named = headers.get(header::CONTENT_TYPE);
    let named = named.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let named = named.split(';').next().unwrap_or_default();
    let named = named.trim().to_ascii_lowercase();
    named.ends_with("json") && !named.ends_with("ndjson") || named == "text/html"
}
