//! Leases: the right of one host to append to a conversation, until it no longer renews it.
//!
//! A lease has a generation, which increases with every acquisition. An append is rejected in its
//! own transaction unless its host holds the current generation and the lease has not expired by
//! the database's clock. So a host that was suspended and taken over writes nothing when it
//! continues.
//!
//! One task renews all leases of the process, reports lost ones, and releases dropped ones. It ends
//! when the store is closed or dropped.

mod held;
mod keeper;
mod table;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use engine::events::StoreError;
use protocol::ConversationId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::database::{Database, DatabaseError};
use crate::failure::failed;
pub(super) use held::Fence;
use held::HeldLeases;

const ACQUIRE: &str = "acquire a lease";
const LIST: &str = "list leases";

/// Times of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTiming {
    /// Time until a lease expires that is not renewed, by the database's clock.
    pub duration: Duration,
    /// Interval between renewals.
    pub renewal_interval: Duration,
    /// How long before its expiry a lease counts as lost in its own process, by the local clock.
    pub safety_margin: Duration,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(45),
            renewal_interval: Duration::from_secs(15),
            safety_margin: Duration::from_secs(5),
        }
    }
}

impl LeaseTiming {
    /// Returns when a lease counts as lost whose acquisition or renewal was requested at
    /// `requested`. The database grants the duration later, so its expiry is later too.
    fn valid_until(&self, requested: Instant) -> Instant {
        requested + self.duration.saturating_sub(self.safety_margin)
    }
}

/// This host: the store in this process.
#[derive(Debug, Clone)]
pub(super) struct LeaseHost {
    pub(super) id: Uuid,
    /// Where other hosts reach it.
    pub(super) address: Option<String>,
}

/// The leases of a store.
#[derive(Clone)]
pub struct Leases {
    database: Arc<Database>,
    host: LeaseHost,
    timing: LeaseTiming,
    held: Arc<HeldLeases>,
    tasks: TaskTracker,
}

impl Leases {
    /// Starts the task that keeps the leases, until `stop`.
    pub(super) fn start(
        database: Arc<Database>,
        host: LeaseHost,
        timing: LeaseTiming,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let leases = Self {
            database,
            host,
            timing,
            held: Arc::default(),
            tasks: tasks.clone(),
        };
        tasks.spawn(keeper::run(leases.clone(), stop));
        leases
    }

    /// Returns the id of this host: of this store in this process.
    pub fn host(&self) -> Uuid {
        self.host.id
    }

    /// Acquires the lease of a conversation, which need not exist yet. `None` if another host, or
    /// another task of this process, holds it. If the future is dropped, the lease is released.
    ///
    /// # Errors
    /// [`StoreError::Storage`] if the database is unavailable.
    pub async fn acquire(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<Lease>, StoreError> {
        if !self.held.reserve(conversation) {
            return Ok(None);
        }
        // A task of its own, so that it ends in a lease or a cancelled reservation even if the
        // caller is dropped.
        let acquiring = self
            .tasks
            .spawn(self.clone().acquire_reserved(conversation.clone()));
        let acquired = acquiring.await.map_err(|error| failed(ACQUIRE, error))?;
        acquired.map_err(|error| failed(ACQUIRE, error))
    }

    async fn acquire_reserved(
        self,
        conversation: ConversationId,
    ) -> Result<Option<Lease>, DatabaseError> {
        let requested = Instant::now();
        let acquired = table::acquire(
            &self.database,
            &self.host,
            &conversation,
            self.timing.duration,
        )
        .await;
        let Ok(Some((generation, is_takeover))) = acquired else {
            self.held.cancel(&conversation);
            return acquired.map(|_| None);
        };
        tracing::info!(%conversation, generation, host = %self.host.id, "acquired a lease");
        let key = (conversation.clone(), generation);
        let lost = self.held.hold(key, self.timing.valid_until(requested));
        Ok(Some(Lease {
            conversation,
            generation,
            is_takeover,
            lost,
            held: Arc::clone(&self.held),
        }))
    }

    /// Waits until a dropped lease is released in the database, or its release has failed: it
    /// expires then. Does not return if the store was closed before.
    pub async fn wait_until_released(&self, conversation: &ConversationId) {
        self.held.wait_until_released(conversation).await;
    }

    /// Returns the address of another host that has leased a conversation. `None` if no other host
    /// has, or it has no address.
    ///
    /// # Errors
    /// [`StoreError::Storage`] if the database is unavailable.
    pub async fn other_holder(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<String>, StoreError> {
        let holder = table::other_holder(&self.database, self.host.id, conversation).await;
        holder.map_err(|error| failed(LIST, error))
    }

    /// Returns the conversations that any host has leased.
    ///
    /// # Errors
    /// [`StoreError::Storage`] if the database is unavailable.
    pub async fn held(&self) -> Result<BTreeSet<ConversationId>, StoreError> {
        table::held(&self.database)
            .await
            .map_err(|error| failed(LIST, error))
    }

    /// Returns the conversations whose lease has expired without a release, because their host
    /// died. Another host can acquire their leases and resume them.
    ///
    /// # Errors
    /// [`StoreError::Storage`] if the database is unavailable.
    pub async fn expired(&self) -> Result<BTreeSet<ConversationId>, StoreError> {
        table::expired(&self.database)
            .await
            .map_err(|error| failed(LIST, error))
    }

    /// Returns how an append to the conversation is fenced.
    pub(super) fn fence(&self, conversation: &ConversationId) -> Fence {
        self.held.fence(conversation)
    }

    /// Reports that the database no longer accepts this generation.
    pub(super) fn report_lost(&self, conversation: &ConversationId, generation: i64) {
        self.held.lose(&(conversation.clone(), generation));
    }
}

/// The exclusive right to append to one conversation. Released when it is dropped: within moments
/// ([`wait_until_released`](Leases::wait_until_released)), or by its expiry if the database is
/// unavailable then.
pub struct Lease {
    conversation: ConversationId,
    generation: i64,
    is_takeover: bool,
    lost: CancellationToken,
    held: Arc<HeldLeases>,
}

impl Lease {
    /// Returns the conversation.
    pub fn conversation(&self) -> &ConversationId {
        &self.conversation
    }

    /// Returns the generation. Increases with every acquisition.
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// Whether it takes the place of a lease that was not released: its holder has ended, or cannot
    /// reach the database.
    pub fn is_takeover(&self) -> bool {
        self.is_takeover
    }

    /// Returns the token that is cancelled when the lease is lost: another host may hold it soon,
    /// and appends fail.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.held
            .release((self.conversation.clone(), self.generation));
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "lease {} of conversation {}",
            self.generation, self.conversation
        )
    }
}
