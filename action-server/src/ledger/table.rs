//! What of one kind, actions or processes, is held, and for how long. Pure bookkeeping: time comes in from outside, nothing is woken from here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fingerprint::Fingerprint;
use super::spool::Held;

/// How many run at once: far above what an agent and its helpers ask for, far below what would exhaust threads.
const MAX_RUNNING: usize = 64;

/// How many that have ended are held: a host that was away reads the endings of all it had asked for.
pub(crate) const MAX_ENDED: usize = 256;

/// How long one that has ended is held: a host that is restarted is back long before.
pub(crate) const RETENTION: Duration = Duration::from_secs(10 * 60);

/// How much memory the ended hold together; the newest stays, whatever its size (a frame's length bounds it).
const MAX_ENDED_MEMORY: u64 = 64 << 20;

/// How much of the disk they hold together: half of what there is for all output, so that what runs finds room.
const MAX_ENDED_DISK: u64 = 1 << 30;

/// How many of its files: half, for the same reason.
const MAX_ENDED_FILES: u64 = 128;

/// How many forgotten ids are remembered so that none runs twice: days of work, 3 MiB.
const MAX_FORGOTTEN: usize = 65_536;

/// What is known of an id.
#[derive(Debug)]
pub(super) enum Lookup<E> {
    Held(Fingerprint, Arc<E>),
    Forgotten,
    Unknown,
}

#[derive(Debug)]
pub(super) struct Table<I, E> {
    /// With the fingerprints of their requests.
    held: HashMap<I, (Fingerprint, Arc<E>)>,
    /// The ended among `held`, oldest first.
    ended: VecDeque<Ended<I>>,
    /// What they hold together.
    held_by_ended: Held,
    forgotten: HashSet<Fingerprint>,
    /// The same, oldest first.
    forgotten_order: VecDeque<Fingerprint>,
}

#[derive(Debug)]
struct Ended<I> {
    id: I,
    fingerprint: Fingerprint,
    at: Instant,
    holds: Held,
}

impl<I, E> Default for Table<I, E> {
    fn default() -> Self {
        Self {
            held: HashMap::new(),
            ended: VecDeque::new(),
            held_by_ended: Held::default(),
            forgotten: HashSet::new(),
            forgotten_order: VecDeque::new(),
        }
    }
}

impl<I: Eq + Hash, E> Table<I, E> {
    /// `fingerprint` is the id's.
    pub(super) fn look_up(&self, id: &I, fingerprint: Fingerprint) -> Lookup<E> {
        match self.held.get(id) {
            Some((request, entry)) => Lookup::Held(*request, Arc::clone(entry)),
            None if self.forgotten.contains(&fingerprint) => Lookup::Forgotten,
            None => Lookup::Unknown,
        }
    }

    /// How many run, when that is as many as may.
    pub(super) fn is_full(&self) -> Option<usize> {
        let running = self.held.len() - self.ended.len();
        (running >= MAX_RUNNING).then_some(running)
    }

    pub(super) fn insert(&mut self, id: I, request: Fingerprint, entry: Arc<E>) {
        self.held.insert(id, (request, entry));
    }

    /// All that are held, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<E>> {
        self.held.values().map(|(_, entry)| entry)
    }

    pub(super) fn end(&mut self, id: I, fingerprint: Fingerprint, holds: Held, now: Instant) {
        self.held_by_ended += holds;
        self.ended.push_back(Ended { id, fingerprint, at: now, holds });
        while self.ended.len() > MAX_ENDED || (self.ended_hold_too_much() && self.ended.len() > 1) {
            self.forget(0);
        }
    }

    fn ended_hold_too_much(&self) -> bool {
        let Held { memory, disk, files } = self.held_by_ended;
        memory > MAX_ENDED_MEMORY || disk > MAX_ENDED_DISK || files as u64 > MAX_ENDED_FILES
    }

    /// Forgets an ended one before its time; one that runs stays, and is told of.
    pub(super) fn acknowledge(&mut self, id: &I) -> bool {
        let place = self.ended.iter().position(|ended| ended.id == *id);
        if let Some(place) = place {
            self.forget(place);
        }
        place.is_some()
    }

    pub(super) fn expire(&mut self, now: Instant) {
        while self.next_expiry().is_some_and(|at| at <= now) {
            self.forget(0);
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.ended.front().map(|oldest| oldest.at + RETENTION)
    }

    fn forget(&mut self, place: usize) {
        let Some(ended) = self.ended.remove(place) else { return };
        self.held_by_ended -= ended.holds;
        self.held.remove(&ended.id);
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
