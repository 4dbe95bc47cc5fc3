//! A running action. Dropping it without a result completes the action with an error, so that every
//! action completes.

use std::sync::Arc;

use protocol::{ActionId, Observation};
use tokio_util::sync::CancellationToken;

use super::entry::ActionResult;
use super::{ActionRecord, Ledger};

/// An action that has started and not completed.
#[derive(Debug)]
pub(crate) struct RunningAction {
    entry: Arc<ActionRecord>,
    /// `None` once the action has completed.
    incomplete: Option<(ActionId, Ledger)>,
}

impl RunningAction {
    pub(super) fn new(id: ActionId, entry: Arc<ActionRecord>, ledger: Ledger) -> Self {
        Self {
            entry,
            incomplete: Some((id, ledger)),
        }
    }

    /// Returns the record for readers.
    pub(crate) fn entry(&self) -> Arc<ActionRecord> {
        Arc::clone(&self.entry)
    }

    /// Returns a token that is cancelled when a client cancels the action.
    pub(crate) fn cancellation(&self) -> CancellationToken {
        self.entry.cancellation()
    }

    /// Returns a function that appends output. It never blocks on readers.
    pub(crate) fn output(&self) -> impl FnMut(&[u8]) + Send + use<> {
        let entry = Arc::clone(&self.entry);
        move |bytes| entry.push(bytes)
    }

    /// Completes the action.
    pub(crate) fn complete(mut self, observation: Observation) {
        self.set_result(observation);
    }

    fn set_result(&mut self, observation: Observation) {
        if let Some((id, ledger)) = self.incomplete.take() {
            let usage = self.entry.complete(ActionResult::encode(observation));
            ledger.registry.set_ended(id, usage);
        }
    }
}

impl Drop for RunningAction {
    fn drop(&mut self) {
        self.set_result(Observation::error(
            "The action server failed while performing the action.",
            "",
        ));
    }
}
