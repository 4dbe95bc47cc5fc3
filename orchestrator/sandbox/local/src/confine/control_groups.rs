//! The control groups of a confined process. It sees its own ones where programs look for those of
//! the host, because those contain names and the load of other sandboxes. Its groups are the roots
//! of its namespace, so that their names are hidden too.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ConfineError;
use super::mounts::{Content, Mount};

/// The file through which a process enters a group, and which lists its processes.
pub(crate) const GROUP_MEMBERS: &str = "cgroup.procs";

/// A control group of one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ControlGroup {
    pub(crate) folder: PathBuf,
    /// Mount point of the hierarchy.
    pub(crate) mount_point: PathBuf,
}

impl ControlGroup {
    /// Returns the group that a process is in: `self`, or an id. The hierarchy is of version 2.
    pub(crate) fn of_process(process: &str, mount_point: &Path) -> Result<Self, ConfineError> {
        let failed = |error| ConfineError::Group(mount_point.to_owned(), error);
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).map_err(failed)?;
        let path = own_path(&groups)
            .ok_or(io::ErrorKind::NotFound.into())
            .map_err(failed)?;
        Ok(Self {
            folder: mount_point.join(path),
            mount_point: mount_point.to_owned(),
        })
    }

    pub(super) fn enter(&self) -> Result<(), ConfineError> {
        let members = self.folder.join(GROUP_MEMBERS);
        // 0 is not an id: it means this process itself.
        fs::write(&members, "0").map_err(|error| ConfineError::Group(members, error))
    }

    pub(super) fn mount(&self) -> Mount {
        Mount {
            path: self.mount_point.clone(),
            content: Content::ReadOnly(self.folder.clone()),
        }
    }

    pub(super) fn bubblewrap_arguments(&self) -> [&OsStr; 3] {
        [
            OsStr::new("--ro-bind"),
            self.folder.as_os_str(),
            self.mount_point.as_os_str(),
        ]
    }
}

/// Returns the path of the group of version 2 below its mount point. `None` for the root, which is
/// the whole hierarchy.
fn own_path(groups: &str) -> Option<&str> {
    groups
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::own_path;

    #[test]
    fn group_of_version_2_is_found_among_others() {
        let groups = "9:name=systemd:/other\n0::/user.slice/run-r1.scope\n";
        assert_eq!(own_path(groups), Some("user.slice/run-r1.scope"));
        assert_eq!(own_path("4:memory:/docker/1\n0::/\n"), None);
    }
}
