//! Tracks the sessions for which this replica has written chunks of text.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::generations::Generations;
use crate::model::SessionKey;

/// Maximum number of sessions in each of two generations of [`WrittenChunks`].
const MAX_SESSIONS: usize = 10_000;

/// Sessions with chunks that this replica has written and no commit has removed since. Chunks of forgotten sessions and
/// those of other replicas are swept.
#[derive(Debug, Clone)]
pub(super) struct WrittenChunks(Arc<Mutex<Generations<()>>>);

impl Default for WrittenChunks {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Generations::new(MAX_SESSIONS))))
    }
}

impl WrittenChunks {
    /// Whether the session has chunks.
    pub(super) fn has(&self, key: &SessionKey) -> bool {
        self.lock().get(key).is_some()
    }

    /// Records that the session's chunks were removed.
    pub(super) fn forget(&self, key: &SessionKey) {
        self.lock().take(key);
    }

    /// Records that the session has chunks.
    pub(super) fn add(&self, key: &SessionKey) {
        self.lock().keep(key, (), 1);
    }

    fn lock(&self) -> MutexGuard<'_, Generations<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
