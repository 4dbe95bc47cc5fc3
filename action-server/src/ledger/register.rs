//! Ids that are used once: what is begun under an id is found under it, and after it was forgotten the id stays used.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::fingerprint::Fingerprints;
use super::spool::Held;
use super::table::{Lookup, Table};

/// What can be an id here.
pub(crate) trait Id: Eq + Hash + Clone + AsRef<str> {}

impl<I: Eq + Hash + Clone + AsRef<str>> Id for I {}

/// Why an id is not begun with, found or forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It was used for another request.
    Conflict,
    /// It has ended and is forgotten.
    Gone,
    /// It was never used.
    Unknown,
    /// It has not ended.
    StillRuns,
    /// So many run.
    Busy(usize),
}

/// What is known under an id.
#[derive(Debug)]
pub(crate) enum Registered<E> {
    /// It was made for this request.
    New(Arc<E>),
    /// It was there.
    Known(Arc<E>),
}

/// Entries by id. Cloning shares it.
#[derive(Debug)]
pub(crate) struct Register<I, E> {
    shared: Arc<Shared<I, E>>,
}

#[derive(Debug)]
struct Shared<I, E> {
    table: Mutex<Table<I, E>>,
    /// Tells the retention task that something has ended, so that it need not look again and again.
    ended: Notify,
    fingerprints: Fingerprints,
}

impl<I, E> Clone for Register<I, E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<I: Id, E> Default for Register<I, E> {
    fn default() -> Self {
        let shared =
            Shared { table: Mutex::default(), ended: Notify::new(), fingerprints: Fingerprints::default() };
        Self { shared: Arc::new(shared) }
    }
}

impl<I: Id, E> Register<I, E> {
    /// Finds what was begun with this very request, or makes it: `new` runs at most once an id, unless it fails.
    pub(crate) fn begin<X: From<Refusal>>(
        &self,
        id: &I,
        request: &impl Serialize,
        new: impl FnOnce() -> Result<Arc<E>, X>,
    ) -> Result<Registered<E>, X> {
        let fingerprint = self.shared.fingerprints.of_request(request);
        let mut table = self.table();
        table.expire(Instant::now());
        match table.look_up(id, self.shared.fingerprints.of_id(id.as_ref())) {
            Lookup::Held(first, entry) if first == fingerprint => Ok(Registered::Known(entry)),
            Lookup::Held(..) => Err(Refusal::Conflict.into()),
            Lookup::Forgotten => Err(Refusal::Gone.into()),
            Lookup::Unknown => {
                if let Some(running) = table.is_full() {
                    return Err(Refusal::Busy(running).into());
                }
                let entry = new()?;
                table.insert(id.clone(), fingerprint, Arc::clone(&entry));
                Ok(Registered::New(entry))
            }
        }
    }

    pub(crate) fn find(&self, id: &I) -> Result<Arc<E>, Refusal> {
        let mut table = self.table();
        table.expire(Instant::now());
        match table.look_up(id, self.shared.fingerprints.of_id(id.as_ref())) {
            Lookup::Held(_, entry) => Ok(entry),
            Lookup::Forgotten => Err(Refusal::Gone),
            Lookup::Unknown => Err(Refusal::Unknown),
        }
    }

    /// Forgets what has ended.
    pub(crate) fn acknowledge(&self, id: &I) -> Result<(), Refusal> {
        self.find(id)?;
        if self.table().acknowledge(id) { Ok(()) } else { Err(Refusal::StillRuns) }
    }

    /// All that are held.
    pub(crate) fn all(&self) -> Vec<Arc<E>> {
        self.table().all().map(Arc::clone).collect()
    }

    /// Called once an id, after its entry has its ending.
    pub(crate) fn note_end(&self, id: I, holds: Held) {
        let fingerprint = self.shared.fingerprints.of_id(id.as_ref());
        self.table().end(id, fingerprint, holds, Instant::now());
        self.shared.ended.notify_one();
    }

    pub(super) async fn something_ended(&self) {
        self.shared.ended.notified().await;
    }

    /// A panic while the table was locked cannot have left it half changed in a way that matters more than going on.
    pub(super) fn table(&self) -> MutexGuard<'_, Table<I, E>> {
        self.shared.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
