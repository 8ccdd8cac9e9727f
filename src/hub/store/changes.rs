//! When what was read of users, tokens, sessions, grants and clusters says nothing any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often this process may have changed who may do what: what was read before the last time says nothing any more.
/// Cheap to clone; clones count together.
#[derive(Debug, Clone, Default)]
pub struct AccessChanges(Arc<AtomicU64>);

/// Counts when it is dropped, so that a call counts that was given up while the database carried it out.
pub(super) struct Moving(AccessChanges);

impl AccessChanges {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Something changed, here or in another replica.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn moving(&self) -> Moving {
        Moving(self.clone())
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.0.add();
    }
}
