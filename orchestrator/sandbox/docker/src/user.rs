//! User of a container that writes to folders of the host, so that new files belong to the right
//! user.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use engine::sandbox::{SandboxError, SandboxSpec};
use rustix::fs::Access;
use sandbox_client::provisioning::{check_workspace, unusable_workspace};

use super::engine::Engine;
use super::mounts::host_source;

/// User and group ids of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl User {
    const ROOT: Self = Self { uid: 0, gid: 0 };

    /// Returns the user of this process.
    fn of_this_process() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }
}

/// Selects the user for a spec's host folders, and checks access to them if they are visible from
/// here. `None` if no folder is writable, so that the image's user is used.
pub(super) async fn for_folders_of(
    engine: &Engine,
    spec: &SandboxSpec,
) -> Result<Option<User>, SandboxError> {
    let caller = User::of_this_process();
    let volumes = spec
        .volumes
        .iter()
        .filter_map(|volume| Some((host_source(volume)?, volume.read_only)));
    let written = volumes
        .clone()
        .filter(|(_, read_only)| !read_only)
        .map(|(path, _)| path);
    let first = spec.workspace.as_deref().or(written.clone().next());
    if !engine.is_local {
        // The folders are on the engine's host, and the engine refuses missing ones.
        return Ok(first.map(|_| caller));
    }
    if let Some(workspace) = &spec.workspace {
        check_workspace(workspace)?;
    }
    for (path, read_only) in volumes {
        check_source(path, read_only)?;
    }
    let Some(first) = first else { return Ok(None) };
    let user = if engine.is_rootless().await? {
        User::ROOT // of a rootless engine's containers: outside of them, that is the caller
    } else if caller != User::ROOT {
        caller
    } else {
        // If this process is root, new files must belong to the owner of the folder.
        let found = first
            .metadata()
            .map_err(|error| missing_source(first, &error))?;
        let owner = User {
            uid: found.uid(),
            gid: found.gid(),
        };
        check_rights_of(owner, spec.workspace.as_deref(), written)?;
        owner
    };
    Ok(Some(user))
}

/// Checks that this process can access a volume's source.
fn check_source(path: &Path, read_only: bool) -> Result<(), SandboxError> {
    let found = path
        .metadata()
        .map_err(|error| missing_source(path, &error))?;
    if read_only {
        return Ok(());
    }
    let needed = if found.is_dir() {
        Access::WRITE_OK | Access::EXEC_OK
    } else {
        Access::WRITE_OK
    };
    rustix::fs::access(path, needed).map_err(|error| unwritable_source(path, error))
}

/// Checks that another user than that of this process can write to the folders.
fn check_rights_of<'a>(
    user: User,
    workspace: Option<&Path>,
    mut sources: impl Iterator<Item = &'a Path>,
) -> Result<(), SandboxError> {
    let has_none = || format!("the user {user} has no right to");
    if let Some(workspace) = workspace
        && !may_write(workspace, user)
    {
        return Err(unusable_workspace(workspace, has_none()));
    }
    match sources.find(|source| !may_write(source, user)) {
        Some(source) => Err(unwritable_source(source, has_none())),
        None => Ok(()),
    }
}

/// Whether the mode permits writing. `true` if an ACL decides, or if the path is not visible.
fn may_write(path: &Path, user: User) -> bool {
    let Ok(found) = path.metadata() else {
        return true;
    };
    let has_access_list =
        rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0_u8; 0]).is_ok();
    if user.uid == 0 || has_access_list {
        return true;
    }
    let needed = if found.is_dir() { 0o3 } else { 0o2 };
    let shift = match () {
        () if found.uid() == user.uid => 6,
        () if found.gid() == user.gid => 3,
        () => 0,
    };
    (found.mode() >> shift) & needed == needed
}

/// Returns the error for a volume whose source is missing or not accessible.
fn missing_source(path: &Path, error: &io::Error) -> SandboxError {
    SandboxError::Invalid {
        detail: format!(
            "cannot mount the volume {}: {error}; create it first",
            path.display()
        ),
    }
}

/// Returns the error for a volume whose source is not writable.
fn unwritable_source(path: &Path, reason: impl fmt::Display) -> SandboxError {
    SandboxError::Invalid {
        detail: format!(
            "cannot write the volume {}: {reason}; mount it with :ro to only read it",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::{User, may_write};

    #[test]
    fn write_access_follows_the_mode() {
        let folder = tempfile::tempdir().unwrap();
        let owner = folder.path().metadata().unwrap();
        let (owner, other) = ((owner.uid(), owner.gid()), (1042, 1042));
        for (mode, owner_may, group_may, others_may) in [
            (0o700, true, false, false),
            (0o575, false, true, false),
            (0o557, false, false, true),
            (0o666, false, false, false),
        ] {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let may = |(uid, _): (u32, u32), (_, gid): (u32, u32)| {
                may_write(folder.path(), User { uid, gid })
            };
            if owner.0 != 0 {
                assert_eq!(may(owner, owner), owner_may, "{mode:o}");
            }
            assert_eq!(may(other, owner), group_may, "{mode:o}");
            assert_eq!(may(other, other), others_may, "{mode:o}");
        }
        assert!(
            may_write(folder.path(), User { uid: 0, gid: 0 }),
            "root may always"
        );
    }
}
