//! Loads the knowledge files of a workspace through its sandbox. Most of the possible files do not
//! exist.

use std::io::Read as _;
use std::time::Duration;

use futures_util::future::join_all;
use protocol::sandbox_api::{FileKind, SkippedEntries};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::knowledge::{INSTRUCTIONS, KnowledgeFile, KnowledgeProblem, MAX_KNOWLEDGE_FILE_BYTES};
use crate::sandbox::{IncompleteArchive, Sandbox, SandboxError, TransferKind};

/// Knowledge folders of a workspace: V0's, and Glovebox's own.
const FOLDERS: [&str; 4] = [
    ".openhands/microagents",
    ".openhands/skills",
    ".glovebox/microagents",
    ".glovebox/skills",
];

/// Knowledge folders of an organization's repository: V0's, and the newer name.
const ORGANIZATION_FOLDERS: [&str; 2] = ["microagents", "skills"];

/// Maximum length of a folder's archive, in bytes. The folder of a skill may contain programs and
/// data.
const MAX_FOLDER_BYTES: u64 = 8 << 20;

/// Maximum number of bytes that are read of a file. One more than its maximum length, so that the
/// parser detects the truncation.
const MAX_READ_BYTES: u64 = MAX_KNOWLEDGE_FILE_BYTES as u64 + 1;

/// Maximum number of symbolic links that are followed.
const MAX_LINKS: usize = 32;

/// Timeout of loading all files.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Loads the knowledge files. Also returns the problems that prevented others from being loaded.
pub(super) async fn load_files(
    sandbox: &dyn Sandbox,
    workspace: &str,
    organization: &str,
) -> (Vec<KnowledgeFile>, Vec<KnowledgeProblem>) {
    let workspace = workspace.trim_end_matches('/');
    let instructions = INSTRUCTIONS
        .map(|(name, _)| load_instructions(sandbox, format!("{workspace}/{name}"), name));
    let organization_folders = ORGANIZATION_FOLDERS
        .iter()
        .filter(|_| !organization.is_empty());
    let folders = organization_folders
        .map(|name| format!("{organization}/{name}"))
        .chain(FOLDERS.iter().map(|name| format!("{workspace}/{name}")))
        .map(|path| load_folder(sandbox, path));
    let all = async { (join_all(instructions).await, join_all(folders).await) };
    let Ok((instructions, folders)) = timeout(LOAD_TIMEOUT, all).await else {
        let problem = format!(
            "its knowledge cannot be read in {} seconds: it is ignored",
            LOAD_TIMEOUT.as_secs()
        );
        return (
            Vec::new(),
            vec![KnowledgeProblem {
                path: workspace.to_owned(),
                problem,
            }],
        );
    };
    let mut files: Vec<KnowledgeFile> = Vec::new();
    let mut problems = Vec::new();
    for read in instructions {
        match read {
            // The names differ only by case, so on some file systems this is the same file.
            Ok(Some(file)) if files.iter().any(|other| other.content == file.content) => {}
            Ok(file) => files.extend(file),
            Err(problem) => problems.push(problem),
        }
    }
    for (folder_files, folder_problems) in folders {
        files.extend(folder_files);
        problems.extend(folder_problems);
    }
    (files, problems)
}

async fn load_instructions(
    sandbox: &dyn Sandbox,
    path: String,
    name: &str,
) -> Result<Option<KnowledgeFile>, KnowledgeProblem> {
    match read_content(sandbox, &path).await {
        Ok(content) => Ok(content.map(|content| KnowledgeFile {
            path,
            relative_path: name.to_owned(),
            content,
        })),
        Err(error) => Err(KnowledgeProblem {
            path,
            problem: error.to_string(),
        }),
    }
}

/// Returns the content of a file up to the maximum length. `None` if it does not exist.
async fn read_content(sandbox: &dyn Sandbox, path: &str) -> Result<Option<Vec<u8>>, SandboxError> {
    if query_kind(sandbox, path).await? != Some(FileKind::File) {
        return Ok(None);
    }
    let (content, _) = download(sandbox, path, TransferKind::File, MAX_READ_BYTES).await?;
    Ok(Some(content))
}

