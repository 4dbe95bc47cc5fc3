//! What the server remembers of actions: an id runs once, its output can be read again by offset, its ending is kept.
//!
//! The ledger runs nothing and reads no request: it is told that an action begins, what it prints, how it ended. It
//! outlives every connection and ends with the process; an action in it ends exactly once (see [`Running`]).
//!
//! State is behind short mutexes, the table's and those of an entry, and not in an actor: output comes from threads that
//! must never wait for a reader. None is held across an await, and the table's and an entry's are never held together.
//!
//! The parts that are not about actions, [`Register`] (an id is used once) and [`Spool`] (output by offset), serve
//! processes as well.

mod entry;
mod fingerprint;
mod frames;
mod register;
mod retention;
mod running;
mod spool;
mod table;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use protocol::ActionId;
use protocol::sandbox_api::ActionRequest;

pub(crate) use entry::{Entry, MUCH_BYTES};
pub(crate) use frames::frames;
pub(crate) use register::{Refusal, Register, Registered};
pub(crate) use retention::forget_the_expired;
pub(crate) use running::Running;
pub(crate) use spool::{HELD_OUTPUT_BYTES, Held, Piece, Spool, SpoolStore};
pub(crate) use table::{MAX_ENDED, RETENTION};

/// Why an action does not begin, or cannot be attached to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LedgerError {
    /// Asking again with the same id is a mistake of the client; a new action needs a new id.
    #[error("the action id `{0}` belongs to another action")]
    Conflict(ActionId),
    /// It will not be held again; it is not run a second time.
    #[error("the action `{0}` has ended and is no longer held")]
    Gone(ActionId),
    /// Worth asking again once it was begun.
    #[error("there is no action `{0}`")]
    Unknown(ActionId),
    /// Only what has ended can be acknowledged.
    #[error("the action `{0}` still runs")]
    StillRuns(ActionId),
    /// Worth a retry when one of them has ended.
    #[error("{0} actions are running, no more are begun")]
    Busy(usize),
}

/// What came of asking for an action.
#[derive(Debug)]
pub(crate) enum StartedAction {
    /// It is new: whoever gets this has to run it.
    New(Running),
    /// It is known, running or ended.
    Known(Arc<Entry>),
}

/// The actions of this life of the server. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    register: Register<ActionId, Entry>,
    spools: SpoolStore,
}

impl Ledger {
    pub(crate) fn new(spools: SpoolStore) -> Self {
        Self { register: Register::default(), spools }
    }

    /// Begins an action, or finds it when this very request was seen before.
    pub(crate) fn begin(&self, id: ActionId, request: &ActionRequest) -> Result<StartedAction, LedgerError> {
        let new = || Ok::<_, Refusal>(Arc::new(Entry::new(&self.spools)));
        match self.register.begin(&id, request, new) {
            Ok(Registered::Known(entry)) => Ok(StartedAction::Known(entry)),
            Ok(Registered::New(entry)) => Ok(StartedAction::New(Running::new(id, entry, self.clone()))),
            Err(refusal) => Err(refused(id, refusal)),
        }
    }

    /// Finds an action that was begun before.
    pub(crate) fn find(&self, id: ActionId) -> Result<Arc<Entry>, LedgerError> {
        self.register.find(&id).map_err(|refusal| refused(id, refusal))
    }

    /// Forgets an action that has ended: its result was heard.
    pub(crate) fn acknowledge(&self, id: ActionId) -> Result<(), LedgerError> {
        self.register.acknowledge(&id).map_err(|refusal| refused(id, refusal))
    }

    /// Asks every running action to end.
    pub(crate) fn cancel_all(&self) {
        // Cancelling an ended action does nothing, so there is no need to tell them apart.
        self.register.all().iter().for_each(|entry| entry.cancel());
    }

    /// For the task that forgets.
    pub(crate) fn register(&self) -> Register<ActionId, Entry> {
        self.register.clone()
    }
}

fn refused(id: ActionId, refusal: Refusal) -> LedgerError {
    match refusal {
        Refusal::Conflict => LedgerError::Conflict(id),
        Refusal::Gone => LedgerError::Gone(id),
        Refusal::Unknown => LedgerError::Unknown(id),
        Refusal::StillRuns => LedgerError::StillRuns(id),
        Refusal::Busy(running) => LedgerError::Busy(running),
    }
}
