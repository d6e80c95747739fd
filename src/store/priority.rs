//! The priority of operations that wait for a connection. A new request waits in the line of its tenant once. All other
//! operations are served before it: running turns, compactions, open streams, workers, and requests that have begun.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use futures_util::future::Either;

use crate::model::TenantId;

tokio::task_local! {
    static CURRENT: Arc<NewRequest>;
}

/// A request that waits in the line of its tenant until its first operation gets a connection.
#[derive(Debug)]
pub struct NewRequest {
    pub(super) tenant: TenantId,
    has_begun: AtomicBool,
}

impl NewRequest {
    /// Creates a request of a tenant.
    pub fn new(tenant: TenantId) -> Arc<Self> {
        Arc::new(Self { tenant, has_begun: AtomicBool::new(false) })
    }

    /// Runs `doing` as this request.
    pub fn scope<F: Future>(self: Arc<Self>, doing: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, doing)
    }

    /// Runs `doing` as part of the current request, even if it is spawned as another task.
    pub fn as_part_of_current<F: Future>(doing: F) -> impl Future<Output = F::Output> {
        match CURRENT.try_with(Arc::clone) {
            Ok(request) => Either::Left(request.scope(doing)),
            Err(_) => Either::Right(doing),
        }
    }

    /// The current request, if it has not begun.
    pub(super) fn waiting() -> Option<Arc<Self>> {
        let waiting = |request: &Arc<Self>| {
            let has_begun = request.has_begun.load(Relaxed);
            (!has_begun).then(|| Arc::clone(request))
        };
        CURRENT.try_with(waiting).ok().flatten()
    }

    /// Marks the request as begun: it got a connection.
    pub(super) fn begin(&self) {
        self.has_begun.store(true, Relaxed);
    }
}
