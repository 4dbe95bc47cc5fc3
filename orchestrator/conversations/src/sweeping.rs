//! Removes sandboxes of killed processes in the background.
//!
//! Sweeps at the start or after a delay, and then every [`SWEEP_INTERVAL`]. A sandbox is in use
//! while a process holds the lock of its conversation. The sandbox of an interrupted conversation
//! is kept for a delay after the last event, so that the conversation can be resumed in it.
//! Failures are logged, and the next sweep retries.

use std::collections::HashSet;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::clock;
use engine::conversation::{SandboxDisposition, read_state};
use engine::errors::format_chain;
use engine::events::{ConversationSummary, EventStore};
use engine::sandbox::{SandboxProvider, SandboxSummary, sweep, sweep_snapshots};
use protocol::{AgentState, ConversationId, SandboxId, Timestamp};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::host::{ConversationLock, ConversationLocks};

/// Time between two sweeps of a long-running process.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

/// How long [`Sweep::finish`] waits for a running sweep.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(2);

/// Which sandboxes a sweep keeps.
#[derive(Debug, Clone, Copy)]
pub struct SandboxRetention {
    /// What happens to a sandbox when its conversation is closed. A sandbox that is not removed
    /// then is never swept.
    pub disposition: SandboxDisposition,
    /// How long the sandbox of an interrupted conversation is kept after the last event.
    pub close_delay: Duration,
    /// Whether the process that pre-warmed this sandbox, which has no conversation yet, still runs.
    pub is_warm_in_use: fn(&SandboxSummary) -> bool,
}

/// Background sweeps of one provider's sandboxes. Dropping it aborts them.
pub struct Sweep {
    task: AbortOnDropHandle<()>,
    shutdown: CancellationToken,
}

impl Sweep {
    /// Starts sweeping after a delay. The store is opened only once there are sandboxes that a
    /// sweep could remove.
    pub fn start<F, E>(
        provider: Arc<dyn SandboxProvider>,
        locks: Arc<dyn ConversationLocks>,
        retention: SandboxRetention,
        delay: Duration,
        open_store: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Arc<dyn EventStore>, E>> + Send,
        E: Into<SweepError>,
    {
        let shutdown = CancellationToken::new();
        let requested = shutdown.clone();
        let task = tokio::spawn(async move {
            let mut delay = delay;
            loop {
                if !delay.is_zero() && timeout(delay, requested.cancelled()).await.is_ok() {
                    return;
                }
                if let Err(error) =
                    sweep_once(provider.as_ref(), locks.as_ref(), retention, &open_store).await
                {
                    tracing::debug!(
                        error = format_chain(error.as_ref()),
                        "cannot sweep sandboxes"
                    );
                }
                delay = SWEEP_INTERVAL;
            }
        });
        Self {
            task: AbortOnDropHandle::new(task),
            shutdown,
        }
    }

    /// Stops sweeping. Waits up to 2 seconds for a running sweep.
    pub async fn finish(self) {
        self.shutdown.cancel();
        let _ = timeout(SWEEP_TIMEOUT, self.task).await;
    }

    /// Stops sweeping without waiting for a running sweep, which the next process repeats.
    pub async fn abort(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

type SweepError = Box<dyn Error + Send + Sync>;

async fn sweep_once<F, E>(
    provider: &dyn SandboxProvider,
    locks: &dyn ConversationLocks,
    retention: SandboxRetention,
    open_store: &(impl Fn() -> F + Sync),
) -> Result<(), SweepError>
where
    F: Future<Output = Result<Arc<dyn EventStore>, E>> + Send,
    E: Into<SweepError>,
{
    sweep_snapshots(provider, |conversation| is_locked(locks, conversation)).await?;
    let sandboxes = provider.list().await?;
    if !sandboxes.iter().any(SandboxSummary::may_be_swept) {
        return Ok(());
    }
    // A sandbox that is created later belongs to a running process.
    let known: HashSet<SandboxId> = sandboxes
        .iter()
        .map(|sandbox| sandbox.sandbox.clone())
        .collect();
    let conversations = sandboxes
        .into_iter()
        .filter_map(|sandbox| sandbox.conversation)
        .collect();
    let store = open_store().await.map_err(Into::into)?;
    let resumable = resumable(store.as_ref(), retention, conversations).await?;
    // Held while a sandbox is removed, so that its conversation cannot be resumed into it.
    let held: Mutex<Option<ConversationLock>> = Mutex::default();
    let (known, resumable, held) = (&known, &resumable, &held);
    let is_used = |sandbox: SandboxSummary| async move {
        let Some(conversation) = &sandbox.conversation else {
            return (retention.is_warm_in_use)(&sandbox);
        };
        if !known.contains(&sandbox.sandbox)
            || resumable.contains(conversation)
            || is_locked(locks, conversation.clone()).await
        {
            return true;
        }
        let lock = locks.lock(conversation).await.ok().flatten();
        let is_in_use = lock.is_none();
        *held.lock().unwrap_or_else(PoisonError::into_inner) = lock;
        is_in_use
    };
    sweep(provider, is_used).await?;
    Ok(())
}

/// Whether a process runs a conversation, or may run it.
async fn is_locked(locks: &dyn ConversationLocks, conversation: ConversationId) -> bool {
    let locked = locks.locked(&[conversation]).await;
    locked.map_or(true, |locked| !locked.is_empty())
}

/// Returns those of the conversations whose sandboxes are kept until they are resumed.
async fn resumable(
    store: &dyn EventStore,
    retention: SandboxRetention,
    conversations: HashSet<ConversationId>,
) -> Result<HashSet<ConversationId>, SweepError> {
    let now = clock::epoch_seconds(&clock::now());
    let delay = match retention.disposition {
        SandboxDisposition::Remove => retention.close_delay.as_secs_f64(),
        SandboxDisposition::Pause | SandboxDisposition::Keep => f64::INFINITY,
    };
    let is_young = |last: &Timestamp| now - clock::epoch_seconds(last) < delay;
    let mut resumable = HashSet::new();
    for ConversationSummary {
        id,
        last_updated_at,
        ..
    } in store.conversations().await?.conversations
    {
        if conversations.contains(&id)
            && is_young(&last_updated_at)
            && (retention.disposition != SandboxDisposition::Remove || !has_ended(store, &id).await)
        {
            resumable.insert(id);
        }
    }
    Ok(resumable)
}

/// Whether a conversation has ended, but its process was killed before it removed the sandbox.
/// `false` if the log is damaged: then it is unknown.
async fn has_ended(store: &dyn EventStore, conversation: &ConversationId) -> bool {
    read_state(store, conversation).await.is_ok_and(|state| {
        let is_at_end = matches!(
            state.agent_state,
            AgentState::Finished | AgentState::Rejected | AgentState::Stopped | AgentState::Error
        );
        // An action without a terminal event may still run in the sandbox, for example after a
        // connection was lost.
        is_at_end && !state.has_pending_actions()
    })
}
