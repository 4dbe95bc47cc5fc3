//! The table behind a registry: which records are retained, and for how long. Has no clock and
//! wakes no task.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fingerprint::Fingerprint;
use super::spool::SpoolUsage;

/// Maximum number of running actions or processes: far above what an agent uses, and far below what
/// exhausts threads.
const MAX_RUNNING: usize = 64;

/// Maximum number of ended records. A host that was away can read the results of all actions that
/// it had started.
pub(crate) const MAX_ENDED: usize = 256;

/// How long an ended record is retained: as long as a host keeps the sandbox of a killed run.
pub(crate) const RETENTION: Duration = Duration::from_secs(60 * 60);

/// Maximum memory of all ended records. The newest is always retained; its size is bounded by the
/// length of a frame.
const MAX_ENDED_MEMORY: u64 = 64 << 20;

/// Maximum disk usage of all ended records: half of the space for all output, which leaves the rest
/// to running ones.
const MAX_ENDED_DISK: u64 = 1 << 30;

/// Maximum number of files of all ended records: half of all files, for the same reason.
const MAX_ENDED_FILES: u64 = 128;

/// Maximum number of expired ids that are remembered, so that none runs twice: days of work in 3
/// MiB.
const MAX_FORGOTTEN: usize = 65_536;

/// The state of an id.
/// What is known of an id.
#[derive(Debug)]
pub(super) enum Lookup<E> {
    Retained(Fingerprint, Arc<E>),
    Forgotten,
    Unknown,
}

#[derive(Debug)]
pub(super) struct RecordTable<I, E> {
    /// All records, with the fingerprints of their requests.
    retained: HashMap<I, (Fingerprint, Arc<E>)>,
    /// The ended ones, oldest first.
    ended: VecDeque<EndedRecord<I>>,
    /// Total usage of the ended ones.
    ended_usage: SpoolUsage,
    forgotten: HashSet<Fingerprint>,
    /// The same fingerprints, oldest first.
    forgotten_order: VecDeque<Fingerprint>,
}

#[derive(Debug)]
struct EndedRecord<I> {
    id: I,
    fingerprint: Fingerprint,
    at: Instant,
    usage: SpoolUsage,
}

impl<I, E> Default for RecordTable<I, E> {
    fn default() -> Self {
        Self {
            retained: HashMap::new(),
            ended: VecDeque::new(),
            ended_usage: SpoolUsage::default(),
            forgotten: HashSet::new(),
            forgotten_order: VecDeque::new(),
        }
    }
}

impl<I: Eq + Hash, E> RecordTable<I, E> {
    /// Returns the state of an id. `fingerprint` is the fingerprint of the id.
    pub(super) fn look_up(&self, id: &I, fingerprint: Fingerprint) -> Lookup<E> {
        match self.retained.get(id) {
            Some((request, entry)) => Lookup::Retained(*request, Arc::clone(entry)),
            None if self.forgotten.contains(&fingerprint) => Lookup::Forgotten,
            None => Lookup::Unknown,
        }
    }

    /// Returns the number of running records if it is the maximum.
    pub(super) fn is_full(&self) -> Option<usize> {
        let running = self.retained.len() - self.ended.len();
        (running >= MAX_RUNNING).then_some(running)
    }

    pub(super) fn insert(&mut self, id: I, request: Fingerprint, entry: Arc<E>) {
        self.retained.insert(id, (request, entry));
    }

    /// Returns all records, in no particular order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<E>> {
        self.retained.values().map(|(_, entry)| entry)
    }

    pub(super) fn end(&mut self, id: I, fingerprint: Fingerprint, usage: SpoolUsage, now: Instant) {
        self.ended_usage += usage;
        self.ended.push_back(EndedRecord {
            id,
            fingerprint,
            at: now,
            usage,
        });
        while self.ended.len() > MAX_ENDED || (self.is_over_usage_limit() && self.ended.len() > 1) {
            self.forget(0);
        }
    }

    fn is_over_usage_limit(&self) -> bool {
        let SpoolUsage {
            memory,
            disk,
            files,
        } = self.ended_usage;
        memory > MAX_ENDED_MEMORY || disk > MAX_ENDED_DISK || files as u64 > MAX_ENDED_FILES
    }

    /// Forgets an ended record before its retention has elapsed. Returns `false` if the record has
    /// not ended.
    pub(super) fn acknowledge(&mut self, id: &I) -> bool {
        let index = self.ended.iter().position(|ended| ended.id == *id);
        if let Some(index) = index {
            self.forget(index);
        }
        index.is_some()
    }

    pub(super) fn expire(&mut self, now: Instant) {
        while self.next_expiry().is_some_and(|at| at <= now) {
            self.forget(0);
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.ended.front().map(|oldest| oldest.at + RETENTION)
    }

    fn forget(&mut self, index: usize) {
        let Some(ended) = self.ended.remove(index) else {
            return;
        };
        self.ended_usage -= ended.usage;
        self.retained.remove(&ended.id);
        if self.forgotten_order.len() == MAX_FORGOTTEN
            && let Some(first) = self.forgotten_order.pop_front()
        {
            self.forgotten.remove(&first);
        }
        if self.forgotten.insert(ended.fingerprint) {
            self.forgotten_order.push_back(ended.fingerprint);
        }
    }
}
