//! Changes of the workspace's git repositories: relative to the remote branch, as V0 shows them, or
//! to the current commit.
//!
//! git runs in the sandbox, by scripts that keep the repository's configuration from running
//! programs. See `repository.sh`.

use std::collections::BTreeSet;
use std::time::Duration;

use engine::sandbox::{SandboxError, Script, ScriptResult};
use protocol::client_api::v2::git::{ChangeStatus, FileChange, FileVersions, GitBase};

use super::WorkspaceFiles;
use super::error::WorkspaceError;
use super::text;

const CHANGES: &str = concat!(include_str!("repository.sh"), include_str!("changes.sh"));
const ORIGINAL: &str = concat!(include_str!("repository.sh"), include_str!("original.sh"));
const DIFF: &str = concat!(include_str!("repository.sh"), include_str!("diff.sh"));

/// Maximum size of the file `HEAD`. The name of a branch has at most 255 bytes.
const MAX_HEAD_BYTES: u64 = 1024;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of changes, and of bytes in their paths.
const MAX_CHANGES: usize = 100_000;
const MAX_CHANGES_BYTES: usize = 8 << 20;

/// Maximum length of a patch, in bytes. It is in memory while it is sent.
const MAX_DIFF_BYTES: usize = 8 << 20;

/// Exit code of the scripts if there is no repository, or no git.
const NO_REPOSITORY: i32 = 3;

/// Exit code if the base has no such file.
const NO_ORIGINAL: i32 = 4;

/// Returns the branch that is checked out in a repository. Reads the file instead of running git,
/// because clients request the branch again and again.
pub(super) async fn branch(
    workspace: &WorkspaceFiles,
    repository: &str,
) -> Result<Option<String>, WorkspaceError> {
    let path = workspace
        .resolve(&format!("{repository}/.git/HEAD"))
        .await?;
    if path
        .status
        .as_ref()
        .is_none_or(|status| status.size > MAX_HEAD_BYTES)
    {
        return Ok(None);
    }
    let head = text::read(workspace.files()?, &path).await?;
    Ok(branch_in(&head).map(str::to_owned))
}

/// Parses the file `HEAD`. `None` if it names a commit, or is not git's: programs in the sandbox
/// can write to it.
fn branch_in(head: &str) -> Option<&str> {
    let name = head.strip_prefix("ref: refs/heads/")?.trim_end();
    let is_name = !name.is_empty()
        && !name.starts_with('.')
        && !name.contains(|char: char| char.is_whitespace() || char.is_control());
    is_name.then_some(name)
}

/// The name of a base in the scripts.
fn base_name(base: GitBase) -> &'static str {
    match base {
        GitBase::Remote => "remote",
        GitBase::Head => "head",
    }
}

/// Lists the changes.
pub(super) async fn changes(
    workspace: &WorkspaceFiles,
    base: GitBase,
) -> Result<Vec<FileChange>, WorkspaceError> {
    let arguments = [workspace.root.as_str(), base_name(base)];
    let printed = run(workspace, CHANGES, &arguments, too_many_changes()).await?;
    let output = printed.map_err(failure)?;
    // On a blocking thread, because the sandbox chooses the number of files.
    let parsed = tokio::task::spawn_blocking(move || parse_changes(&output)).await;
    parsed.map_err(|error| SandboxError::Malformed {
        detail: error.to_string(),
    })?
}

fn too_many_changes() -> Limit {
    Limit {
        subject: format!("the list of changes has more than {MAX_CHANGES} files, or"),
        max_bytes: MAX_CHANGES_BYTES,
    }
}

/// Returns the changes of a file or folder as a patch.
pub(super) async fn diff(
    workspace: &WorkspaceFiles,
    path: &str,
    base: GitBase,
) -> Result<Vec<u8>, WorkspaceError> {
    let path = workspace.resolve(path).await?.relative;
    let arguments = [workspace.root.as_str(), path.as_str(), base_name(base)];
    let limit = Limit {
        subject: "the patch".to_owned(),
        max_bytes: MAX_DIFF_BYTES,
    };
    run(workspace, DIFF, &arguments, limit)
        .await?
        .map_err(failure)
}

/// Returns two versions of a file.
pub(super) async fn versions(
    workspace: &WorkspaceFiles,
    path: &str,
    base: GitBase,
) -> Result<FileVersions, WorkspaceError> {
    let path = workspace.resolve(path).await?;
    let original = original(workspace, &path.relative, base).await?;
    let modified = match path.status {
        None => None,
        Some(_) => Some(text::read(workspace.files()?, &path).await?),
    };
    if modified.is_none() && original.is_none() {
        return Err(WorkspaceError::NotFound(path.relative));
    }
    Ok(FileVersions { modified, original })
}

/// Returns a file as it is in the base. `None` if that has no such file.
async fn original(
    workspace: &WorkspaceFiles,
    path: &str,
    base: GitBase,
) -> Result<Option<String>, WorkspaceError> {
    let arguments = [workspace.root.as_str(), path, base_name(base)];
    let limit = Limit {
        subject: format!("{path:?}"),
        max_bytes: text::MAX_TEXT_BYTES as usize,
    };
    match run(workspace, ORIGINAL, &arguments, limit).await? {
        Ok(output) => text::decode(output, path).map(Some),
        Err(NO_ORIGINAL) => Ok(None),
        Err(code) => Err(failure(code)),
    }
}

/// The maximum length of an output, and what it is.
struct Limit {
    subject: String,
    max_bytes: usize,
}

