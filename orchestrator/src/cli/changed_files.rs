//! The summary of changed files at the end of a run.

use std::time::Duration;

use conversations::Conversations;
use protocol::ConversationId;
use protocol::client_api::v2::git::{FileChange, GitBase};
use tokio::time::timeout;

use super::print;

/// Timeout of git, which may be slow in a large workspace. The run has ended, and the user waits.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of shown files.
const MAX_SHOWN: usize = 20;

/// Describes the files of the workspace that are not committed. Empty if there are none, the
/// workspace has no git repository, or they are unknown: the summary is no reason for a run to
/// fail.
pub(super) async fn describe(conversations: &Conversations, id: &ConversationId) -> String {
    let list = async {
        let files = conversations.workspace_files(id).await.ok()?;
        files.changes(GitBase::Head).await.ok()
    };
    to_text(
        &timeout(TIMEOUT, list)
            .await
            .ok()
            .flatten()
            .unwrap_or_default(),
    )
}

fn to_text(changes: &[FileChange]) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let shown = changes.iter().take(MAX_SHOWN);
    let line = |change: &FileChange| {
        format!(
            "  {} {}\n",
            change.status.letter(),
            print::visible_line(&change.path)
        )
    };
    let more = match changes.len().saturating_sub(MAX_SHOWN) {
        0 => String::new(),
        more => format!("  … {more} more\n"),
    };
    format!(
        "\nfiles that are not committed:\n{}{more}",
        shown.map(line).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use protocol::client_api::v2::git::ChangeStatus;

    use super::*;

    #[test]
    fn files_are_listed_up_to_a_bound() {
        let change = |path: &str| FileChange {
            path: path.to_owned(),
            status: ChangeStatus::Modified,
        };
        assert_eq!(to_text(&[]), "");
        assert_eq!(
            to_text(&[change("a\u{1b}[2J\nb")]).lines().count(),
            3,
            "one line for each file"
        );
        let many: Vec<_> = (0..22).map(|number| change(&number.to_string())).collect();
        assert!(to_text(&many).ends_with("  M 19\n  … 2 more\n"));
    }
}
