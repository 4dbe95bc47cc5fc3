//! The actions of the server: each id runs once, its output can be read again from any offset, and
//! its result is retained.
//!
//! The ledger does not run actions. Its caller reports their start, output and result. It outlives
//! every connection and ends with the process. Every action in it completes exactly once (see
//! [`RunningAction`]).
//!
//! The state is protected by short mutexes, one for the table and one for each record, instead of
//! an actor: output comes from threads that must never wait for a reader. No mutex is held across
//! an await, and those of the table and of a record are never held together.
//!
//! [`Registry`] (each id is used once) and [`Spool`] (output by offset) are also used for
//! processes.

mod entry;
mod fingerprint;
mod frames;
mod registry;
mod retention;
mod running;
mod spool;
mod table;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use protocol::ActionId;
use protocol::sandbox_api::ActionRequest;

pub(crate) use entry::{ActionRecord, LARGE_OUTPUT_BYTES};
pub(crate) use frames::frames;
pub(crate) use registry::{Registration, Registry, RegistryError};
pub(crate) use retention::expire_records;
pub(crate) use running::RunningAction;
pub(crate) use spool::{
    KEPT_BYTES, OutputPiece, RETAINED_OUTPUT_BYTES, Spool, SpoolStore, SpoolUsage,
};
pub(crate) use table::{MAX_ENDED, RETENTION};

/// Reason why an action is not started or found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LedgerError {
    /// Not worth a retry: a new action needs a new id.
    #[error("the action id `{0}` belongs to another action")]
    Conflict(ActionId),
    /// Not worth a retry: it is not run again.
    #[error("the action `{0}` has completed and is no longer retained")]
    Gone(ActionId),
    /// Worth a retry after the action was started.
    #[error("there is no action `{0}`")]
    Unknown(ActionId),
    /// Only a completed action can be acknowledged.
    #[error("the action `{0}` is still running")]
    StillRuns(ActionId),
    /// Worth a retry when an action has completed.
    #[error("{0} actions are running, which is the maximum")]
    Busy(usize),
}

/// Result of starting an action.
#[derive(Debug)]
pub(crate) enum StartedAction {
    /// The id is new. The caller must run the action.
    New(RunningAction),
    /// The id is known. The action is running or has completed.
    Known(Arc<ActionRecord>),
}

/// The actions of the server. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    registry: Registry<ActionId, ActionRecord>,
    spools: SpoolStore,
}

impl Ledger {
    pub(crate) fn new(spools: SpoolStore) -> Self {
        Self {
            registry: Registry::default(),
            spools,
        }
    }

    /// Starts an action. Returns the existing one if the same request was received before.
    pub(crate) fn start(
        &self,
        id: ActionId,
        request: &ActionRequest,
    ) -> Result<StartedAction, LedgerError> {
        let new = || Ok::<_, RegistryError>(Arc::new(ActionRecord::new(&self.spools)));
        match self.registry.start(&id, request, new) {
            Ok(Registration::Known(entry)) => Ok(StartedAction::Known(entry)),
            Ok(Registration::New(entry)) => Ok(StartedAction::New(RunningAction::new(
                id,
                entry,
                self.clone(),
            ))),
            Err(error) => Err(to_ledger_error(id, error)),
        }
    }

    /// Returns a known action.
    pub(crate) fn find(&self, id: ActionId) -> Result<Arc<ActionRecord>, LedgerError> {
        self.registry
            .find(&id)
            .map_err(|error| to_ledger_error(id, error))
    }

    /// Forgets a completed action, after the client has received the result.
    pub(crate) fn acknowledge(&self, id: ActionId) -> Result<(), LedgerError> {
        self.registry
            .acknowledge(&id)
            .map_err(|error| to_ledger_error(id, error))
    }

    /// Cancels all running actions.
    pub(crate) fn cancel_all(&self) {
        // Cancelling a completed action has no effect.
        self.registry.all().iter().for_each(|entry| entry.cancel());
    }

    /// Returns the registry for the task that expires records.
    pub(crate) fn registry(&self) -> Registry<ActionId, ActionRecord> {
        self.registry.clone()
    }
}

fn to_ledger_error(id: ActionId, error: RegistryError) -> LedgerError {
    match error {
        RegistryError::Conflict => LedgerError::Conflict(id),
        RegistryError::Gone => LedgerError::Gone(id),
        RegistryError::Unknown => LedgerError::Unknown(id),
        RegistryError::StillRuns => LedgerError::StillRuns(id),
        RegistryError::Busy(running) => LedgerError::Busy(running),
    }
}
