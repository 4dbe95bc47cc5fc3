//! Lists folders as V0 does.

use std::path::Path;
use std::time::{Duration, Instant};

use engine::sandbox::{SandboxFiles, TransferKind};
use futures_util::future::join_all;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use protocol::sandbox_api::{FileKind, FileStatus};
use tokio::io::AsyncReadExt as _;

use super::WorkspaceFiles;
use super::error::WorkspaceError;

/// Files and folders of the workspace that are never listed, as in V0.
const IGNORED: [&str; 6] = [
    ".git/",
    ".DS_Store",
    "node_modules/",
    ".venv/",
    "lost+found/",
    ".vscode/",
];

/// Maximum length of the root `.gitignore` that is used, and its maximum number of lines: each is
/// matched with each name.
const MAX_GITIGNORE_BYTES: u64 = 64 << 10;
const MAX_GITIGNORE_LINES: usize = 1000;

/// Maximum time to match names.
const MAX_MATCHING_TIME: Duration = Duration::from_secs(1);

/// Maximum number of links of a folder whose targets are inspected. Further links are listed as
/// files.
const MAX_LINKS: usize = 256;

/// Number of links that are inspected concurrently.
const CONCURRENT_LINKS: usize = 16;

/// The names in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderNames {
    /// The names; those of folders end with `/`.
    pub names: Vec<String>,
    /// Whether there are more files than the list has.
    pub is_truncated: bool,
}

/// Lists a folder.
pub(super) async fn list(
    workspace: &WorkspaceFiles,
    path: &str,
) -> Result<FolderNames, WorkspaceError> {
    let files = workspace.files()?;
    let folder = workspace.resolve(path).await?;
    folder.check_folder()?;
    let list = files.list(&folder.absolute).await?;
    let gitignore = read_gitignore(files, &workspace.root).await;
    let names = names(files, &folder.absolute, list.entries).await;
    let prefix = if path.is_empty() || path.ends_with('/') {
        path.to_owned()
    } else {
        format!("{path}/")
    };
    let below = if folder.is_root() {
        String::new()
    } else {
        format!("{}/", folder.relative)
    };
    let names = without_ignored(names, below, gitignore).await;
    let names = names
        .into_iter()
        .map(|name| format!("{prefix}{name}"))
        .collect();
    Ok(FolderNames {
        names,
        is_truncated: list.truncated,
    })
}

/// Leaves out the ignored names of the folder `below`. Runs on a blocking thread for a limited
/// time, because a sandbox chooses the patterns and the names: matching them can take half a
/// minute. The names after that time are shown.
async fn without_ignored(names: Vec<String>, below: String, gitignore: String) -> Vec<String> {
    let matching = move || {
        let deadline = Instant::now() + MAX_MATCHING_TIME;
        let gitignore = parse_gitignore(&gitignore);
        let is_shown = |name: &String| {
            Instant::now() > deadline || !is_ignored(&gitignore, &format!("{below}{name}"))
        };
        names.into_iter().filter(is_shown).collect()
    };
    // Fails only when the runtime shuts down.
    tokio::task::spawn_blocking(matching)
        .await
        .unwrap_or_default()
}

/// Returns the names of the entries, folders first, each sorted without case. Dangling links are
/// left out.
async fn names(files: &dyn SandboxFiles, folder: &str, entries: Vec<FileStatus>) -> Vec<String> {
    let (links, others): (Vec<_>, Vec<_>) = entries
        .into_iter()
        .partition(|entry| entry.kind == FileKind::Symlink);
    let (inspected, rest) = links.split_at(links.len().min(MAX_LINKS));
    let mut kinds = Vec::new();
    for links in inspected.chunks(CONCURRENT_LINKS) {
        let targets = join_all(
            links
                .iter()
                .map(|link| target_kind(files, folder, &link.path)),
        )
        .await;
        let names = links.iter().map(|link| link.path.clone());
        kinds.extend(
            names
                .zip(targets)
                .filter_map(|(name, kind)| Some((name, kind?))),
        );
    }
    kinds.extend(
        others
            .into_iter()
            .chain(rest.iter().cloned())
            .map(|entry| (entry.path, entry.kind)),
    );
    let (mut folders, mut names) = (Vec::new(), Vec::new());
    for (name, kind) in kinds {
        // A name with a slash does not come from an honest server.
        match kind {
            _ if name.contains('/') => {}
            FileKind::Directory => folders.push(name + "/"),
            _ => names.push(name),
        }
    }
    for names in [&mut folders, &mut names] {
        names.sort_by_cached_key(|name| (name.to_lowercase(), name.clone()));
    }
    folders.append(&mut names);
    folders
}