async fn load_folder(
    sandbox: &dyn Sandbox,
    path: String,
) -> (Vec<KnowledgeFile>, Vec<KnowledgeProblem>) {
    let archive = match query_kind(sandbox, &path).await {
        Ok(Some(FileKind::Directory)) => {
            download(sandbox, &path, TransferKind::Tree, MAX_FOLDER_BYTES).await
        }
        Ok(_) => return (Vec::new(), Vec::new()),
        Err(error) => Err(error),
    };
    let (archive, skipped) = match archive {
        Ok(downloaded) => downloaded,
        Err(error) => {
            return (
                Vec::new(),
                vec![KnowledgeProblem {
                    path,
                    problem: error.to_string(),
                }],
            );
        }
    };
    let KnowledgeArchive {
        mut files,
        links,
        mut problems,
    } = unpack(&path, &archive);
    if skipped.count > 0 {
        problems.push(KnowledgeProblem {
            path: path.clone(),
            problem: IncompleteArchive(skipped).to_string(),
        });
    }
    for relative_path in links {
        let path = format!("{path}/{relative_path}");
        let problem = match read_content(sandbox, &path).await {
            Ok(Some(content)) => {
                files.push(KnowledgeFile {
                    path,
                    relative_path,
                    content,
                });
                continue;
            }
            // Its target does not exist, is a loop, or is a folder.
            Ok(None) => "it is a link whose target is not a file".to_owned(),
            Err(error) => error.to_string(),
        };
        problems.push(KnowledgeProblem { path, problem });
    }
    (files, problems)
}

/// Returns the kind of a file. `None` if it does not exist, or the sandbox does not support files.
async fn query_kind(sandbox: &dyn Sandbox, path: &str) -> Result<Option<FileKind>, SandboxError> {
    let status = async { sandbox.files()?.status(path).await };
    match status.await {
        Ok(status) => Ok(status.map(|status| status.kind)),
        Err(SandboxError::Unsupported { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the content, and the entries that an archive leaves out.
async fn download(
    sandbox: &dyn Sandbox,
    path: &str,
    kind: TransferKind,
    max_bytes: u64,
) -> Result<(Vec<u8>, SkippedEntries), SandboxError> {
    let mut content = Vec::new();
    let read = sandbox
        .files()?
        .download(path, kind)
        .await?
        .take(max_bytes)
        .read_to_end(&mut content)
        .await;
    match read.map_or_else(
        IncompleteArchive::skipped,
        |_| Ok(SkippedEntries::default()),
    ) {
        Ok(skipped) => Ok((content, skipped)),
        Err(error) => Err(SandboxError::Lost {
            detail: format!("reading {path}: {error}"),
        }),
    }
}

#[derive(Default)]
struct KnowledgeArchive {
    files: Vec<KnowledgeFile>,
    /// Paths relative to the folder.
    links: Vec<String>,
    problems: Vec<KnowledgeProblem>,
}

/// Extracts the Markdown files of an archive that may be truncated. Writes nothing, so paths of the
/// archive are harmless.
fn unpack(folder: &str, archive: &[u8]) -> KnowledgeArchive {
    let mut unpacked = KnowledgeArchive::default();
    let mut archive = tar::Archive::new(archive);
    let Ok(entries) = archive.entries() else {
        return unpacked;
    };
    for entry in entries {
        let read = entry.and_then(|entry| {
            let relative_path = String::from_utf8_lossy(&entry.path_bytes())
                .trim_start_matches("./")
                .to_owned();
            if !is_knowledge(folder, &relative_path) {
                return Ok(());
            }
            match entry.header().entry_type() {
                tar::EntryType::Regular => {
                    let mut content = Vec::new();
                    let length = entry.size();
                    let read = entry.take(MAX_READ_BYTES).read_to_end(&mut content)? as u64;
                    if read < length.min(MAX_READ_BYTES) {
                        return Err(std::io::ErrorKind::UnexpectedEof.into());
                    }
                    unpacked.files.push(KnowledgeFile {
                        path: format!("{folder}/{relative_path}"),
                        relative_path,
                        content,
                    });
                }
                tar::EntryType::Symlink if unpacked.links.len() < MAX_LINKS => {
                    unpacked.links.push(relative_path);
                }
                _ => {}
            }
            Ok(())
        });
        if read.is_err() {
            let problem = format!(
                "it is larger than {MAX_FOLDER_BYTES} bytes or changed while it was read: the rest is ignored"
            );
            unpacked.problems.push(KnowledgeProblem {
                path: folder.to_owned(),
                problem,
            });
            break;
        }
    }
    unpacked
}

/// Whether a file is knowledge. Other files in the folder of a skill are its resources.
fn is_knowledge(folder: &str, relative_path: &str) -> bool {
    let is_skill_resource = relative_path.contains('/') && !relative_path.ends_with("/SKILL.md");
    KnowledgeFile::is_knowledge_file(relative_path)
        && !(folder.ends_with("skills") && is_skill_resource)
}

#[cfg(test)]
mod tests;
