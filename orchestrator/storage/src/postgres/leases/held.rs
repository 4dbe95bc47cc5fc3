//! The leases of this process, by its own clock.
//!
//! No I/O. Times are those of the monotonic clock; a lease counts as lost before the database lets
//! another host have it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::ConversationId;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The generation of a lease. Increases with every acquisition.
pub(super) type Generation = i64;

/// A conversation with the generation of its lease.
pub(super) type LeaseKey = (ConversationId, Generation);

/// How an append is fenced.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::postgres) enum Fence {
    /// This process holds no lease. The append is rejected if another host holds one.
    Unleased,
    /// The append is rejected unless this generation is current.
    Generation(Generation),
    /// The lease is lost.
    Lost,
}

#[derive(Default)]
pub(super) struct HeldLeases {
    /// A blocking mutex, because it is never held across an await.
    table: Mutex<Table>,
    on_release: Notify,
    on_forget: Notify,
}

#[derive(Default)]
struct Table {
    leases: HashMap<ConversationId, LeaseState>,
    /// Dropped leases that are not released in the database yet.
    released: Vec<LeaseKey>,
}

enum LeaseState {
    Acquiring,
    Held {
        generation: Generation,
        valid_until: Instant,
        lost: CancellationToken,
    },
}

impl HeldLeases {
    /// Reserves a conversation for an acquisition. `false` if this process holds or acquires its
    /// lease.
    pub(super) fn reserve(&self, conversation: &ConversationId) -> bool {
        match self.table().leases.entry(conversation.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(LeaseState::Acquiring);
                true
            }
        }
    }

    /// Ends a reservation without a lease.
    pub(super) fn cancel(&self, conversation: &ConversationId) {
        self.table().leases.remove(conversation);
    }

    /// Turns a reservation into a lease. Returns the token that is cancelled when the lease is
    /// lost.
    pub(super) fn hold(
        &self,
        (conversation, generation): LeaseKey,
        valid_until: Instant,
    ) -> CancellationToken {
        let lost = CancellationToken::new();
        let state = LeaseState::Held {
            generation,
            valid_until,
            lost: lost.clone(),
        };
        self.table().leases.insert(conversation, state);
        lost
    }

    /// Returns the fence of an append.
    pub(super) fn fence(&self, conversation: &ConversationId) -> Fence {
        match self.table().leases.get(conversation) {
            None | Some(LeaseState::Acquiring) => Fence::Unleased,
            Some(LeaseState::Held {
                generation,
                valid_until,
                lost,
            }) => {
                let is_valid = !lost.is_cancelled() && Instant::now() < *valid_until;
                if is_valid {
                    Fence::Generation(*generation)
                } else {
                    Fence::Lost
                }
            }
        }
    }

    /// Returns the leases to renew.
    pub(super) fn renewable(&self) -> Vec<LeaseKey> {
        let table = self.table();
        let leases = table
            .leases
            .iter()
            .filter_map(|(conversation, state)| match state {
                LeaseState::Held {
                    generation, lost, ..
                } if !lost.is_cancelled() => Some((conversation.clone(), *generation)),
                _ => None,
            });
        leases.collect()
    }

    /// Extends a renewed lease.
    pub(super) fn extend(&self, (conversation, renewed): &LeaseKey, until: Instant) {
        if let Some(LeaseState::Held {
            generation,
            valid_until,
            ..
        }) = self.table().leases.get_mut(conversation)
            && generation == renewed
        {
            *valid_until = until;
        }
    }

    /// Marks a lease as lost.
    pub(super) fn lose(&self, (conversation, gone): &LeaseKey) {
        if let Some(LeaseState::Held {
            generation, lost, ..
        }) = self.table().leases.get(conversation)
            && generation == gone
            && !lost.is_cancelled()
        {
            tracing::warn!(%conversation, generation, "the lease is lost");
            lost.cancel();
        }
    }

    /// Marks the leases as lost that were not renewed in time.
    pub(super) fn lose_expired(&self, now: Instant) {
        for (conversation, state) in &self.table().leases {
            if let LeaseState::Held {
                valid_until,
                lost,
                generation,
            } = state
                && *valid_until <= now
                && !lost.is_cancelled()
            {
                tracing::warn!(%conversation, generation, "the lease is lost: it was not renewed in time");
                lost.cancel();
            }
        }
    }

    /// Marks all leases as lost, because they are no longer renewed.
    pub(super) fn lose_all(&self) {
        for state in self.table().leases.values() {
            if let LeaseState::Held { lost, .. } = state {
                lost.cancel();
            }
        }
    }

    /// Ends a lease, and queues its release in the database.
    pub(super) fn release(&self, lease: LeaseKey) {
        let mut table = self.table();
        table.leases.remove(&lease.0);
        table.released.push(lease);
        drop(table);
        self.on_release.notify_one();
    }

    /// Waits for a release.
    pub(super) async fn wait_for_release(&self) {
        self.on_release.notified().await;
    }

    /// Returns the leases to release in the database.
    pub(super) fn released(&self) -> Vec<LeaseKey> {
        self.table().released.clone()
    }

    /// Forgets leases that were released in the database, or cannot be.
    pub(super) fn forget_released(&self, done: &[LeaseKey]) {
        self.table().released.retain(|lease| !done.contains(lease));
        self.on_forget.notify_waiters();
    }

    /// Waits until the dropped lease of a conversation is forgotten.
    pub(super) async fn wait_until_released(&self, conversation: &ConversationId) {
        loop {
            let forgotten = self.on_forget.notified();
            if !self
                .table()
                .released
                .iter()
                .any(|(released, _)| released == conversation)
            {
                return;
            }
            forgotten.await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TERM: Duration = Duration::from_secs(40);

    fn conversation() -> ConversationId {
        "a".parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn lease_is_lost_when_it_is_not_renewed_in_time() {
        let leases = HeldLeases::default();
        let key = (conversation(), 7);
        let lost = leases.hold(key.clone(), Instant::now() + TERM);
        tokio::time::advance(TERM / 2).await;
        leases.extend(&key, Instant::now() + TERM);
        tokio::time::advance(TERM - Duration::from_millis(1)).await;
        leases.lose_expired(Instant::now());
        assert!(!lost.is_cancelled());
        assert_eq!(leases.fence(&key.0), Fence::Generation(7));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(leases.fence(&key.0), Fence::Lost); // even before the watchdog runs
        leases.lose_expired(Instant::now());
        assert!(lost.is_cancelled());
        // A renewal that arrives late does not revive it.
        leases.extend(&key, Instant::now() + TERM);
        assert_eq!(leases.fence(&key.0), Fence::Lost);
        assert_eq!(leases.renewable(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_generation_changes_nothing() {
        let leases = HeldLeases::default();
        let lost = leases.hold((conversation(), 8), Instant::now() + TERM);
        leases.lose(&(conversation(), 7));
        leases.extend(&(conversation(), 7), Instant::now());
        assert!(!lost.is_cancelled());
        assert_eq!(leases.fence(&conversation()), Fence::Generation(8));
    }

    #[tokio::test(start_paused = true)]
    async fn conversation_can_be_reserved_once_until_its_release() {
        let leases = HeldLeases::default();
        assert!(leases.reserve(&conversation()));
        assert!(!leases.reserve(&conversation()));
        leases.hold((conversation(), 1), Instant::now() + TERM);
        assert!(!leases.reserve(&conversation()));
        leases.release((conversation(), 1));
        leases.wait_for_release().await;
        assert_eq!(leases.released(), [(conversation(), 1)]);
        let released = conversation();
        let mut waiting = std::pin::pin!(leases.wait_until_released(&released));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        leases.forget_released(&[(conversation(), 1)]);
        waiting.await;
        assert_eq!(leases.released(), []);
        assert!(leases.reserve(&conversation()));
    }
}
