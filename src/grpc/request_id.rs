//! The request id: taken from the client or generated, returned to the client, and recorded in the log.

use http::{HeaderMap, HeaderName};
use uuid::Uuid;

/// The header with the request id.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length of an id from a client, in characters.
pub(super) const MAX_REQUEST_ID_CHARS: usize = 128;

tokio::task_local! {
    static CURRENT: String;
}

/// The id of the request that the current task handles. A new one if it handles none.
pub fn current() -> String {
    CURRENT.try_with(Clone::clone).unwrap_or_else(|_| new())
}

/// Runs `answering` with `id` as the current request id.
pub(super) fn scope<F: Future>(id: String, answering: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(id, answering)
}

/// The id of a request: the client's, if it is 1 to 128 visible ASCII characters, otherwise a new one.
pub(super) fn of(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let is_fit =
        |id: &&str| (1..=MAX_REQUEST_ID_CHARS).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    given.filter(is_fit).map_or_else(new, str::to_owned)
}

fn new() -> String {
    Uuid::now_v7().to_string()
}
