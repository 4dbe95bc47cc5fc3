//! The labels by which containers and images are known again. Pure.
//!
//! An image hands its labels down to its containers, and a snapshot is an image: every container has every label of
//! these, so that none is handed down to it, and a snapshot names its owner by a label that no container has.

use std::collections::HashMap;

use engine::sandbox::{Lifetime, SnapshotPurpose};
use protocol::{ConversationId, SandboxId};

const MARK_LABEL: &str = "glovebox";
const CONVERSATION_LABEL: &str = "glovebox.conversation";
const HOLDER_LABEL: &str = "glovebox.holder";
pub(super) const OWNER_LABEL: &str = "glovebox.owner";
pub(super) const LIFETIME_LABEL: &str = "glovebox.lifetime";
/// The id that the server's key is derived from: the name that the container was made with.
pub(super) const KEY_LABEL: &str = "glovebox.key";
/// Whose snapshot an image is.
pub(super) const SNAPSHOT_LABEL: &str = "glovebox.snapshot";
/// The conversation whose sandbox it was made for in passing; empty: it is to be kept.
pub(super) const FORK_LABEL: &str = "glovebox.fork";
/// The lifetime of what no sweep removes.
pub(super) const UNTIL_REMOVED: &str = "until-removed";

/// Whose a container is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Belongs<'a> {
    /// A conversation's.
    To(&'a ConversationId),
    /// Nobody's yet: this process made it ahead.
    AheadBy(&'a str),
}

/// All labels of a container.
pub(super) fn of_container(
    owner: &str,
    name: &SandboxId,
    belongs: Belongs<'_>,
    lifetime: Lifetime,
) -> HashMap<String, String> {
    let lifetime = match lifetime {
        Lifetime::Conversation => "conversation",
        Lifetime::UntilRemoved => UNTIL_REMOVED,
    };
    let (conversation, holder) = match belongs {
        Belongs::To(conversation) => (conversation.as_str(), ""),
        Belongs::AheadBy(holder) => ("", holder),
    };
    labels([
        (MARK_LABEL, "1"),
        (OWNER_LABEL, owner),
        (KEY_LABEL, name.as_str()),
        (CONVERSATION_LABEL, conversation),
        (HOLDER_LABEL, holder),
        (LIFETIME_LABEL, lifetime),
    ])
}

/// All labels of a snapshot: its container's say nothing any more.
pub(super) fn of_snapshot(owner: &str, purpose: SnapshotPurpose<'_>) -> HashMap<String, String> {
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
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

#[cfg(test)]
mod tests {
    use engine::sandbox::{Lifetime, SnapshotPurpose};

    use super::{Belongs, of_container, of_snapshot};

    #[test]
    fn a_snapshot_blanks_every_label_that_makes_a_container_ours() {
        let name = "glovebox-c".parse().unwrap();
        let container = of_container("me", &name, Belongs::AheadBy("1"), Lifetime::Conversation);
        let snapshot = of_snapshot("me", SnapshotPurpose::Keep(None));
        for label in container.keys().filter(|label| *label != "glovebox") {
            assert_eq!(snapshot.get(label).map(String::as_str), Some(""), "{label}");
        }
        assert_eq!(snapshot["glovebox.snapshot"], "me");
    }
}
