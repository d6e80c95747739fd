//! Tracks unary responses that clients have not read yet. A client that opens no flow-control window or never
//! reads must not fill the memory: its responses keep their request slots, and are dropped after a timeout.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body::{Body as _, Frame, SizeHint};
use prost::bytes::Bytes;
use tokio::time::Instant;
use tonic::{Status, body::Body};

/// Maximum bytes of a piece that is passed to the HTTP framework. The framework keeps a piece until the client opens
/// a window, so a dropped response can still take this much memory.
const MAX_CHUNK_BYTES: usize = 16 * 1024;

/// Unread responses, the oldest first.
#[derive(Debug)]
pub(super) struct UnreadResponses<T> {
    timeout: Duration,
    answers: Mutex<Answers<T>>,
}

#[derive(Debug)]
struct Answers<T> {
    next: u64,
    by_age: BTreeMap<u64, (Instant, Weak<Answer<T>>)>,
}

/// A response with its request slot. `None` once it was dropped.
type Answer<T> = Mutex<Option<Content<T>>>;

#[derive(Debug)]
struct Content<T> {
    body: Body,
    /// Bytes of the body that were not passed to the framework yet.
    rest: Bytes,
    _place: T,
}

impl<T> Content<T> {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            let Some(Ok(frame)) = frame else {
                return Poll::Ready(frame);
            };
            match frame.into_data() {
                Ok(data) if data.len() > MAX_CHUNK_BYTES => self.rest = data,
                Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        let piece = self.rest.split_to(MAX_CHUNK_BYTES.min(self.rest.len()));
        // A copy, because a slice would keep the whole buffer alive.
        let piece = Bytes::copy_from_slice(&piece);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl<T: Send + 'static> UnreadResponses<T> {
    /// Tracks responses that [`UnreadResponses::drop_overdue`] drops if they stay unread for `timeout`.
    pub(super) fn new(timeout: Duration) -> Self {
        let answers = Answers { next: 0, by_age: BTreeMap::new() };
        Self { timeout, answers: Mutex::new(answers) }
    }

    /// Drops the responses that were not read within the timeout.
    pub(super) fn drop_overdue(&self, now: Instant) {
        let mut overdue = Vec::new();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(oldest) = answers.by_age.first_entry()
            && now.duration_since(oldest.get().0) >= self.timeout
        {
            overdue.extend(oldest.remove().1.upgrade());
        }
        drop(answers);
        for answer in overdue {
            let dropped = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
            if dropped.is_some() {
                tracing::debug!("a response was not read in time");
            }
        }
    }

    /// Wraps a body. Its request slot, `place`, is released when the body has been read or is dropped.
    pub(super) fn hold(self: &Arc<Self>, body: Body, place: T) -> Body {
        let answer = Arc::new(Mutex::new(Some(Content { body, rest: Bytes::new(), _place: place })));
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let id = answers.next;
        answers.next += 1;
        let entry = (Instant::now(), Arc::downgrade(&answer));
        answers.by_age.insert(id, entry);
        drop(answers);
        Body::new(TrackedBody { id, answer, unread: Arc::clone(self) })
    }
}

/// The body of an unread response.
struct TrackedBody<T> {
    id: u64,
    answer: Arc<Answer<T>>,
    unread: Arc<UnreadResponses<T>>,
}

impl<T> TrackedBody<T> {
    fn with_content<R>(&self, at: impl FnOnce(&mut Content<T>) -> R) -> Option<R> {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.as_mut().map(at)
    }
}

impl<T> Drop for TrackedBody<T> {
    fn drop(&mut self) {
        let answers = self.unread.answers.lock();
        let mut answers = answers.unwrap_or_else(PoisonError::into_inner);
        answers.by_age.remove(&self.id);
    }
}

impl<T> http_body::Body for TrackedBody<T> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = self.with_content(|content| content.poll_piece(context));
        frame.unwrap_or_else(|| {
            let late = Status::deadline_exceeded("the response was not read in time");
            Poll::Ready(Some(Err(late)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.with_content(|content| content.rest.is_empty() && content.body.is_end_stream()).unwrap_or(false)
    }

    fn size_hint(&self) -> SizeHint {
        self.with_content(|content| {
            let hint = content.body.size_hint();
            let mut whole = SizeHint::new();
            let rest = content.rest.len() as u64;
            if let Some(upper) = hint.upper() {
                whole.set_upper(upper + rest);
            }
            whole.set_lower(hint.lower() + rest);
            whole
        })
        .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    async fn next(body: &mut Body) -> Option<Result<Frame<Bytes>, Status>> {
        poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
    }

    #[tokio::test]
    async fn an_answer_that_is_not_read_in_time_is_dropped_with_its_place() {
        let unread = Arc::new(UnreadResponses::new(TIMEOUT));
        let place = Arc::new(());
        let mut body = unread.hold(Body::new("text".to_owned()), Arc::clone(&place));
        let begun = Instant::now();
        unread.drop_overdue(begun);
        assert_eq!(Arc::strong_count(&place), 2);
        unread.drop_overdue(begun + TIMEOUT + Duration::from_secs(1));
        assert_eq!(Arc::strong_count(&place), 1);
        assert!(next(&mut body).await.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_large_answer_is_handed_on_in_pieces_that_keep_nothing_of_the_rest() {
        let unread = Arc::new(UnreadResponses::new(TIMEOUT));
        let text = "words ".repeat(10_000);
        let mut body = unread.hold(Body::new(text.clone()), ());
        let mut read = Vec::new();
        while let Some(frame) = next(&mut body).await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= MAX_CHUNK_BYTES);
            assert_eq!(body.is_end_stream(), read.len() + piece.len() == text.len());
            read.extend(piece);
        }
        assert_eq!(read, text.as_bytes());
    }

    #[tokio::test]
    async fn an_answer_that_was_read_gives_its_place_back() {
        let unread = Arc::new(UnreadResponses::new(TIMEOUT));
        let place = Arc::new(());
        let mut body = unread.hold(Body::new("text".to_owned()), Arc::clone(&place));
        let read = next(&mut body).await.unwrap().unwrap();
        assert_eq!(read.into_data().unwrap(), "text");
        drop(body);
        assert_eq!(Arc::strong_count(&place), 1);
        assert!(unread.answers.lock().unwrap().by_age.is_empty());
    }
}