impl From<Limit> for WorkspaceError {
    fn from(Limit { subject, max_bytes }: Limit) -> Self {
        Self::TooLarge {
            subject,
            max_bytes: max_bytes as u64,
        }
    }
}

/// Runs a script. Returns its output, or its exit code if that is not 0.
async fn run(
    workspace: &WorkspaceFiles,
    text: &str,
    arguments: &[&str],
    limit: Limit,
) -> Result<Result<Vec<u8>, i32>, WorkspaceError> {
    let script = Script {
        text,
        arguments,
        timeout: TIMEOUT,
        max_output_bytes: limit.max_bytes,
    };
    match script.run(workspace.sandbox.as_ref()).await? {
        ScriptResult::Exited { code: 0, output } => Ok(Ok(output)),
        ScriptResult::Exited { code, .. } => Ok(Err(code)),
        ScriptResult::TooMuchOutput => Err(limit.into()),
        ScriptResult::TimedOut => Err(WorkspaceError::GitTimeout(TIMEOUT.as_secs())),
    }
}

/// Returns the error of a script that exited with another code than 0.
fn failure(code: i32) -> WorkspaceError {
    match code {
        NO_REPOSITORY => WorkspaceError::NoRepository,
        code => SandboxError::Malformed {
            detail: format!("the script of git exited with {code}"),
        }
        .into(),
    }
}

/// Parses the output of `changes.sh`. Ignores what no honest sandbox prints.
///
/// # Errors
/// [`WorkspaceError::TooLarge`] if there are too many changes. The folder of a repository precedes
/// each of its paths, so the list can be far longer than the output.
fn parse_changes(output: &[u8]) -> Result<Vec<FileChange>, WorkspaceError> {
    let mut texts = output
        .split(|byte| *byte == 0)
        .map(|text| String::from_utf8_lossy(text).into_owned());
    let (mut changes, mut nested) = (Vec::new(), BTreeSet::new());
    let mut path_bytes = 0;
    while let Some(folder) = texts.next().filter(|folder| !folder.is_empty()) {
        let prefix = if folder == "." {
            String::new()
        } else {
            format!("{folder}/")
        };
        let mut add = |status: ChangeStatus, path: String| {
            path_bytes += prefix.len() + path.len();
            if changes.len() == MAX_CHANGES || path_bytes > MAX_CHANGES_BYTES {
                return Err(WorkspaceError::from(too_many_changes()));
            }
            changes.push(FileChange {
                path: format!("{prefix}{path}"),
                status,
            });
            Ok(())
        };
        while let Some(status) = texts.next().filter(|status| !status.is_empty())
            && let Some(path) = texts.next()
        {
            add(to_status(&status), path)?;
        }
        while let Some(path) = texts.next().filter(|path| !path.is_empty()) {
            add(ChangeStatus::Added, path)?;
        }
        nested.insert(prefix);
    }
    // The outer repository lists the folder of a nested one.
    changes.retain(|change| !nested.contains(&change.path));
    changes.sort();
    Ok(changes)
}

/// Parses the status of a change. A change of the type of a file is a modification.
fn to_status(status: &str) -> ChangeStatus {
    match status.as_bytes().first() {
        Some(b'A') => ChangeStatus::Added,
        Some(b'D') => ChangeStatus::Deleted,
        Some(b'U') => ChangeStatus::Unmerged,
        _ => ChangeStatus::Modified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_is_none_when_head_names_none() {
        for (head, branch) in [
            ("ref: refs/heads/main\n", Some("main")),
            ("ref: refs/heads/fix/a-b", Some("fix/a-b")),
            ("48a35aee7b3b53fba0d5d5e6c1bb9d4d7a5a1c3e\n", None),
            ("ref: refs/tags/v1\n", None),
            // Of a repository with another format of references.
            ("ref: refs/heads/.invalid\n", None),
            ("ref: refs/heads/a b\n", None),
            ("", None),
        ] {
            assert_eq!(branch_in(head), branch, "{head:?}");
        }
    }

    #[test]
    fn changes_of_nested_repositories_have_their_folder() {
        use ChangeStatus::{Added, Deleted, Modified};
        let output = b".\0M\0a b\0T\0link\0\0new\0sub/\0\0sub\0D\0gone\0\0new\xff\0\0";
        let change = |status, path: &str| FileChange {
            path: path.to_owned(),
            status,
        };
        let expected = [
            change(Modified, "a b"),
            change(Modified, "link"),
            change(Added, "new"),
            change(Deleted, "sub/gone"),
            change(Added, "sub/new\u{fffd}"),
        ];
        assert_eq!(parse_changes(output).unwrap(), expected);
        for hostile in [
            &b""[..],
            b"\0\0\0",
            b"x",
            b"x\0M",
            b"x\0M\0",
            b"x\0\0\0\0\0",
        ] {
            assert!(parse_changes(hostile).unwrap().len() <= 1);
        }
    }

    #[test]
    fn folder_that_precedes_each_path_does_not_multiply_the_list() {
        let long = [
            &b"n".repeat(255)[..],
            b"\0\0",
            &b"f\0".repeat(90_000),
            b"\0",
        ]
        .concat();
        let many = [&b".\0\0"[..], &b"f\0".repeat(MAX_CHANGES + 1), b"\0"].concat();
        for output in [long, many] {
            let refused = parse_changes(&output).unwrap_err();
            assert!(
                matches!(refused, WorkspaceError::TooLarge { .. }),
                "{refused}"
            );
        }
    }
}
