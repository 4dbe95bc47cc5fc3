//! Memory of what clients send: bodies that are read as a whole, and messages of sockets. Each user
//! has a part of the maximum.
//!
//! Bodies that are streamed, to a sandbox for example, are not counted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::UserId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::error::ApiError;
use crate::keyed_permits::KeyedPermits;

/// Length up to which a body or a message needs no permit, so that everything small works while the
/// memory is used. Requests without a key have no more.
pub(crate) const FREE_BYTES: usize = 16 << 10;

/// Maximum number of bytes of all users.
const MAX_BYTES: usize = 256 << 20;

/// Maximum number of bytes of a user: two of the largest bodies.
const MAX_BYTES_PER_USER: usize = 64 << 20;

/// Granularity of the permits of a body whose length is unknown.
const STEP_BYTES: usize = 64 << 10;

/// Time for which a body or a message waits until others are released.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Permits for bytes.
pub(crate) struct InputMemory {
    all: Arc<Semaphore>,
    /// `None` is the operator.
    by_user: KeyedPermits<Option<UserId>>,
}

/// The right to hold a number of bytes, until it is dropped.
pub(crate) struct InputPermit {
    _user: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for InputMemory {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_BYTES)),
            by_user: KeyedPermits::new(MAX_BYTES_PER_USER),
        }
    }
}

impl InputMemory {
    /// Waits for the right to hold bytes.
    ///
    /// # Errors
    /// [`ApiError::TooMuchInput`].
    pub(crate) async fn acquire(
        &self,
        user: Option<UserId>,
        bytes: usize,
    ) -> Result<InputPermit, ApiError> {
        let count = u32::try_from(bytes).map_err(|_| ApiError::TooMuchInput)?;
        let acquiring = async {
            let user = self.by_user.acquire_many(user, count).await?;
            // An error means that the semaphore is closed, which it never is.
            let all = Arc::clone(&self.all).acquire_many_owned(count).await.ok()?;
            Some(InputPermit {
                _user: user,
                _all: all,
            })
        };
        timeout(PERMIT_TIMEOUT, acquiring)
            .await
            .ok()
            .flatten()
            .ok_or(ApiError::TooMuchInput)
    }

    /// Returns the right to hold bytes, if it is available now.
    ///
    /// # Errors
    /// [`ApiError::TooMuchInput`].
    pub(crate) fn try_acquire(
        &self,
        user: Option<UserId>,
        bytes: usize,
    ) -> Result<InputPermit, ApiError> {
        let permit = || {
            let count = u32::try_from(bytes).ok()?;
            let user = self.by_user.try_acquire_many(user, count)?;
            Some(InputPermit {
                _user: user,
                _all: Arc::clone(&self.all).try_acquire_many_owned(count).ok()?,
            })
        };
        permit().ok_or(ApiError::TooMuchInput)
    }
}

/// The memory of the body of a request, which is released when the last clone is dropped. An
/// extension of requests with a caller, who keeps a clone until the handler has returned: what is
/// parsed from a body has about its length.
#[derive(Clone)]
pub(crate) struct BodyMemory {
    memory: Arc<InputMemory>,
    user: Option<UserId>,
    /// A blocking mutex, because it is never held across an await.
    held: Arc<Mutex<HeldBytes>>,
}

struct HeldBytes {
    count: usize,
    permits: Vec<InputPermit>,
}

impl BodyMemory {
    pub(crate) fn new(memory: Arc<InputMemory>, user: Option<UserId>) -> Self {
        let held = HeldBytes {
            count: FREE_BYTES,
            permits: Vec::new(),
        };
        Self {
            memory,
            user,
            held: Arc::new(Mutex::new(held)),
        }
    }

    /// Waits until this number of bytes of the body may be held.
    ///
    /// # Errors
    /// [`ApiError::TooMuchInput`].
    pub(crate) async fn hold(&self, bytes: usize) -> Result<(), ApiError> {
        let missing = bytes
            .saturating_sub(self.held().count)
            .next_multiple_of(STEP_BYTES);
        if missing > 0 {
            let permit = self.memory.acquire(self.user.clone(), missing).await?;
            let mut held = self.held();
            held.count += missing;
            held.permits.push(permit);
        }
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, HeldBytes> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Option<UserId> {
        Some(name.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn body_waits_while_its_user_holds_too_much() {
        let memory = Arc::new(InputMemory::default());
        let first = BodyMemory::new(Arc::clone(&memory), user("ada"));
        first.hold(MAX_BYTES_PER_USER).await.unwrap();
        // Already held.
        first.hold(1 << 20).await.unwrap();
        let next = BodyMemory::new(Arc::clone(&memory), user("ada"));
        next.hold(FREE_BYTES).await.unwrap();
        assert!(matches!(
            next.hold(FREE_BYTES + STEP_BYTES + 1).await,
            Err(ApiError::TooMuchInput)
        ));
        let other = BodyMemory::new(Arc::clone(&memory), user("ben"));
        other.hold(MAX_BYTES_PER_USER).await.unwrap();
        let (held, ()) = tokio::join!(next.hold(MAX_BYTES_PER_USER), async { drop(first) });
        held.unwrap();
    }

    #[test]
    fn users_share_the_memory_of_all() {
        let memory = InputMemory::default();
        let users = MAX_BYTES / MAX_BYTES_PER_USER;
        let acquire =
            |name: usize| memory.try_acquire(user(&format!("u{name}")), MAX_BYTES_PER_USER);
        let mut held: Vec<_> = (0..users).map(|name| acquire(name).unwrap()).collect();
        assert!(acquire(users).is_err());
        held.pop();
        assert!(acquire(users).is_ok());
    }
}
