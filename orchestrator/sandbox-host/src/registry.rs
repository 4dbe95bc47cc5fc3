//! The leased sandboxes: their owners, their uses, and the quotas.
//!
//! The provider's list is authoritative, and the owner of a sandbox is part of its name, so that a
//! restarted host knows both. The registry adds only what no list contains: which sandboxes are
//! being started or removed, and when they were last used. The lock is never held across an await.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::sandbox::{SandboxState, SandboxSummary};
use protocol::{ConversationId, SandboxId};
use sandbox_client::provisioning::sandbox_id_of;
use tokio::time::Instant;

use super::error::HostError;
use super::keys::KeyName;

/// Maximum numbers of sandboxes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quotas {
    pub(super) total: usize,
    pub(super) per_key: usize,
}

/// Maximum number of concurrent streams and requests to one sandbox.
const MAX_CONCURRENT_USES: usize = 64;

/// The owner of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) key: KeyName,
    pub(super) session: String,
}

impl Lease {
    /// Parses the lease from a conversation id. `None` if it was not created by this host.
    pub(super) fn from_conversation(conversation: &ConversationId) -> Option<Self> {
        let (key, session) = conversation.as_str().split_once('.')?;
        Some(Self {
            key: KeyName::parse(key)?,
            session: session.to_owned(),
        })
    }

    /// Returns the conversation id of the sandbox. Names of keys contain no dot, so that it is
    /// unique to the key.
    pub(super) fn conversation(&self) -> Result<ConversationId, HostError> {
        let name = format!("{}.{}", self.key.as_str(), self.session);
        name.parse().map_err(|error| {
            HostError::Invalid(format!("the session_id is not allowed in a name: {error}"))
        })
    }

