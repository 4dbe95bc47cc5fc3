//! Which sandboxes are lent to whom, who speaks to them, and how many there may be.
//!
//! The truth is the provider's list; whose a sandbox is stands in its name, so that a host that starts again knows it.
//! Kept here is only what no list tells: what is being started or removed, and when it was last spoken to. Locked for a
//! moment, never across a wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::sandbox::{SandboxState, SandboxSummary};
use protocol::{ConversationId, SandboxId};
use tokio::time::Instant;

use super::error::HostError;
use super::keys::KeyName;
use crate::placement::sandbox_id_of;

/// How many sandboxes there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quotas {
    pub(super) of_all: usize,
    pub(super) of_key: usize,
}

/// How many streams and requests to one sandbox may be open.
const USES_AT_ONCE: usize = 64;

/// Whose sandbox one is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lending {
    pub(super) key: KeyName,
    pub(super) session: String,
}

impl Lending {
    /// The lending that a conversation's name tells; nothing when it is no name of ours.
    fn of(conversation: &ConversationId) -> Option<Self> {
        let (key, session) = conversation.as_str().split_once('.')?;
        Some(Self { key: KeyName::of(key)?, session: session.to_owned() })
    }

    /// The conversation that the sandbox is placed for. No key's name has a dot, so that no two keys share one.
    pub(super) fn conversation(&self) -> Result<ConversationId, HostError> {
        let name = format!("{}.{}", self.key.as_str(), self.session);
        name.parse().map_err(|error| HostError::Invalid(format!("the session_id makes no name: {error}")))
    }

