//! A maximum for each client or user, so that one leaves something to the others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of entries above which those without a permit are removed.
const MIN_CLEANUP_SIZE: usize = 1024;

/// Permits of each key. Not governor, which bounds a rate. The table has no more keys than have
/// permits, and some more.
pub(crate) struct KeyedPermits<K> {
    max_per_key: usize,
    table: Arc<Mutex<Table<K>>>,
}

/// A blocking mutex guards it, because it is never held across an await.
struct Table<K> {
    /// Those without permits are removed when the table has grown to twice its size after the last
    /// clean-up, so that the cost for each new key is constant.
    keys: HashMap<K, Arc<Semaphore>>,
    next_cleanup_size: usize,
}

impl<K> Clone for KeyedPermits<K> {
    fn clone(&self) -> Self {
        Self {
            max_per_key: self.max_per_key,
            table: Arc::clone(&self.table),
        }
    }
}

impl<K: Eq + Hash> KeyedPermits<K> {
    pub(crate) fn new(max_per_key: usize) -> Self {
        let table = Table {
            keys: HashMap::new(),
            next_cleanup_size: MIN_CLEANUP_SIZE,
        };
        Self {
            max_per_key,
            table: Arc::new(Mutex::new(table)),
        }
    }

    /// Returns a permit. `None` if the key has as many as it may have.
    pub(crate) fn try_acquire(&self, key: K) -> Option<OwnedSemaphorePermit> {
        self.try_acquire_many(key, 1)
    }

    /// Returns a number of permits as one. `None` if the key would have more than it may have.
    pub(crate) fn try_acquire_many(&self, key: K, count: u32) -> Option<OwnedSemaphorePermit> {
        self.permits(key).try_acquire_many_owned(count).ok()
    }

    /// Waits for a permit of the key.
    pub(crate) async fn acquire(&self, key: K) -> Option<OwnedSemaphorePermit> {
        self.acquire_many(key, 1).await
    }

    /// Waits for a number of permits of the key, which are one.
    pub(crate) async fn acquire_many(&self, key: K, count: u32) -> Option<OwnedSemaphorePermit> {
        // An error means that the semaphore is closed, which it never is.
        self.permits(key).acquire_many_owned(count).await.ok()
    }

    fn permits(&self, key: K) -> Arc<Semaphore> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.keys.len() >= table.next_cleanup_size {
            // Each permit, and each task that waits for one, has a reference.
            table
                .keys
                .retain(|_, permits| Arc::strong_count(permits) > 1);
            table.next_cleanup_size = MIN_CLEANUP_SIZE.max(2 * table.keys.len());
        }
        let new = || Arc::new(Semaphore::new(self.max_per_key));
        Arc::clone(table.keys.entry(key).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_maximum() {
        let permits = KeyedPermits::new(2);
        let mut held: Vec<_> = (0..2)
            .map(|_| permits.try_acquire("one").unwrap())
            .collect();
        assert!(permits.try_acquire("one").is_none());
        held.push(permits.try_acquire("other").unwrap());
        drop(held.remove(0));
        assert!(permits.try_acquire("one").is_some());
    }

    #[test]
    fn keys_without_permits_are_forgotten() {
        let permits = KeyedPermits::new(1);
        let held = permits.try_acquire(0).unwrap();
        for number in 1..10 * MIN_CLEANUP_SIZE {
            assert!(permits.try_acquire(number).is_some());
        }
        assert!(permits.table.lock().unwrap().keys.len() <= 2 * MIN_CLEANUP_SIZE);
        assert!(permits.try_acquire(0).is_none());
        drop(held);
    }
}
