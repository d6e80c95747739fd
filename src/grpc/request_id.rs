//! The id of a request: taken from the client, else made here, sent back, and named in the log.

use http::{HeaderMap, HeaderName};
use uuid::Uuid;

/// Carries the id.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Characters of a client's id.
pub(super) const LONGEST_ID: usize = 128;

tokio::task_local! {
    static CURRENT: String;
}

/// The id of the request that this task answers; a new one where it answers none.
pub fn current() -> String {
    CURRENT.try_with(Clone::clone).unwrap_or_else(|_| new())
}

/// Answers a request under its id.
pub(super) fn scope<F: Future>(id: String, answering: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(id, answering)
}

/// The id of a request with these headers: what the client gave it, if that is one that a log can
/// show.
pub(super) fn of(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let is_fit = |id: &&str| {
        (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    given.filter(is_fit).map_or_else(new, str::to_owned)
}

fn new() -> String {
    Uuid::now_v7().to_string()
}
