//! Lists the sandboxes of a runtime, and removes unused ones.

use jiff::Timestamp;
use protocol::{ConversationId, SandboxId};
use serde::{Deserialize, Serialize};

use super::Lifetime;
use super::{SandboxError, SandboxProvider};

/// A sandbox in the list of its runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSummary {
    /// Its id.
    pub sandbox: SandboxId,
    /// The conversation that it belongs to. `None` for an unassigned sandbox of the warm pool.
    pub conversation: Option<ConversationId>,
    /// When it is removed.
    pub lifetime: Lifetime,
    /// The image, for runtimes that use one.
    pub image: Option<String>,
    /// Its state.
    pub condition: SandboxState,
    /// When it was created, if the runtime reports it.
    pub created_at: Option<Timestamp>,
}

impl SandboxSummary {
    /// Creates the summary of a running sandbox, without what some runtimes do not know.
    pub fn new(sandbox: SandboxId, conversation: Option<ConversationId>) -> Self {
        Self {
            sandbox,
            conversation,
            lifetime: Lifetime::Conversation,
            image: None,
            condition: SandboxState::Running,
            created_at: None,
        }
    }

    /// Whether a sweep removes it if it is not in use.
    pub fn may_be_swept(&self) -> bool {
        self.lifetime == Lifetime::Conversation || self.lifetime.is_expired()
    }
}

/// The state of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxState {
    /// It is running.
    Running,
    /// Its processes are frozen until it is resumed.
    Paused,
    /// Its action server has exited, or never started.
    Ended,
}

/// The resource usage of a sandbox at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResourceUsage {
    /// Average number of busy CPUs over the latest interval measured.
    pub cpus: f64,
    /// Memory, in bytes, without what the kernel can reclaim.
    pub memory_bytes: u64,
    /// The memory limit, in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
}

/// The settings of a sandbox, as far as its runtime knows them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxDetails {
    /// The folder of its machine that it works in. `None` for one inside the sandbox.
    pub workspace: Option<String>,
    /// Names of its networks; `none` without one.
    pub networks: Vec<String>,
    /// Its memory limit, in bytes.
    pub memory_bytes: Option<u64>,
    /// The maximum number of busy CPUs.
    pub cpus: Option<f64>,
    /// The maximum number of processes and threads.
    pub pids: Option<u64>,
}

/// Removes the sandboxes of conversations that no process uses, which a crash has left behind, and
/// those whose time is over. Returns their ids. `is_used` is called after the sandboxes are listed,
/// so that a new one counts as used.
///
/// # Errors
/// The sandboxes cannot be listed. A sandbox that cannot be removed is logged and left for the next
/// sweep.
pub async fn sweep<F: Future<Output = bool>>(
    provider: &dyn SandboxProvider,
    is_used: impl Fn(SandboxSummary) -> F,
) -> Result<Vec<SandboxId>, SandboxError> {
    let mut removed = Vec::new();
    for placed in provider.list().await? {
        if !placed.may_be_swept() || is_used(placed.clone()).await {
            continue;
        }
        match provider.destroy(&placed.sandbox).await {
            Ok(()) => {
                tracing::info!(sandbox = %placed.sandbox, "removed an unused sandbox");
                removed.push(placed.sandbox);
            }
            Err(error) => {
                tracing::warn!(sandbox = %placed.sandbox, %error, "cannot remove an unused sandbox");
            }
        }
    }
    Ok(removed)
}
