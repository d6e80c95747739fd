//! Records the most recent prompts, for tests of what a model receives.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::model::Prompt;

/// Number of prompts to keep.
const CAPACITY: usize = 64;

/// A bounded list of prompts, shared by its clones.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    prompts: Arc<Mutex<VecDeque<Arc<Prompt>>>>,
}

impl Log {
    /// Adds a prompt. Removes the oldest if the list is full.
    pub(super) fn push(&self, prompt: Arc<Prompt>) {
        let mut prompts = self.lock();
        if prompts.len() == CAPACITY {
            prompts.pop_front();
        }
        prompts.push_back(prompt);
    }

    /// All prompts, oldest first.
    pub(super) fn prompts(&self) -> Vec<Arc<Prompt>> {
        self.lock().iter().cloned().collect()
    }

    /// Locks the list. Ignores poisoning: a panic cannot leave the list half changed.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Prompt>>> {
        self.prompts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
