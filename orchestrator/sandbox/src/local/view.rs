//! What an isolated sandbox sees of the host's files.
//!
//! Everything, read-only, but for: this program's state folder with its secret, its logs and the other sandboxes; all
//! homes, where keys, tokens and histories lie, except the folders in them that hold nothing but tools; folders where the
//! host's services listen on sockets (`/run`) or that everyone writes to (`/tmp`, `/var/tmp`); files of the system that hold
//! secrets; and what the host names beside. The workspace is seen wherever it lies.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use engine::sandbox::SandboxError;

use super::folder::SandboxFolder;
use super::{Isolation, LocalConfig};
use crate::confine::Confinement;
use crate::placement::{start_error, unusable_workspace};

/// Homes, letters, and where services listen.
const HIDDEN_FOLDERS: [&str; 6] = ["/home", "/root", "/run", "/var/run", "/var/mail", "/var/spool"];

/// Where everyone writes, and a sandbox to a folder of its own.
const TEMPORARY_FOLDERS: [&str; 2] = ["/tmp", "/var/tmp"];

/// What only root can read, for sandboxes that root places: passwords, keys of the host, what engines and crons hold.
const SYSTEM_SECRETS: [&str; 19] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/security/opasswd",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
    "/etc/kubernetes",
    "/var/backups",
    "/var/lib/containerd",
    "/var/lib/docker",
    "/var/lib/kubelet",
    "/var/lib/sudo",
    "/swapfile",
    "/swap.img",
];

/// What in a home holds tools and no secrets, and is of use inside.
const TOOLS_AT_HOME: [&str; 12] = [
    ".asdf",
    ".cargo/bin",
    ".deno/bin",
    ".local/bin",
    ".local/lib",
    ".local/share/uv",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".sdkman/candidates",
    ".volta",
];

/// Where `/etc/resolv.conf` leads on systems that have a resolver of their own, for sandboxes with a network.
const NAME_SERVERS: &str = "/etc/resolv.conf";

/// Absolute paths without links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    /// Not seen, with all that is beneath.
    pub(super) hidden: Vec<PathBuf>,
    /// Seen as an own folder.
    pub(super) temporary: Vec<PathBuf>,
    /// Seen in what is hidden.
    pub(super) readable: Vec<PathBuf>,
    /// Written to.
    pub(super) writable: Vec<PathBuf>,
}

impl View {
    /// What a sandbox in `folder` sees that works in `workspace` and runs the server `binary`.
    pub(super) fn of(config: &LocalConfig, folder: &SandboxFolder, workspace: &Path, binary: &Path) -> Self {
        let home = config.home();
        // Others are refused them anyway, and folders with something hidden in them cannot be listed under Landlock.
        let secrets = rustix::process::geteuid().is_root().then_some(SYSTEM_SECRETS);
        let folders = HIDDEN_FOLDERS.into_iter().chain(secrets.into_iter().flatten()).map(PathBuf::from);
        let hidden =
            folders.chain([config.state_dir.clone()]).chain(home.clone()).chain(config.hidden.clone());
        let tools = home.iter().flat_map(|home| TOOLS_AT_HOME.map(|tool| home.join(tool)));
        let name_servers = config.network.then(|| PathBuf::from(NAME_SERVERS));
        let writable = [folder.socket_folder(), folder.home(), folder.temporary(), workspace.to_owned()];
        Self {
            hidden: present(hidden),
            temporary: present(TEMPORARY_FOLDERS.map(PathBuf::from)),
            readable: present(tools.chain(name_servers).chain([binary.to_owned()])),
            writable: present(writable),
        }
    }

    /// The folders of a `PATH` that are seen. One that is not would still be found under Landlock, and what lies in it
    /// refused, where another folder has the same program.
    pub(super) fn search_path(&self, path: &OsStr) -> OsString {
        let folders = std::env::split_paths(path);
        let seen = folders.filter(|folder| folder.canonicalize().is_ok_and(|folder| self.shows(&folder)));
        // They were split at what they cannot be joined with.
        std::env::join_paths(seen).unwrap_or_else(|_| path.to_owned())
    }

    fn shows(&self, path: &Path) -> bool {
        let nearest = |paths: &[PathBuf]| {
            let above = paths.iter().filter(|above| path.starts_with(above));
            above.map(|above| above.components().count()).max()
        };
        let shown = nearest(&self.readable).max(nearest(&self.writable));
        shown >= nearest(&self.hidden).max(nearest(&self.temporary))
    }

    /// Puts links to the tools of the user's home into the sandbox's own.
    pub(super) fn link_tools(config: &LocalConfig, folder: &SandboxFolder) -> std::io::Result<()> {
        let Some(home) = config.home() else { return Ok(()) };
        for tool in TOOLS_AT_HOME.map(Path::new).into_iter().filter(|tool| home.join(tool).exists()) {
            let link = folder.home().join(tool);
            if let Some(parent) = link.parent() {
                std::fs::create_dir_all(parent)?;
            }
            symlink(home.join(tool), link)?;
        }
        Ok(())
    }

    /// The same without mounts.
    ///
    /// # Errors
    /// Something hidden lies in what is written to: rules can give a folder whole, or not at all.
    pub(super) fn confinement(&self, network: bool) -> Result<Confinement, SandboxError> {
        for hidden in &self.hidden {
            let within = self.writable.iter().find(|writable| hidden.starts_with(writable));
            if let Some(writable) = within.filter(|writable| *writable != hidden) {
                return Err(start_error(format!(
                    "the workspace {} has {} in it, which only bubblewrap could hide: install it, or choose a folder beneath",
                    writable.display(),
                    hidden.display()
                )));
            }
        }
        let hidden = self.hidden.iter().chain(&self.temporary).cloned().collect();
        Ok(Confinement { hidden, readable: self.readable.clone(), writable: self.writable.clone(), network })
    }
}

/// Refuses a workspace that root could write to only with the powers that a sandbox does not have.
pub(super) fn check_owner(workspace: &Path, isolation: &Isolation) -> Result<(), SandboxError> {
    if *isolation == Isolation::None || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let found = std::fs::metadata(workspace).map_err(|error| unusable_workspace(workspace, error))?;
    if found.uid() == 0 || found.mode() & 0o003 == 0o003 {
        return Ok(());
    }
    let reason = format!(
        "it belongs to user {}, and root in a sandbox has no power over other users' files; run this as that user",
        found.uid()
    );
    Err(unusable_workspace(workspace, reason))
}

/// Those that are there, without links.
fn present(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut present: Vec<PathBuf> = paths.into_iter().filter_map(|path| path.canonicalize().ok()).collect();
    present.retain(|path| path != Path::new("/"));
    present.sort();
    present.dedup();
    present
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::View;

    #[test]
    fn programs_are_not_looked_for_where_nothing_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let folders = ["bin", "home/bin", "home/tools/bin"].map(|path| root.join(path));
        folders.iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        let (hidden, readable) = (vec![root.join("home")], vec![root.join("home/tools")]);
        let view = View { hidden, readable, ..View::default() };
        let path = std::env::join_paths(&folders).unwrap();
        let seen: Vec<PathBuf> = std::env::split_paths(&view.search_path(&path)).collect();
        assert_eq!(seen, [root.join("bin"), root.join("home/tools/bin")]);
    }
}
