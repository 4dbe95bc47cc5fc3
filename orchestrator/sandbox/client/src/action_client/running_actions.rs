//! The actions of a sandbox that may still run: sent, and without a terminal event so far.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use protocol::ActionId;

/// More than can run concurrently. Actions whose result is unknown count too. The oldest are
/// dropped.
const MAX_ACTIONS: usize = 1024;

/// Shared by the client that sends the actions and the provider that cancels them. The lock is
/// never held across an await.
#[derive(Clone, Default)]
pub struct RunningActions(Arc<Mutex<VecDeque<ActionId>>>);

impl RunningActions {
    pub(super) fn insert(&self, id: &ActionId) {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !ids.contains(id) {
            if ids.len() == MAX_ACTIONS {
                ids.pop_front();
            }
            ids.push_back(id.clone());
        }
    }

    pub(super) fn remove(&self, id: &ActionId) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|other| other != id);
    }

    /// Removes and returns all actions.
    pub fn drain(&self) -> Vec<ActionId> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
            .collect()
    }
}
