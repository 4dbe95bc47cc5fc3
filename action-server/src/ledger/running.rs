//! The right and duty to end an action. Whoever drops it without saying how the action ended has failed, and the
//! ledger says that: an action never stays without an ending.

use std::sync::Arc;

use protocol::{ActionId, Observation};
use tokio_util::sync::CancellationToken;

use super::entry::Ending;
use super::{Entry, Ledger};

/// An action that has begun and not ended.
#[derive(Debug)]
pub(crate) struct Running {
    entry: Arc<Entry>,
    /// Taken by the ending.
    open: Option<(ActionId, Ledger)>,
}

impl Running {
    pub(super) fn new(id: ActionId, entry: Arc<Entry>, ledger: Ledger) -> Self {
        Self { entry, open: Some((id, ledger)) }
    }

    /// For readers.
    pub(crate) fn entry(&self) -> Arc<Entry> {
        Arc::clone(&self.entry)
    }

    /// Cancelled when somebody asks the action to end.
    pub(crate) fn cancellation(&self) -> CancellationToken {
        self.entry.cancellation()
    }

    /// Takes the action's output; never waits.
    pub(crate) fn output(&self) -> impl FnMut(&[u8]) + Send + use<> {
        let entry = Arc::clone(&self.entry);
        move |bytes| entry.push(bytes)
    }

    /// The action has ended.
    pub(crate) fn end(mut self, observation: Observation) {
        self.close(observation);
    }

    fn close(&mut self, observation: Observation) {
        if let Some((id, ledger)) = self.open.take() {
            let holds = self.entry.end(Ending::encode(observation));
            ledger.register.note_end(id, holds);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close(Observation::error("The action server failed while performing the action.", ""));
    }
}
