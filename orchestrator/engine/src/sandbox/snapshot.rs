//! Snapshots: images of the files of sandboxes.

use jiff::Timestamp;
use protocol::ConversationId;

use super::{SandboxError, SandboxProvider};

/// The purpose of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotPurpose<'a> {
    /// Kept until a user removes it, under this name or a generated one.
    Keep(Option<&'a str>),
    /// The image for the sandbox of this forked conversation. Removed with the last sandbox that
    /// was created from it.
    Fork(&'a ConversationId),
}

/// A snapshot in the list of its runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The image from which sandboxes are created.
    pub image: String,
    /// The fork that it was created for. `None` if it is kept until a user removes it.
    pub fork: Option<ConversationId>,
    /// Disk usage, in bytes, including layers that it shares with other images.
    pub size_bytes: u64,
    /// When it was created, if the runtime reports it.
    pub created_at: Option<Timestamp>,
}

/// Removes the snapshots of forks that did not complete. Returns their images. Keeps the snapshots
/// of forks in progress, for which `is_used` is true, and those that a sandbox was created from.
///
/// # Errors
/// The snapshots cannot be listed. A snapshot that cannot be removed is logged and left for the
/// next sweep.
pub async fn sweep_snapshots<F: Future<Output = bool>>(
    provider: &dyn SandboxProvider,
    is_used: impl Fn(ConversationId) -> F,
) -> Result<Vec<String>, SandboxError> {
    let mut removed = Vec::new();
    let Ok(snapshots) = provider.snapshots() else {
        return Ok(removed);
    };
    for Snapshot { image, fork, .. } in snapshots.list_snapshots().await? {
        let is_kept = match fork {
            Some(fork) => is_used(fork).await,
            None => true,
        };
        if is_kept {
            continue;
        }
        match snapshots.remove_snapshot(&image).await {
            Ok(()) => removed.push(image),
            Err(SandboxError::InUse { .. }) => {}
            Err(error) => {
                tracing::warn!(image, %error, "cannot remove a snapshot that no fork uses");
            }
        }
    }
    Ok(removed)
}
