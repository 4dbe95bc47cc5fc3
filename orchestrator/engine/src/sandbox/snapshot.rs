//! Images of sandboxes' files.

use jiff::Timestamp;
use protocol::ConversationId;

use super::{SandboxError, SandboxProvider};

/// What a snapshot is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotPurpose<'a> {
    /// To be kept until somebody removes it, under this name or one of its own.
    Keep(Option<&'a str>),
    /// For the sandbox of this conversation, which is placed from it. It goes with the last sandbox that was.
    Fork(&'a ConversationId),
}

/// A snapshot that its runtime holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What sandboxes are placed from.
    pub image: String,
    /// Whose sandbox it was made for in passing; nothing: it is kept until somebody removes it.
    pub fork: Option<ConversationId>,
    /// What it takes of the runtime's disk, in bytes, with what it shares with other images.
    pub size_bytes: u64,
    /// When it was made, if the runtime tells.
    pub created_at: Option<Timestamp>,
}

/// Removes the snapshots of forks that were killed half way. Those of forks that are being made are named by `is_used`;
/// one that a sandbox was placed from stays with it. Names what it removed.
///
/// # Errors
/// They cannot be listed. One that cannot be removed is logged, and left for the next sweep.
pub async fn sweep_snapshots(
    provider: &dyn SandboxProvider,
    is_used: &(dyn Fn(&ConversationId) -> bool + Send + Sync),
) -> Result<Vec<String>, SandboxError> {
    let mut removed = Vec::new();
    for Snapshot { image, fork, .. } in provider.snapshots().await? {
        if fork.as_ref().is_none_or(is_used) {
            continue;
        }
        match provider.remove_snapshot(&image).await {
            Ok(()) => removed.push(image),
            Err(SandboxError::InUse { .. }) => {}
            Err(error) => tracing::warn!(image, %error, "removing a snapshot that no fork uses"),
        }
    }
    Ok(removed)
}
