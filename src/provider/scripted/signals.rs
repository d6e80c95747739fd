//! Named signals that scripts wait for and tests release.

use std::{collections::BTreeSet, sync::Arc};

use tokio::sync::watch;

/// The released names. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Signals {
    released: Arc<watch::Sender<BTreeSet<String>>>,
}

impl Signals {
    /// Releases a name permanently.
    pub(super) fn release(&self, name: &str) {
        self.released.send_if_modified(|released| released.insert(name.to_owned()));
    }

    /// Waits until the name is released.
    pub(super) async fn wait(&self, name: &str) {
        let mut released = self.released.subscribe();
        let outcome = released.wait_for(|names| names.contains(name)).await;
        debug_assert!(outcome.is_ok(), "self holds the sender");
    }
}
