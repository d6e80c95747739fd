//! The newest prompts, for tests that look at what a model was given.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::model::Prompt;

/// Prompts kept.
const CAPACITY: usize = 64;

/// A bounded list of prompts, shared by its clones.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    prompts: Arc<Mutex<VecDeque<Arc<Prompt>>>>,
}

impl Log {
    /// Adds the newest; the oldest makes room.
    pub(super) fn push(&self, prompt: Arc<Prompt>) {
        let mut prompts = self.lock();
        if prompts.len() == CAPACITY {
            prompts.pop_front();
        }
        prompts.push_back(prompt);
    }

    /// All of them, oldest first.
    pub(super) fn prompts(&self) -> Vec<Arc<Prompt>> {
        self.lock().iter().cloned().collect()
    }

    /// The list; a panic elsewhere cannot have left it half changed.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Prompt>>> {
        self.prompts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