    pub(super) fn sandbox(&self) -> Result<SandboxId, HostError> {
        sandbox_id_of(&self.conversation()?).map_err(|error| HostError::Invalid(error.to_string()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Lent,
    Leaving,
}

struct Entry {
    lending: Lending,
    phase: Phase,
    /// Each use holds one more.
    uses: Arc<()>,
    last_used: Instant,
}

/// Clones share it.
#[derive(Clone)]
pub(super) struct Register {
    entries: Arc<Mutex<HashMap<SandboxId, Entry>>>,
    quotas: Quotas,
}

/// A place for a sandbox that is being started; given back unless it is lent in the end.
pub(super) struct Reservation {
    register: Register,
    sandbox: SandboxId,
    is_lent: bool,
}

/// Somebody speaks to a sandbox, until this is dropped.
pub(super) struct Use {
    register: Register,
    sandbox: SandboxId,
    of: Arc<()>,
}

/// A sandbox that is being removed; lent again if that does not come about.
pub(super) struct Removal {
    register: Register,
    sandbox: SandboxId,
    is_done: bool,
}

impl Register {
    pub(super) fn new(quotas: Quotas) -> Self {
        Self { entries: Arc::default(), quotas }
    }

    /// Takes a place. The sandbox that the session has already gives its own.
    pub(super) fn reserve(&self, lending: &Lending) -> Result<Reservation, HostError> {
        let sandbox = lending.sandbox()?;
        let mut entries = self.lock();
        match entries.get(&sandbox) {
            Some(entry) if entry.phase != Phase::Lent => return Err(HostError::InMotion),
            Some(_) => {}
            None => {
                if entries.values().filter(|entry| entry.lending.key == lending.key).count()
                    >= self.quotas.of_key
                {
                    return Err(HostError::QuotaOfKey(self.quotas.of_key));
                }
                if entries.len() >= self.quotas.of_all {
                    return Err(HostError::QuotaOfAll(self.quotas.of_all));
                }
            }
        }
        entries.insert(sandbox.clone(), Entry::new(lending.clone(), Phase::Starting));
        drop(entries);
        Ok(Reservation { register: self.clone(), sandbox, is_lent: false })
    }

    /// Speaks to a sandbox.
    pub(super) fn begin_use(&self, sandbox: &SandboxId) -> Result<Use, HostError> {
        let mut entries = self.lock();
        let entry = entries.get_mut(sandbox).ok_or(HostError::NoSuchSandbox)?;
        match entry.phase {
            Phase::Starting => return Err(HostError::InMotion),
            Phase::Leaving => return Err(HostError::Lost("it is being removed".into())),
            Phase::Lent if entry.uses() >= USES_AT_ONCE => return Err(HostError::Busy(USES_AT_ONCE)),
            Phase::Lent => {}
        }
        Ok(Use { register: self.clone(), sandbox: sandbox.clone(), of: Arc::clone(&entry.uses) })
    }

    /// Lets nobody speak to it any more.
    pub(super) fn begin_removal(&self, sandbox: &SandboxId) -> Result<Removal, HostError> {
        let mut entries = self.lock();
        let entry = entries.get_mut(sandbox).ok_or(HostError::NoSuchSandbox)?;
        if entry.phase != Phase::Lent {
            return Err(HostError::InMotion);
        }
        entry.phase = Phase::Leaving;
        Ok(Removal { register: self.clone(), sandbox: sandbox.clone(), is_done: false })
    }

    /// The key's own sandbox; nothing also when it is another key's.
    pub(super) fn lending_of(&self, key: &KeyName, sandbox: &SandboxId) -> Option<Lending> {
        let entries = self.lock();
        let entry = entries.get(sandbox)?;
        (entry.lending.key == *key).then(|| entry.lending.clone())
    }

    /// What is placed of the key's own: with its lending, in the list's order.
    pub(super) fn of_key(key: &KeyName, placed: Vec<SandboxSummary>) -> Vec<(Lending, SandboxSummary)> {
        let own = |placed: SandboxSummary| {
            let lending = Lending::of(placed.conversation.as_ref()?)?;
            (lending.key == *key).then_some((lending, placed))
        };
        placed.into_iter().filter_map(own).collect()
    }

    /// Whether it is being started.
    pub(super) fn is_starting(&self, sandbox: &SandboxId) -> bool {
        self.lock().get(sandbox).is_some_and(|entry| entry.phase == Phase::Starting)
    }

    /// Takes up what is placed and not known: what this host lent before it was ended. It counts as just spoken to.
    pub(super) fn adopt(&self, placed: &[SandboxSummary]) -> usize {
        let mut entries = self.lock();
        let known = entries.len();
        for found in placed {
            if let Some(lending) = found.conversation.as_ref().and_then(Lending::of) {
                entries.entry(found.sandbox.clone()).or_insert_with(|| Entry::new(lending, Phase::Lent));
            }
        }
        entries.len() - known
    }

    /// Forgets what was there and is no longer in the list. What came meanwhile is not in the list yet.
    pub(super) fn forget_gone(&self, placed: &[SandboxSummary], listed_at: Instant) {
        let is_placed = |sandbox: &SandboxId| placed.iter().any(|found| found.sandbox == *sandbox);
        self.lock().retain(|sandbox, entry| {
            entry.phase != Phase::Lent || entry.last_used >= listed_at || is_placed(sandbox)
        });
    }

    /// Begins the removal of one that nobody spoke to for so long, or whose server has ended. One that is paused waits for
    /// its owner, and one that is not known for the next look.
    pub(super) fn begin_removal_if_unused(
        &self,
        placed: &SandboxSummary,
        idle_timeout: Duration,
    ) -> Option<Removal> {
        let is_unused = {
            let entries = self.lock();
            let entry = entries.get(&placed.sandbox)?;
            let is_idle = entry.last_used.elapsed() >= idle_timeout;
            entry.uses() == 0
                && match placed.condition {
                    SandboxState::Running => is_idle,
                    SandboxState::Paused => false,
                    SandboxState::Ended => true,
                }
        };
        if is_unused { self.begin_removal(&placed.sandbox).ok() } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(lending: Lending, phase: Phase) -> Self {
        Self { lending, phase, uses: Arc::default(), last_used: Instant::now() }
    }

    fn uses(&self) -> usize {
        Arc::strong_count(&self.uses) - 1
    }
}

impl Reservation {
    pub(super) fn lend(mut self) {
        self.is_lent = true;
        let mut entries = self.register.lock();
        if let Some(entry) = entries.get_mut(&self.sandbox) {
            entry.phase = Phase::Lent;
            entry.last_used = Instant::now();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_lent {
            self.register.lock().remove(&self.sandbox);
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if let Some(entry) = self.register.lock().get_mut(&self.sandbox)
            && Arc::ptr_eq(&entry.uses, &self.of)
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
        self.register.lock().remove(&self.sandbox);
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        if !self.is_done
            && let Some(entry) = self.register.lock().get_mut(&self.sandbox)
        {
            entry.phase = Phase::Lent;
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
    use super::{Lending, Quotas, Register};

    const IDLE: Duration = Duration::from_secs(60);

    fn lending(key: &str, session: &str) -> Lending {
        Lending { key: KeyName::of(key).unwrap(), session: session.into() }
    }

    fn placed(lending: &Lending, condition: SandboxState) -> SandboxSummary {
        SandboxSummary {
            sandbox: lending.sandbox().unwrap(),
            conversation: Some(lending.conversation().unwrap()),
            lifetime: Lifetime::Conversation,
            image: None,
            condition,
            created_at: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_counted_for_each_key_and_for_all_and_given_back() {
        let register = Register::new(Quotas { of_all: 3, of_key: 2 });
        let [a1, a2, a3, b1, b2] = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("b", "2")]
            .map(|(key, session)| lending(key, session));
        register.reserve(&a1).unwrap().lend();
        let starting = register.reserve(&a2).unwrap();
        assert!(matches!(register.reserve(&a3), Err(HostError::QuotaOfKey(2))));
        assert!(matches!(register.reserve(&a2), Err(HostError::InMotion)));
        register.reserve(&b1).unwrap().lend();
        assert!(matches!(register.reserve(&b2), Err(HostError::QuotaOfAll(3))));
        drop(starting);
        register.reserve(&b2).unwrap().lend();
        // Its own place is enough for the same session.
        register.reserve(&a1).unwrap().lend();

        let sandbox = a1.sandbox().unwrap();
        assert_eq!(register.lending_of(&a1.key, &sandbox), Some(a1.clone()));
        assert_eq!(register.lending_of(&b1.key, &sandbox), None);
        register.begin_removal(&sandbox).unwrap().done();
        assert!(matches!(register.begin_use(&sandbox), Err(HostError::NoSuchSandbox)));
    }

    #[tokio::test(start_paused = true)]
    async fn sandbox_expires_when_idle_unless_busy_paused_or_unknown() {
        let register = Register::new(Quotas { of_all: 9, of_key: 9 });
        let (used, paused, ended, idle) =
            (lending("a", "used"), lending("a", "p"), lending("a", "e"), lending("b", "i"));
        let found = [
            placed(&used, SandboxState::Running),
            placed(&paused, SandboxState::Paused),
            placed(&ended, SandboxState::Ended),
            placed(&idle, SandboxState::Running),
        ];
        assert_eq!(register.adopt(&found), 4);
        assert_eq!(register.adopt(&found), 0);
        let use_of = register.begin_use(&used.sandbox().unwrap()).unwrap();
        let leaves = |of: &Lending, condition| {
            register.begin_removal_if_unused(&placed(of, condition), IDLE).is_some()
        };
        assert!(!leaves(&idle, SandboxState::Running));
        assert!(leaves(&ended, SandboxState::Ended));
        advance(IDLE).await;
        assert!(!leaves(&used, SandboxState::Running) && !leaves(&paused, SandboxState::Paused));
        assert!(!leaves(&lending("b", "unknown"), SandboxState::Running));
        let leaving = register.begin_removal_if_unused(&placed(&idle, SandboxState::Running), IDLE).unwrap();
        assert!(matches!(register.begin_use(&idle.sandbox().unwrap()), Err(HostError::Lost(_))));
        drop(leaving); // could not be removed
        register.begin_use(&idle.sandbox().unwrap()).unwrap();

        drop(use_of);
        assert!(!leaves(&used, SandboxState::Running));
        advance(IDLE).await;
        assert!(leaves(&used, SandboxState::Running));
    }
}