/// Returns the kind of a link's target. `None` if it does not exist.
async fn target_kind(files: &dyn SandboxFiles, folder: &str, name: &str) -> Option<FileKind> {
    Some(files.status(&format!("{folder}/{name}")).await.ok()??.kind)
}

/// Whether a path relative to the workspace is left out. That of a folder ends with `/`.
fn is_ignored(gitignore: &Gitignore, path: &str) -> bool {
    let (name, is_folder) = path
        .strip_suffix('/')
        .map_or((path, false), |name| (name, true));
    IGNORED.contains(&path)
        || gitignore
            .matched_path_or_any_parents(Path::new(name), is_folder)
            .is_ignore()
}

/// Reads the root `.gitignore`. Empty if there is none.
async fn read_gitignore(files: &dyn SandboxFiles, root: &str) -> String {
    let path = format!("{root}/.gitignore");
    let content = async {
        let is_file = files.link_status(&path).await.ok()??.kind == FileKind::File;
        let source = files
            .download(&path, TransferKind::File)
            .await
            .ok()
            .filter(|_| is_file)?;
        let mut content = Vec::new();
        source
            .take(MAX_GITIGNORE_BYTES)
            .read_to_end(&mut content)
            .await
            .ok()?;
        Some(String::from_utf8_lossy(&content).into_owned())
    };
    content.await.unwrap_or_default()
}

/// Maximum number of opening braces in a pattern. The parser of patterns nests them without a
/// limit, on the stack; git does not interpret them.
const MAX_BRACES: usize = 16;

/// Parses a `.gitignore`. Leaves out lines that are not patterns.
fn parse_gitignore(content: &str) -> Gitignore {
    let mut patterns = GitignoreBuilder::new("");
    let is_plain = |line: &&str| line.matches('{').count() <= MAX_BRACES;
    for line in content.lines().take(MAX_GITIGNORE_LINES).filter(is_plain) {
        // An error means that the line is no pattern; git ignores it too.
        let _ = patterns.add_line(None, line);
    }
    patterns.build().unwrap_or_else(|_| Gitignore::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On the only thread of the runtime: other work continues meanwhile, and the matching ends.
    #[tokio::test]
    async fn hostile_patterns_delay_no_other_work() {
        let pattern =
            |number: usize| format!("*{}*b*c*d*e*f*g*h*i*j*k*l*m{number}\n", "a*".repeat(10));
        let gitignore: String = (0..MAX_GITIGNORE_LINES).map(pattern).collect();
        let names: Vec<_> = (0..10_000)
            .map(|number| format!("{}{number}", "a".repeat(200)))
            .collect();
        let listing = tokio::spawn(without_ignored(names, String::new(), gitignore));
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(!listing.is_finished(), "the patterns are expensive");
        }
        assert_eq!(listing.await.unwrap().len(), 10_000);
    }

    #[test]
    fn nested_braces_do_not_overflow_the_stack() {
        let line = format!("{}a{}", "{".repeat(30_000), "}".repeat(30_000));
        let gitignore = parse_gitignore(&format!("{line}\n*.log\n"));
        assert!(is_ignored(&gitignore, "a.log") && !is_ignored(&gitignore, "a"));
    }

    #[test]
    fn ignore_list_and_gitignore_leave_out_names() {
        let gitignore = parse_gitignore("*.log\n/build/\n!keep.log\n[\n");
        for ignored in [
            ".git/",
            "node_modules/",
            "a.log",
            "deep/a.log",
            "build/",
            "build/x",
        ] {
            assert!(is_ignored(&gitignore, ignored), "{ignored}");
        }
        for shown in [
            "keep.log",
            "build",
            "deep/build/",
            ".gitignore",
            "src/",
            ".git",
        ] {
            assert!(!is_ignored(&gitignore, shown), "{shown}");
        }
    }
}
