//! Which actions are held, and for how long. Pure bookkeeping: time comes in from outside, nothing is woken from here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::ActionId;
use tokio::time::Instant;

use super::fingerprint::Fingerprint;
use super::{Entry, LedgerError};

/// How many actions run at once: far above what an agent and its helpers ask for, far below what would exhaust threads.
const MAX_RUNNING: usize = 64;

/// How many ended actions are held: a host that was away reads the endings of all it had asked for.
pub(crate) const MAX_ENDED: usize = 256;

/// How long an ended action is held: a host that is restarted is back long before.
pub(crate) const RETENTION: Duration = Duration::from_secs(10 * 60);

/// How much the ended actions hold together; the newest stays, whatever its size (a frame's length bounds it).
const MAX_ENDED_BYTES: usize = 64 << 20;

/// How many forgotten ids are remembered so that none runs twice: days of work, 3 MiB.
const MAX_FORGOTTEN: usize = 65_536;

/// What is known of an id.
#[derive(Debug)]
pub(super) enum Lookup {
    Held(Arc<Entry>),
    Forgotten,
    Unknown,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    held: HashMap<ActionId, Arc<Entry>>,
    /// The ended among `held`, oldest first.
    ended: VecDeque<Ended>,
    ended_bytes: usize,
    forgotten: HashSet<Fingerprint>,
    /// The same, oldest first.
    forgotten_order: VecDeque<Fingerprint>,
}

#[derive(Debug)]
struct Ended {
    id: ActionId,
    fingerprint: Fingerprint,
    at: Instant,
    bytes: usize,
}

impl Table {
    pub(super) fn look_up(&self, id: &ActionId, fingerprint: Fingerprint) -> Lookup {
        match self.held.get(id) {
            Some(entry) => Lookup::Held(Arc::clone(entry)),
            None if self.forgotten.contains(&fingerprint) => Lookup::Forgotten,
            None => Lookup::Unknown,
        }
    }

    pub(super) fn insert(&mut self, id: ActionId, entry: Arc<Entry>) -> Result<(), LedgerError> {
        let running = self.held.len() - self.ended.len();
        if running >= MAX_RUNNING {
            return Err(LedgerError::Busy(running));
        }
        self.held.insert(id, entry);
        Ok(())
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Arc<Entry>> {
        // Cancelling an ended action does nothing, so there is no need to tell them apart.
        self.held.values()
    }

    pub(super) fn end(&mut self, id: ActionId, fingerprint: Fingerprint, bytes: usize, now: Instant) {
        self.ended.push_back(Ended { id, fingerprint, at: now, bytes });
        self.ended_bytes += bytes;
        while self.ended.len() > MAX_ENDED || (self.ended_bytes > MAX_ENDED_BYTES && self.ended.len() > 1) {
            self.forget_oldest();
        }
    }

    pub(super) fn expire(&mut self, now: Instant) {
        while self.next_expiry().is_some_and(|at| at <= now) {
            self.forget_oldest();
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.ended.front().map(|oldest| oldest.at + RETENTION)
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.ended.pop_front() else { return };
        self.ended_bytes -= oldest.bytes;
        self.held.remove(&oldest.id);
        if self.forgotten_order.len() == MAX_FORGOTTEN
            && let Some(first) = self.forgotten_order.pop_front()
        {
            self.forgotten.remove(&first);
        }
        if self.forgotten.insert(oldest.fingerprint) {
            self.forgotten_order.push_back(oldest.fingerprint);
        }
    }
}
