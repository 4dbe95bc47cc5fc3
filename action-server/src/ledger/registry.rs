//! A registry of ids that are used once. A record is found by its id. After the record has expired,
//! its id stays used.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::fingerprint::Fingerprints;
use super::spool::SpoolUsage;
use super::table::{Lookup, RecordTable};

/// Types that can be an id.
pub(crate) trait Id: Eq + Hash + Clone + AsRef<str> {}

impl<I: Eq + Hash + Clone + AsRef<str>> Id for I {}

/// Reason why a record is not started, found or acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegistryError {
    /// The id was used for another request.
    Conflict,
    /// The record has expired.
    Gone,
    /// The id was never used.
    Unknown,
    /// The record has not ended.
    StillRuns,
    /// The maximum number of records is running.
    Busy(usize),
}

/// The record of an id.
#[derive(Debug)]
pub(crate) enum Registration<E> {
    /// It was created for this request.
    New(Arc<E>),
    /// It existed before.
    Known(Arc<E>),
}

/// Records by id. Clones share them.
#[derive(Debug)]
pub(crate) struct Registry<I, E> {
    shared: Arc<RegistryState<I, E>>,
}

#[derive(Debug)]
struct RegistryState<I, E> {
    table: Mutex<RecordTable<I, E>>,
    /// Notifies the retention task that a record has ended.
    ended: Notify,
    fingerprints: Fingerprints,
}

impl<I, E> Clone for Registry<I, E> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<I: Id, E> Default for Registry<I, E> {
    fn default() -> Self {
        let shared = RegistryState {
            table: Mutex::default(),
            ended: Notify::new(),
            fingerprints: Fingerprints::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl<I: Id, E> Registry<I, E> {
    /// Returns the record of the same request, or creates it with `new`, which succeeds at most
    /// once for an id.
    pub(crate) fn start<X: From<RegistryError>>(
        &self,
        id: &I,
        request: &impl Serialize,
        new: impl FnOnce() -> Result<Arc<E>, X>,
    ) -> Result<Registration<E>, X> {
        let fingerprint = self.shared.fingerprints.of_request(request);
        let mut table = self.table();
        table.expire(Instant::now());
        match table.look_up(id, self.shared.fingerprints.of_id(id.as_ref())) {
            Lookup::Retained(first, entry) if first == fingerprint => {
                Ok(Registration::Known(entry))
            }
            Lookup::Retained(..) => Err(RegistryError::Conflict.into()),
            Lookup::Forgotten => Err(RegistryError::Gone.into()),
            Lookup::Unknown => {
                if let Some(running) = table.is_full() {
                    return Err(RegistryError::Busy(running).into());
                }
                let entry = new()?;
                table.insert(id.clone(), fingerprint, Arc::clone(&entry));
                Ok(Registration::New(entry))
            }
        }
    }

    pub(crate) fn find(&self, id: &I) -> Result<Arc<E>, RegistryError> {
        let mut table = self.table();
        table.expire(Instant::now());
        match table.look_up(id, self.shared.fingerprints.of_id(id.as_ref())) {
            Lookup::Retained(_, entry) => Ok(entry),
            Lookup::Forgotten => Err(RegistryError::Gone),
            Lookup::Unknown => Err(RegistryError::Unknown),
        }
    }

    /// Forgets a record that has ended.
    pub(crate) fn acknowledge(&self, id: &I) -> Result<(), RegistryError> {
        self.find(id)?;
        if self.table().acknowledge(id) {
            Ok(())
        } else {
            Err(RegistryError::StillRuns)
        }
    }

    /// Returns all records.
    pub(crate) fn all(&self) -> Vec<Arc<E>> {
        self.table().all().map(Arc::clone).collect()
    }

    /// Must be called once for each id, after its record has its result.
    pub(crate) fn set_ended(&self, id: I, usage: SpoolUsage) {
        let fingerprint = self.shared.fingerprints.of_id(id.as_ref());
        self.table().end(id, fingerprint, usage, Instant::now());
        self.shared.ended.notify_one();
    }

    pub(super) async fn record_ended(&self) {
        self.shared.ended.notified().await;
    }

    /// Ignores poisoning: a panic cannot leave the table in a state that is worse than no service.
    pub(super) fn table(&self) -> MutexGuard<'_, RecordTable<I, E>> {
        self.shared
            .table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
