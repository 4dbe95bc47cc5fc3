//! What is placed, as its runtime tells it.

use jiff::Timestamp;
use protocol::{ConversationId, SandboxId};

use super::Lifetime;
use super::{SandboxError, SandboxProvider};

/// A sandbox that its runtime knows of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSummary {
    /// Its id.
    pub sandbox: SandboxId,
    /// Whose it is; nothing: it was made ahead and is nobody's yet.
    pub conversation: Option<ConversationId>,
    /// Whether it goes when nobody uses it any more.
    pub lifetime: Lifetime,
    /// The image, for runtimes that have one.
    pub image: Option<String>,
    /// What it does.
    pub condition: SandboxState,
    /// When it was made, if the runtime tells.
    pub created_at: Option<Timestamp>,
}

/// What a placed sandbox does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxState {
    /// It runs.
    Running,
    /// It is frozen, and goes on when it is resumed.
    Paused,
    /// Its server has ended, or never started.
    Ended,
}

/// What a sandbox uses of its host at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResourceUsage {
    /// Processors that were busy, over the last moment that was measured.
    pub cpus: f64,
    /// Memory, in bytes, without what the kernel can take back.
    pub memory_bytes: u64,
    /// Memory that it may use, in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

/// Removes the sandboxes that are to go when nobody uses them, and nobody does: what a crash has left behind. What is used
/// is asked after all were listed, so that one that is placed meanwhile is seen as used. Names what it removed.
///
/// # Errors
/// They cannot be listed. One that cannot be removed is logged, and left for the next sweep.
pub async fn sweep(
    provider: &dyn SandboxProvider,
    is_used: &(dyn Fn(&SandboxSummary) -> bool + Send + Sync),
) -> Result<Vec<SandboxId>, SandboxError> {
    let mut removed = Vec::new();
    for placed in provider.list().await? {
        if placed.lifetime == Lifetime::UntilRemoved || is_used(&placed) {
            continue;
        }
        match provider.destroy(&placed.sandbox).await {
            Ok(()) => {
                tracing::info!(sandbox = %placed.sandbox, "removed a sandbox that nobody uses");
                removed.push(placed.sandbox);
            }
            Err(error) => {
                tracing::warn!(sandbox = %placed.sandbox, %error, "removing a sandbox that nobody uses");
            }
        }
    }
    Ok(removed)
}
