//! Labels that identify containers and snapshots.
//!
//! A container inherits the labels of its image, and a snapshot is an image. So every container
//! sets every label, and a snapshot names its owner in a label that no container sets.

use std::collections::HashMap;

use engine::sandbox::{Lifetime, SnapshotPurpose};
use protocol::{ConversationId, SandboxId};

const MARK_LABEL: &str = "glovebox";
const CONVERSATION_LABEL: &str = "glovebox.conversation";
const HOLDER_LABEL: &str = "glovebox.holder";
pub(super) const OWNER_LABEL: &str = "glovebox.owner";
pub(super) const LIFETIME_LABEL: &str = "glovebox.lifetime";
/// The id that the server's key is derived from: the name under which the container was created.
pub(super) const KEY_LABEL: &str = "glovebox.key";
/// Owner of a snapshot.
pub(super) const SNAPSHOT_LABEL: &str = "glovebox.snapshot";
/// Conversation that a temporary snapshot was created for by a fork. Empty for a snapshot that is
/// kept.
pub(super) const FORK_LABEL: &str = "glovebox.fork";

/// Owner of a container.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ownership<'a> {
    /// The sandbox of a conversation.
    Conversation(&'a ConversationId),
    /// A pool entry of the process with this holder name.
    PoolHolder(&'a str),
}

/// Returns all labels of a container.
pub(super) fn container_labels(
    owner: &str,
    name: &SandboxId,
    belongs: Ownership<'_>,
    lifetime: Lifetime,
) -> HashMap<String, String> {
    let lifetime = lifetime.to_string();
    let (conversation, holder) = match belongs {
        Ownership::Conversation(conversation) => (conversation.as_str(), ""),
        Ownership::PoolHolder(holder) => ("", holder),
    };
    labels([
        (MARK_LABEL, "1"),
        (OWNER_LABEL, owner),
        (KEY_LABEL, name.as_str()),
        (CONVERSATION_LABEL, conversation),
        (HOLDER_LABEL, holder),
        (LIFETIME_LABEL, &lifetime),
    ])
}

/// Returns all labels of a snapshot. Those inherited from its container are blanked.
pub(super) fn snapshot_labels(
    owner: &str,
    purpose: SnapshotPurpose<'_>,
) -> HashMap<String, String> {
    let fork = match purpose {
        SnapshotPurpose::Keep(_) => "",
        SnapshotPurpose::Fork(conversation) => conversation.as_str(),
    };
    labels([
        (MARK_LABEL, "1"),
        (SNAPSHOT_LABEL, owner),
        (FORK_LABEL, fork),
        (OWNER_LABEL, ""),
        (KEY_LABEL, ""),
        (CONVERSATION_LABEL, ""),
        (HOLDER_LABEL, ""),
        (LIFETIME_LABEL, ""),
    ])
}

fn labels<const N: usize>(pairs: [(&str, &str); N]) -> HashMap<String, String> {
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

#[cfg(test)]
mod tests {
    use engine::sandbox::{Lifetime, SnapshotPurpose};

    use super::{Ownership, container_labels, snapshot_labels};

    #[test]
    fn snapshot_blanks_every_label_that_marks_a_container() {
        let name = "glovebox-c".parse().unwrap();
        let container = container_labels(
            "me",
            &name,
            Ownership::PoolHolder("1"),
            Lifetime::Conversation,
        );
        let snapshot = snapshot_labels("me", SnapshotPurpose::Keep(None));
        for label in container.keys().filter(|label| *label != "glovebox") {
            assert_eq!(snapshot.get(label).map(String::as_str), Some(""), "{label}");
        }
        assert_eq!(snapshot["glovebox.snapshot"], "me");
    }
}
