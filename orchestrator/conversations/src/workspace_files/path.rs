//! Resolves paths below the workspace. Follows links itself, so that none leads out of it.

use std::collections::VecDeque;

use engine::sandbox::SandboxFiles;
use protocol::sandbox_api::{FileKind, FileStatus};

use super::error::WorkspaceError;

/// Maximum length of a path, as in the kernel.
const MAX_PATH_BYTES: usize = 4096;

/// Maximum number of components, because each is a request to the sandbox.
const MAX_COMPONENTS: usize = 64;

/// Maximum number of links, as in the kernel.
const MAX_LINKS: usize = 40;

/// A path without links.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WorkspacePath {
    /// Relative to the workspace; empty for the workspace itself.
    pub(super) relative: String,
    /// In the sandbox.
    pub(super) absolute: String,
    /// `None` if it does not exist. Also `None` for the workspace itself.
    pub(super) status: Option<FileStatus>,
}

impl WorkspacePath {
    /// Whether it is the workspace itself.
    pub(super) fn is_root(&self) -> bool {
        self.relative.is_empty()
    }

    /// Checks that it is a regular file.
    pub(super) fn check_file(&self) -> Result<(), WorkspaceError> {
        match self.status.as_ref().map(|status| status.kind) {
            None if !self.is_root() => Err(WorkspaceError::NotFound(self.relative.clone())),
            Some(FileKind::File) => Ok(()),
            None | Some(_) => Err(WorkspaceError::NotAFile(self.relative.clone())),
        }
    }

    /// Checks that it is a folder.
    pub(super) fn check_folder(&self) -> Result<(), WorkspaceError> {
        match self.status.as_ref().map(|status| status.kind) {
            None if !self.is_root() => Err(WorkspaceError::NotFound(self.relative.clone())),
            None | Some(FileKind::Directory) => Ok(()),
            Some(_) => Err(WorkspaceError::NotAFolder(self.relative.clone())),
        }
    }
}

/// Resolves a path that is relative to the workspace, or absolute and below it. It need not exist.
pub(super) async fn resolve(
    files: &dyn SandboxFiles,
    root: &str,
    path: &str,
) -> Result<WorkspacePath, WorkspaceError> {
    let outside = || WorkspaceError::Outside(path.to_owned());
    let mut pending: VecDeque<String> = components(path, root)?.ok_or_else(outside)?;
    let (mut resolved, mut status, mut link_count) = (Vec::<String>::new(), None, 0);
    let mut component_count = 0;
    while let Some(component) = pending.pop_front() {
        component_count += 1;
        if component_count + pending.len() > MAX_COMPONENTS {
            return Err(invalid(path, "has too many components"));
        }
        if component == ".." {
            resolved.pop().ok_or_else(outside)?;
            status = None;
            continue;
        }
        resolved.push(component);
        status = files.link_status(&join(root, &resolved)).await?;
        match &status {
            Some(FileStatus {
                kind: FileKind::Symlink,
                target,
                ..
            }) => {
                link_count += 1;
                let target = target
                    .as_deref()
                    .filter(|_| link_count <= MAX_LINKS)
                    .ok_or_else(outside)?;
                if target.starts_with('/') {
                    resolved.clear();
                } else {
                    resolved.pop();
                }
                let target = components(target, root)?.ok_or_else(outside)?;
                // Of the link. The workspace itself has none.
                status = None;
                target
                    .into_iter()
                    .rev()
                    .for_each(|component| pending.push_front(component));
            }
            Some(_) => {}
            // Nothing below exists, so there are no further links.
            None if pending.iter().any(|component| component == "..") => return Err(outside()),
            None => resolved.extend(pending.drain(..)),
        }
    }
    let absolute = join(root, &resolved);
    if status.is_none() && !resolved.is_empty() {
        // `..` may have led to a folder.
        status = files.link_status(&absolute).await?;
    }
    Ok(WorkspacePath {
        relative: resolved.join("/"),
        absolute,
        status,
    })
}

/// Resolves the folder of a path, and keeps its name: a link is not followed. It need not exist.
pub(super) async fn resolve_name(
    files: &dyn SandboxFiles,
    root: &str,
    path: &str,
) -> Result<WorkspacePath, WorkspaceError> {
    check(path)?;
    let path = path.trim_end_matches('/');
    let name = path.rsplit('/').next().unwrap_or_default();
    if ["", ".", ".."].contains(&name) {
        return Err(invalid(path, "does not end in a name"));
    }
    // With its slash, without which `/name` would be in the workspace.
    let folder = resolve(files, root, &path[..path.len() - name.len()]).await?;
    let absolute = format!("{}/{name}", folder.absolute.trim_end_matches('/'));
    Ok(WorkspacePath {
        relative: match folder.is_root() {
            true => name.to_owned(),
            false => format!("{}/{name}", folder.relative),
        },
        status: files.link_status(&absolute).await?,
        absolute,
    })
}

/// Checks what no path may have.
fn check(path: &str) -> Result<(), WorkspaceError> {
    if path.len() > MAX_PATH_BYTES {
        return Err(invalid(
            &path[..path.floor_char_boundary(64)],
            "is too long",
        ));
    }
    if path.contains('\0') {
        return Err(invalid(path, "has a NUL byte"));
    }
    Ok(())
}

/// Splits a path into its components below the root. `None` if it is absolute and not below the
/// root.
fn components(path: &str, root: &str) -> Result<Option<VecDeque<String>>, WorkspaceError> {
    check(path)?;
    let below = if path.starts_with('/') {
        match path.strip_prefix(root) {
            Some(below) if root.is_empty() || below.is_empty() || below.starts_with('/') => below,
            _ => return Ok(None),
        }
    } else {
        path
    };
    let names = below
        .split('/')
        .filter(|name| !name.is_empty() && *name != ".");
    Ok(Some(names.map(str::to_owned).collect()))
}

fn join(root: &str, components: &[String]) -> String {
    if components.is_empty() && !root.is_empty() {
        return root.to_owned();
    }
    format!("{root}/{}", components.join("/"))
}

fn invalid(path: &str, problem: &'static str) -> WorkspaceError {
    WorkspaceError::InvalidPath {
        path: path.to_owned(),
        problem,
    }
}
