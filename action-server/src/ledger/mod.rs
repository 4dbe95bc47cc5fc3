//! What the server remembers of actions: an id runs once, its output can be read again by offset, its ending is kept.
//!
//! The ledger runs nothing and reads no request: it is told that an action begins, what it prints, how it ended. It
//! outlives every connection and ends with the process; an action in it ends exactly once (see [`Running`]).
//!
//! State is behind two kinds of short mutexes, the table's and one an entry, and not in an actor: output comes from
//! threads that must never wait for a reader, and the longest section copies 64 KiB. None is held across an await,
//! and the table's and an entry's are never held together.

mod entry;
mod fingerprint;
mod frames;
mod output;
mod retention;
mod running;
mod table;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::ActionId;
use protocol::sandbox_api::ActionRequest;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use entry::Entry;
use fingerprint::Fingerprints;
pub(crate) use frames::frames;
pub(crate) use output::HELD_OUTPUT_BYTES;
pub(crate) use retention::forget_the_expired;
pub(crate) use running::Running;
use table::{Lookup, Table};
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
    /// Worth a retry when one of them has ended.
    #[error("{0} actions are running, no more are begun")]
    Busy(usize),
}

/// What came of asking for an action.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It is new: whoever gets this has to run it.
    New(Running),
    /// It is known, running or ended.
    Known(Arc<Entry>),
}

/// The actions of this life of the server. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    /// Tells the retention task that something has ended, so that it need not look again and again.
    ended: Notify,
    fingerprints: Fingerprints,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        let shared =
            Shared { table: Mutex::default(), ended: Notify::new(), fingerprints: Fingerprints::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Begins an action, or finds it when this very request was seen before.
    pub(crate) fn begin(&self, id: ActionId, request: &ActionRequest) -> Result<Begun, LedgerError> {
        let fingerprint = self.shared.fingerprints.of_request(request);
        let now = Instant::now();
        let mut table = self.table();
        table.expire(now);
        match table.look_up(&id, self.shared.fingerprints.of_id(&id)) {
            Lookup::Held(entry) if entry.is_for(fingerprint) => Ok(Begun::Known(entry)),
            Lookup::Held(_) => Err(LedgerError::Conflict(id)),
            Lookup::Forgotten => Err(LedgerError::Gone(id)),
            Lookup::Unknown => {
                let entry = Arc::new(Entry::new(fingerprint));
                table.insert(id.clone(), Arc::clone(&entry))?;
                Ok(Begun::New(Running::new(id, entry, self.clone())))
            }
        }
    }

    /// Finds an action that was begun before.
    pub(crate) fn find(&self, id: ActionId) -> Result<Arc<Entry>, LedgerError> {
        let mut table = self.table();
        table.expire(Instant::now());
        match table.look_up(&id, self.shared.fingerprints.of_id(&id)) {
            Lookup::Held(entry) => Ok(entry),
            Lookup::Forgotten => Err(LedgerError::Gone(id)),
            Lookup::Unknown => Err(LedgerError::Unknown(id)),
        }
    }

    /// Asks every running action to end.
    pub(crate) fn cancel_all(&self) {
        self.table().running().for_each(|entry| entry.cancel());
    }

    /// Called once an action, after its entry has its ending.
    fn note_end(&self, id: ActionId, held_bytes: usize) {
        let fingerprint = self.shared.fingerprints.of_id(&id);
        self.table().end(id, fingerprint, held_bytes, Instant::now());
        self.shared.ended.notify_one();
    }

    /// A panic while the table was locked cannot have left it half changed in a way that matters more than going on.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.shared.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
