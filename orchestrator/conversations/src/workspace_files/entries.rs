//! Lists folders in pages, with all entries.

use protocol::client_api::v2::files::{FileEntry, FileEntryPage, ListFiles};
use protocol::sandbox_api::{FileKind, FileStatus};

use super::WorkspaceFiles;
use super::error::WorkspaceError;
use crate::client_limits::check_limit;

/// Maximum number of entries of a page.
const MAX_ENTRIES: usize = 1000;

/// Lists a page of a folder.
pub(super) async fn list(
    workspace: &WorkspaceFiles,
    request: ListFiles,
) -> Result<FileEntryPage, WorkspaceError> {
    check_limit(request.limit, MAX_ENTRIES)?;
    let folder = workspace.resolve(&request.path).await?;
    folder.check_folder()?;
    let list = workspace.files()?.list(&folder.absolute).await?;
    Ok(page(list.entries, list.truncated, &request))
}

/// Returns the entries that a request selects.
fn page(statuses: Vec<FileStatus>, is_truncated: bool, request: &ListFiles) -> FileEntryPage {
    let after = request.after.as_deref();
    let is_selected = |status: &FileStatus| {
        // A name with a slash does not come from an honest server.
        !status.path.contains('/') && after.is_none_or(|after| status.path.as_str() > after)
    };
    let mut statuses: Vec<_> = statuses.into_iter().filter(is_selected).collect();
    statuses.sort_unstable_by(|first, second| first.path.cmp(&second.path));
    let has_more = statuses.len() > request.limit;
    statuses.truncate(request.limit);
    let last = statuses.last().filter(|_| has_more);
    FileEntryPage {
        next: last.map(|status| status.path.clone()),
        entries: statuses.into_iter().map(to_entry).collect(),
        is_truncated,
    }
}

fn to_entry(status: FileStatus) -> FileEntry {
    FileEntry {
        target: status.target.filter(|_| status.kind == FileKind::Symlink),
        name: status.path,
        kind: status.kind,
        size: status.size,
        mode: status.mode,
        modified_ms: status.modified_ns.div_euclid(1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use protocol::sandbox_api::FileMode;

    use super::*;

    #[test]
    fn pages_of_a_hostile_list_have_each_name_once_in_order() {
        let status = |name: &str| FileStatus {
            path: name.to_owned(),
            kind: FileKind::File,
            size: 1,
            mode: FileMode::from_bits(0o644),
            uid: 0,
            gid: 0,
            modified_ns: -1,
            target: Some("a target that only links have".to_owned()),
        };
        let statuses = ["c", "../x", "a", "e", "b", "d/y"].map(status);
        let mut request = ListFiles {
            limit: 2,
            ..ListFiles::default()
        };
        let mut names = Vec::new();
        loop {
            let page = page(statuses.to_vec(), true, &request);
            assert!(page.is_truncated && page.entries.len() == 2);
            let entry = &page.entries[0];
            assert_eq!((entry.modified_ms, &entry.target), (-1, &None));
            names.extend(page.entries.into_iter().map(|entry| entry.name));
            request.after = page.next;
            if request.after.is_none() {
                break;
            }
        }
        assert_eq!(names, ["a", "b", "c", "e"]);
    }
}