    pub(super) fn sandbox(&self) -> Result<SandboxId, HostError> {
        sandbox_id_of(&self.conversation()?).map_err(|error| HostError::Invalid(error.to_string()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Leased,
    Removing,
}

struct Entry {
    lease: Lease,
    phase: Phase,
    /// Each use holds one more reference.
    uses: Arc<()>,
    last_used: Instant,
}

/// Clones share the entries.
#[derive(Clone)]
pub(super) struct SandboxRegistry {
    entries: Arc<Mutex<HashMap<SandboxId, Entry>>>,
    quotas: Quotas,
}

/// The quota of a sandbox that is being started. Released on drop, unless the sandbox is leased.
pub(super) struct Reservation {
    registry: SandboxRegistry,
    sandbox: SandboxId,
    /// The existing sandbox of the session. It may still run if the start fails, and then keeps
    /// the quota: the next sweep finds out.
    previous: Option<Entry>,
    is_leased: bool,
}

/// A request or stream to a sandbox, until this is dropped.
pub(super) struct SandboxUse {
    registry: SandboxRegistry,
    sandbox: SandboxId,
    uses: Arc<()>,
}

/// A sandbox that is being removed. Leased again on drop, unless it was removed.
pub(super) struct Removal {
    registry: SandboxRegistry,
    sandbox: SandboxId,
    is_done: bool,
}

impl SandboxRegistry {
    pub(super) fn new(quotas: Quotas) -> Self {
        Self {
            entries: Arc::default(),
            quotas,
        }
    }

    /// Reserves quota for a sandbox. An existing sandbox of the session passes its quota on.
    pub(super) fn reserve(&self, lease: &Lease) -> Result<Reservation, HostError> {
        let sandbox = lease.sandbox()?;
        let mut entries = self.lock();
        match entries.get(&sandbox) {
            Some(entry) if entry.phase != Phase::Leased => return Err(HostError::InTransition),
            Some(_) => {}
            None => {
                if entries
                    .values()
                    .filter(|entry| entry.lease.key == lease.key)
                    .count()
                    >= self.quotas.per_key
                {
                    return Err(HostError::QuotaOfKey(self.quotas.per_key));
                }
                if entries.len() >= self.quotas.total {
                    return Err(HostError::QuotaOfAll(self.quotas.total));
                }
            }
        }
        let previous = entries.insert(sandbox.clone(), Entry::new(lease.clone(), Phase::Starting));
        drop(entries);
        Ok(Reservation {
            registry: self.clone(),
            sandbox,
            previous,
            is_leased: false,
        })
    }

    /// Starts a request or stream to a sandbox.
    pub(super) fn start_use(&self, sandbox: &SandboxId) -> Result<SandboxUse, HostError> {
        let mut entries = self.lock();
        let entry = entries.get_mut(sandbox).ok_or(HostError::NoSuchSandbox)?;
        match entry.phase {
            Phase::Starting => return Err(HostError::InTransition),
            Phase::Removing => return Err(HostError::Lost("it is being removed".into())),
            Phase::Leased if entry.uses() >= MAX_CONCURRENT_USES => {
                return Err(HostError::Busy(MAX_CONCURRENT_USES));
            }
            Phase::Leased => {}
        }
        Ok(SandboxUse {
            registry: self.clone(),
            sandbox: sandbox.clone(),
            uses: Arc::clone(&entry.uses),
        })
    }

    /// Starts the removal of a sandbox, and rejects further uses.
    pub(super) fn start_removal(&self, sandbox: &SandboxId) -> Result<Removal, HostError> {
        let mut entries = self.lock();
        let entry = entries.get_mut(sandbox).ok_or(HostError::NoSuchSandbox)?;
        if entry.phase != Phase::Leased {
            return Err(HostError::InTransition);
        }
        entry.phase = Phase::Removing;
        Ok(Removal {
            registry: self.clone(),
            sandbox: sandbox.clone(),
            is_done: false,
        })
    }

    /// Returns the lease of a sandbox. `None` if it belongs to another key.
    pub(super) fn find_lease(&self, key: &KeyName, sandbox: &SandboxId) -> Option<Lease> {
        let entries = self.lock();
        let entry = entries.get(sandbox)?;
        (entry.lease.key == *key).then(|| entry.lease.clone())
    }

    /// Filters a list by the owner.
    pub(super) fn filter_by_key(
        key: &KeyName,
        list: Vec<SandboxSummary>,
    ) -> Vec<(Lease, SandboxSummary)> {
        let own = |summary: SandboxSummary| {
            let lease = Lease::from_conversation(summary.conversation.as_ref()?)?;
            (lease.key == *key).then_some((lease, summary))
        };
        list.into_iter().filter_map(own).collect()
    }

    pub(super) fn is_starting(&self, sandbox: &SandboxId) -> bool {
        self.lock()
            .get(sandbox)
            .is_some_and(|entry| entry.phase == Phase::Starting)
    }

    /// Adds unknown sandboxes, which this host leased before a restart. They count as just used.
    pub(super) fn adopt(&self, list: &[SandboxSummary]) -> usize {
        let mut entries = self.lock();
        let known = entries.len();
        for summary in list {
            if let Some(lease) = summary
                .conversation
                .as_ref()
                .and_then(Lease::from_conversation)
            {
                entries
                    .entry(summary.sandbox.clone())
                    .or_insert_with(|| Entry::new(lease, Phase::Leased));
            }
        }
        entries.len() - known
    }

    /// Removes the entries of sandboxes that are not in a list. Newer ones than the list are kept.
    pub(super) fn remove_missing(&self, list: &[SandboxSummary], listed_at: Instant) {
        let is_listed =
            |sandbox: &SandboxId| list.iter().any(|summary| summary.sandbox == *sandbox);
        self.lock().retain(|sandbox, entry| {
            entry.phase != Phase::Leased || entry.last_used >= listed_at || is_listed(sandbox)
        });
    }

    /// Starts the removal of a sandbox that is idle or has ended, or whose time is over. `None` if
    /// it is in use, paused or unknown.
    pub(super) fn start_removal_if_idle(
        &self,
        summary: &SandboxSummary,
        idle_timeout: Duration,
    ) -> Option<Removal> {
        let is_idle_or_ended = {
            let entries = self.lock();
            let entry = entries.get(&summary.sandbox)?;
            let is_idle = entry.last_used.elapsed() >= idle_timeout;
            entry.uses() == 0
                && match summary.condition {
                    SandboxState::Running => is_idle,
                    SandboxState::Paused => false,
                    SandboxState::Ended => true,
                }
        };
        if is_idle_or_ended || summary.lifetime.is_expired() {
            self.start_removal(&summary.sandbox).ok()
        } else {
            None
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(lease: Lease, phase: Phase) -> Self {
        Self {
            lease,
            phase,
            uses: Arc::default(),
            last_used: Instant::now(),
        }
    }

    fn uses(&self) -> usize {
        Arc::strong_count(&self.uses) - 1
    }
}

impl Reservation {
    pub(super) fn lease(mut self) {
        self.is_leased = true;
        let mut entries = self.registry.lock();
        if let Some(entry) = entries.get_mut(&self.sandbox) {
            entry.phase = Phase::Leased;
            entry.last_used = Instant::now();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.is_leased {
            return;
        }
        let mut entries = self.registry.lock();
        match self.previous.take() {
            Some(previous) => {
                let last_used = Instant::now();
                let previous = Entry {
                    last_used,
                    ..previous
                };
                entries.insert(self.sandbox.clone(), previous)
            }
            None => entries.remove(&self.sandbox),
        };
    }
}

impl Drop for SandboxUse {
    fn drop(&mut self) {
        if let Some(entry) = self.registry.lock().get_mut(&self.sandbox)
            && Arc::ptr_eq(&entry.uses, &self.uses)
        {
            entry.last_used = Instant::now();
        }
    }
}

impl Removal {
    pub(super) fn sandbox(&self) -> &SandboxId {
        &self.sandbox
    }

    pub(super) fn done(mut self) {
        self.is_done = true;
        self.registry.lock().remove(&self.sandbox);
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        if !self.is_done
            && let Some(entry) = self.registry.lock().get_mut(&self.sandbox)
        {
            entry.phase = Phase::Leased;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::sandbox::{Lifetime, SandboxState, SandboxSummary};
    use tokio::time::advance;

    use super::super::error::HostError;
    use super::super::keys::KeyName;
    use super::{Lease, Quotas, SandboxRegistry};

    const IDLE: Duration = Duration::from_secs(60);

    fn lease(key: &str, session: &str) -> Lease {
        Lease {
            key: KeyName::parse(key).unwrap(),
            session: session.into(),
        }
    }

    fn summary(lease: &Lease, condition: SandboxState) -> SandboxSummary {
        SandboxSummary {
            sandbox: lease.sandbox().unwrap(),
            conversation: Some(lease.conversation().unwrap()),
            lifetime: Lifetime::Conversation,
            image: None,
            condition,
            created_at: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn quotas_apply_per_key_and_in_total_and_are_released() {
        let registry = SandboxRegistry::new(Quotas {
            total: 3,
            per_key: 2,
        });
        let [a1, a2, a3, b1, b2] = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("b", "2")]
            .map(|(key, session)| lease(key, session));
        registry.reserve(&a1).unwrap().lease();
        let starting = registry.reserve(&a2).unwrap();
        assert!(matches!(
            registry.reserve(&a3),
            Err(HostError::QuotaOfKey(2))
        ));
        assert!(matches!(
            registry.reserve(&a2),
            Err(HostError::InTransition)
        ));
        registry.reserve(&b1).unwrap().lease();
        assert!(matches!(
            registry.reserve(&b2),
            Err(HostError::QuotaOfAll(3))
        ));
        drop(starting);
        registry.reserve(&b2).unwrap().lease();
        // A session with a sandbox needs no further quota.
        registry.reserve(&a1).unwrap().lease();

        let sandbox = a1.sandbox().unwrap();
        assert_eq!(registry.find_lease(&a1.key, &sandbox), Some(a1.clone()));
        assert_eq!(registry.find_lease(&b1.key, &sandbox), None);
        registry.start_removal(&sandbox).unwrap().done();
        assert!(matches!(
            registry.start_use(&sandbox),
            Err(HostError::NoSuchSandbox)
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn existing_sandbox_keeps_quota_and_uses_when_its_restart_fails() {
        let registry = SandboxRegistry::new(Quotas {
            total: 1,
            per_key: 1,
        });
        let existing = lease("a", "1");
        let sandbox = existing.sandbox().unwrap();
        registry.reserve(&existing).unwrap().lease();
        let stream = registry.start_use(&sandbox).unwrap();
        advance(IDLE).await;
        drop(registry.reserve(&existing).unwrap());
        let running = summary(&existing, SandboxState::Running);
        assert!(registry.start_removal_if_idle(&running, IDLE).is_none());
        assert!(matches!(
            registry.reserve(&lease("a", "2")),
            Err(HostError::QuotaOfKey(1))
        ));
        advance(IDLE).await;
        assert!(registry.start_removal_if_idle(&running, IDLE).is_none());
        drop(stream);
        advance(IDLE).await;
        assert!(registry.start_removal_if_idle(&running, IDLE).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn sandbox_expires_when_idle_unless_busy_paused_or_unknown() {
        let registry = SandboxRegistry::new(Quotas {
            total: 9,
            per_key: 9,
        });
        let (used, paused, ended, idle) = (
            lease("a", "used"),
            lease("a", "p"),
            lease("a", "e"),
            lease("b", "i"),
        );
        let found = [
            summary(&used, SandboxState::Running),
            summary(&paused, SandboxState::Paused),
            summary(&ended, SandboxState::Ended),
            summary(&idle, SandboxState::Running),
        ];
        assert_eq!(registry.adopt(&found), 4);
        assert_eq!(registry.adopt(&found), 0);
        let sandbox_use = registry.start_use(&used.sandbox().unwrap()).unwrap();
        let is_removed = |lease: &Lease, condition| {
            registry
                .start_removal_if_idle(&summary(lease, condition), IDLE)
                .is_some()
        };
        assert!(!is_removed(&idle, SandboxState::Running));
        assert!(is_removed(&ended, SandboxState::Ended));
        advance(IDLE).await;
        assert!(
            !is_removed(&used, SandboxState::Running) && !is_removed(&paused, SandboxState::Paused)
        );
        assert!(!is_removed(&lease("b", "unknown"), SandboxState::Running));
        let removal = registry
            .start_removal_if_idle(&summary(&idle, SandboxState::Running), IDLE)
            .unwrap();
        assert!(matches!(
            registry.start_use(&idle.sandbox().unwrap()),
            Err(HostError::Lost(_))
        ));
        drop(removal); // could not be removed
        registry.start_use(&idle.sandbox().unwrap()).unwrap();

        drop(sandbox_use);
        assert!(!is_removed(&used, SandboxState::Running));
        advance(IDLE).await;
        assert!(is_removed(&used, SandboxState::Running));
    }
}
