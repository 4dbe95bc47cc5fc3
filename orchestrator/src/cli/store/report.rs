//! What a copy did, as text and as JSON.

use protocol::ConversationId;
use serde::Serialize;
use serde_json::json;

use crate::cli::{print, table};
use crate::exit::Exit;

/// How many things of a kind were copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct CopyCounts {
    /// New in the target.
    pub(super) added: u64,
    /// Conversations whose log was the start of the copied one, and got its further events.
    pub(super) extended: u64,
    /// Changed in the target, as they were in the source since the last copy.
    pub(super) changed: u64,
    /// Removed from the target, as they were from the source since the last copy.
    pub(super) removed: u64,
    /// In the target before.
    pub(super) existing: u64,
    /// In the target with another content, which was kept.
    pub(super) different: u64,
    /// Not copied because of an error.
    pub(super) failed: u64,
}

/// Everything that a copy did.
#[derive(Debug, Default, Serialize)]
pub(super) struct CopyReport {
    pub(super) conversations: CopyCounts,
    pub(super) users: CopyCounts,
    pub(super) keys: CopyCounts,
    pub(super) settings: CopyCounts,
    pub(super) audit_entries: CopyCounts,
    /// Whether users, keys or settings differ in a way that the copy does not explain.
    #[serde(skip)]
    pub(super) has_differences: bool,
}

/// What was done with a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CopyStatus {
    Added,
    Extended,
    Exists,
    Differs,
    Running,
    Failed,
}

impl CopyReport {
    /// Prints an object for a conversation.
    pub(super) fn print_conversation(
        id: &ConversationId,
        status: CopyStatus,
        events: u64,
        problem: Option<&str>,
    ) -> anyhow::Result<()> {
        let value =
            json!({"conversation": id, "status": status, "events": events, "problem": problem});
        Ok(print::line(&value.to_string())?)
    }

    /// Prints an object for a user who differs in the target. `None` is the operator.
    pub(super) fn print_user(user: Option<&str>, problem: &str) -> anyhow::Result<()> {
        let value = json!({"user": user, "status": CopyStatus::Differs, "problem": problem});
        Ok(print::line(&value.to_string())?)
    }

    /// Prints the totals.
    pub(super) fn print(&self, as_json: bool) -> anyhow::Result<()> {
        if as_json {
            return Ok(print::line(&json!({"summary": self}).to_string())?);
        }
        let rows = [
            ("conversations", self.conversations),
            ("users", self.users),
            ("keys", self.keys),
            ("settings", self.settings),
            ("audit entries", self.audit_entries),
        ];
        let rows = rows.map(|(kind, counts)| {
            let CopyCounts {
                added,
                extended,
                changed,
                removed,
                existing,
                different,
                failed,
            } = counts;
            let [first, second, third, fourth, fifth, sixth, seventh] = [
                added, extended, changed, removed, existing, different, failed,
            ]
            .map(|count| count.to_string());
            [
                kind.to_owned(),
                first,
                second,
                third,
                fourth,
                fifth,
                sixth,
                seventh,
            ]
        });
        Ok(table::print(
            [
                "",
                "ADDED",
                "EXTENDED",
                "CHANGED",
                "REMOVED",
                "EXISTING",
                "DIFFERENT",
                "FAILED",
            ],
            &rows,
        )?)
    }

    /// Fails if a conversation was not copied, or a user differs in a way that the copy does not
    /// explain.
    pub(super) fn exit(&self) -> Exit {
        let CopyCounts {
            different, failed, ..
        } = self.conversations;
        if different + failed == 0 && !self.has_differences {
            Exit::Finished
        } else {
            Exit::Failed
        }
    }
}
