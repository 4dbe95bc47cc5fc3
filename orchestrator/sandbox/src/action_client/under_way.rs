//! Which actions of a sandbox may still run: those that were sent and whose ending nobody has heard yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use protocol::ActionId;

/// More than can be under way at once; those that were left in the middle count too, and the oldest of them goes.
const MAX_REMEMBERED: usize = 1024;

/// The actions, shared by whoever sends them and whoever ends them. Locked for a moment, never across a wait.
#[derive(Clone, Default)]
pub(crate) struct ActionsUnderWay(Arc<Mutex<VecDeque<ActionId>>>);

impl ActionsUnderWay {
    /// It may run from now on.
    pub(super) fn began(&self, id: &ActionId) {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !ids.contains(id) {
            if ids.len() == MAX_REMEMBERED {
                ids.pop_front();
            }
            ids.push_back(id.clone());
        }
    }

    /// Its ending was heard.
    pub(super) fn ended(&self, id: &ActionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| other != id);
    }

    /// All of them; they count as ended from now on.
    pub(crate) fn take(&self) -> Vec<ActionId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}
