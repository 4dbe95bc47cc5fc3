//! The host's files that are visible in an isolated sandbox: only those that are listed here.
//!
//! These are programs and their data (`/usr`, `/bin`, `/lib`, …), the world-readable part of
//! `/etc`, some kernel information, folders of the user's home that contain only tools, the
//! configured volumes, and the workspace. `/tmp` and the home are the sandbox's own, and so are
//! `/dev` and `/proc`, which each isolation provides.
//!
//! A visible unix socket can be connected to without a network. Therefore, folders in which
//! services listen (`/run`, `/var/lib`, `/opt`) are never visible as a whole.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use engine::sandbox::{SandboxError, Volume};
use rustix::fs::{Access, access};
use sandbox_client::provisioning::{start_error, unusable_workspace};

use super::folder::SandboxFolder;
use super::{Isolation, LocalConfig};
use crate::confine::{Content, Mount};

/// Programs, libraries and their data. `/nix/store` and `/gnu/store` contain them on NixOS and
/// Guix.
const PROGRAMS: [&str; 9] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
];

/// Data of installed programs in other places, and files that language runtimes read to size
/// themselves.
const PROGRAM_DATA: [&str; 7] = [
    "/var/cache/fontconfig",
    "/var/lib/ca-certificates",
    "/var/lib/dpkg",
    "/var/lib/texmf",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/transparent_hugepage",
];

/// Configuration, which may be partly secret.
const CONFIGURATION: &str = "/etc";

/// Links below other folders, which programs use in paths.
const LINKS: [&str; 4] = ["/run/current-system", "/var/lock", "/var/run", "/var/tmp"];

/// World-writable folders, which are replaced by the sandbox's own.
const TEMPORARY_FOLDERS: [&str; 2] = ["/tmp", "/var/tmp"];

/// Empty folders that programs expect.
const EMPTY_FOLDERS: [&str; 2] = ["/run", "/var"];

/// Folders of a home that contain tools and no secrets.
const TOOLS_AT_HOME: [&str; 13] = [
    ".asdf",
    ".cargo/bin",
    ".deno/bin",
    ".local/bin",
    ".local/lib",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".sdkman/candidates",
    ".volta",
];

/// Targets of `/etc/resolv.conf` on systems with a local resolver, for sandboxes with a network.
const NAME_SERVERS: &str = "/etc/resolv.conf";

/// World-readable files of `/proc` with information about the host: its keys and timers.
const HOST_INFORMATION: [&str; 3] = ["/proc/keys", "/proc/key-users", "/proc/timer_list"];

/// Mounts in order: a folder before its content, each path once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View(Vec<Mount>);

impl View {
    /// Returns the mounts that every program needs.
    pub(super) fn base() -> Self {
        let mut view = Self::default();
        let root = fs::read_dir("/")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        for path in root.chain(LINKS.map(PathBuf::from)) {
            if let Ok(target) = fs::read_link(&path) {
                view.add(path, Content::Link(target));
            }
        }
        for path in EMPTY_FOLDERS
            .map(PathBuf::from)
            .into_iter()
            .filter(|path| !path.is_symlink())
        {
            view.add(path, Content::Empty);
        }
        for path in PROGRAMS.into_iter().chain(PROGRAM_DATA).map(PathBuf::from) {
            if !path.is_symlink() && path.exists() {
                view.add_read_only(path);
            }
        }
        match public_part(Path::new(CONFIGURATION)) {
            PublicPart::All => view.add_read_only(CONFIGURATION.into()),
            PublicPart::Some(mounts) => mounts
                .into_iter()
                .for_each(|each| view.add(each.path, each.content)),
            PublicPart::None => {}
        }
        view.restrict_kernel_settings();
        view.sorted()
    }

    /// Returns the view of the sandbox in `folder` with this `workspace` and server `binary`.
    ///
    /// # Errors
    /// A volume is not a path of the host.
    pub(super) fn for_sandbox(
        config: &LocalConfig,
        folder: &SandboxFolder,
        workspace: &Path,
        binary: &Path,
        volumes: &[Volume],
    ) -> Result<Self, SandboxError> {
        let mut view = Self::base();
        let home = config.home();
        // A sandbox with the home as its workspace may have created a link out of it.
        let tools = home.iter().flat_map(|home| {
            let tools = TOOLS_AT_HOME
                .iter()
                .filter_map(|tool| home.join(tool).canonicalize().ok());
            tools
                .filter(|tool| tool.starts_with(home))
                .collect::<Vec<_>>()
        });
        tools.for_each(|tool| view.add_read_only(tool));
        if config.network
            && let Ok(name_servers) = Path::new(NAME_SERVERS).canonicalize()
        {
            view.add_read_only(name_servers);
        }
        for temporary in TEMPORARY_FOLDERS.map(PathBuf::from) {
            let path = temporary.canonicalize().unwrap_or(temporary);
            view.add(path, Content::Writable(folder.temporary()));
        }
        for volume in volumes {
            view.add_volume(volume)?;
        }
        let own = [
            folder.socket_folder(),
            folder.home(),
            workspace.to_owned(),
            binary.to_owned(),
        ];
        let own = own.map(|path| path.canonicalize().unwrap_or(path));
        let [writable @ .., binary] = &own;
        writable
            .iter()
            .for_each(|path| view.add(path.clone(), Content::Writable(path.clone())));
        view.add_read_only(binary.clone());
        let hidden = config.hidden.iter().chain([&config.state_dir]);
        hidden
            .filter_map(|path| path.canonicalize().ok())
            .for_each(|path| view.hide(path, &own));
        Ok(view.sorted())
    }

    pub(super) fn mounts(&self) -> &[Mount] {
        &self.0
    }

    /// Returns the visible folders of a `PATH`.
    pub(super) fn search_path(&self, path: &OsStr) -> OsString {
        let folders = std::env::split_paths(path);
        let visible = folders.filter(|folder| {
            folder
                .canonicalize()
                .is_ok_and(|folder| self.is_visible(&folder))
        });
        // Cannot fail: the parts contain no separator.
        std::env::join_paths(visible).unwrap_or_else(|_| path.to_owned())
    }

    /// Whether a path without links has the same target as outside.
    fn is_visible(&self, path: &Path) -> bool {
        let above = self.0.iter().filter(|each| path.starts_with(&each.path));
        match above.max_by_key(|each| each.path.components().count()) {
            Some(Mount {
                path,
                content: Content::ReadOnly(source) | Content::Writable(source),
            }) => path == source,
            _ => false,
        }
    }

    /// Links the tools of the user's home into the sandbox's home.
    pub(super) fn link_tools(config: &LocalConfig, folder: &SandboxFolder) -> std::io::Result<()> {
        let Some(home) = config.home() else {
            return Ok(());
        };
        for tool in TOOLS_AT_HOME
            .map(Path::new)
            .into_iter()
            .filter(|tool| home.join(tool).exists())
        {
            let link = folder.home().join(tool);
            if let Some(parent) = link.parent() {
                fs::create_dir_all(parent)?;
            }
            symlink(home.join(tool), link)?;
        }
        Ok(())
    }

    fn add_volume(&mut self, volume: &Volume) -> Result<(), SandboxError> {
        let unusable = |reason: String| {
            start_error(format!(
                "cannot mount the volume {}: {reason}",
                volume.source
            ))
        };
        let source = Path::new(&volume.source);
        if !source.is_absolute() {
            return Err(unusable("a local sandbox has no named volumes".into()));
        }
        let source = source
            .canonicalize()
            .map_err(|error| unusable(error.to_string()))?;
        let content = if volume.read_only {
            Content::ReadOnly
        } else {
            Content::Writable
        };
        self.add(volume.target.clone().into(), content(source));
        Ok(())
    }

    /// Protects the part of `/proc` that configures the host's kernel or is readable only by root.
    /// Root is restricted only by these mounts, other users by the modes of the files.
    fn restrict_kernel_settings(&mut self) {
        let hidden = HOST_INFORMATION
            .map(PathBuf::from)
            .into_iter()
            .filter(|path| path.exists());
        hidden.for_each(|path| self.add(path, Content::Hidden));
        if !rustix::process::geteuid().is_root() {
            return;
        }
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let path = entry.path();
            let is_process = entry.file_name().to_string_lossy().parse::<u32>().is_ok();
            let Ok(found) = fs::symlink_metadata(&path) else {
                continue;
            };
            if is_process || found.is_symlink() || self.0.iter().any(|each| each.path == path) {
                continue;
            }
            if !others_can_read(&found) {
                self.add(path, Content::Hidden);
            } else if found.is_dir() || found.mode() & 0o222 != 0 {
                self.add_read_only(path);
            }
        }
    }

    /// Hides a path and its content, except `own`.
    fn hide(&mut self, hidden: PathBuf, own: &[PathBuf]) {
        if own.contains(&hidden) {
            return;
        }
        self.0
            .retain(|each| !each.path.starts_with(&hidden) || own.contains(&each.path));
        if self.is_visible(&hidden) {
            self.add(hidden, Content::Hidden);
        }
    }

    fn add_read_only(&mut self, path: PathBuf) {
        self.add(path.clone(), Content::ReadOnly(path));
    }

    /// Adds a mount. Replaces an earlier one at the same path.
    fn add(&mut self, path: PathBuf, content: Content) {
        self.0.retain(|each| each.path != path);
        self.0.push(Mount { path, content });
    }

    fn sorted(mut self) -> Self {
        self.0.sort_by_key(|each| each.path.components().count());
        self
    }
}

/// The part of a file or folder that is world-readable.
enum PublicPart {
    All,
    /// A folder that also contains secrets: its other entries individually. Hiding the secrets
    /// would not be reliable, because a file that the host replaces, such as the password file,
    /// loses its cover.
    Some(Vec<Mount>),
    None,
}

fn public_part(path: &Path) -> PublicPart {
    let Ok(found) = fs::symlink_metadata(path) else {
        return PublicPart::None;
    };
    let kind = found.file_type();
    if kind.is_symlink() {
        return PublicPart::All;
    }
    // Processes in the sandbox cannot read it either.
    let is_secret = !others_can_read(&found) && access(path, Access::READ_OK).is_ok();
    if is_secret
        || kind.is_socket()
        || kind.is_fifo()
        || kind.is_block_device()
        || kind.is_char_device()
    {
        return PublicPart::None;
    }
    let entries = if kind.is_dir() {
        fs::read_dir(path).ok()
    } else {
        None
    };
    let entries = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let parts: Vec<_> = entries.map(|entry| (public_part(&entry), entry)).collect();
    if parts
        .iter()
        .all(|(part, _)| matches!(part, PublicPart::All))
    {
        return PublicPart::All;
    }
    let mounts = parts.into_iter().flat_map(|(part, path)| match part {
        PublicPart::All => {
            let link = fs::read_link(&path).map(Content::Link);
            vec![Mount {
                content: link.unwrap_or_else(|_| Content::ReadOnly(path.clone())),
                path,
            }]
        }
        PublicPart::Some(mounts) => mounts,
        PublicPart::None => Vec::new(),
    });
    PublicPart::Some(mounts.collect())
}

fn others_can_read(found: &Metadata) -> bool {
    let needed = if found.is_dir() { 0o005 } else { 0o004 };
    found.mode() & needed == needed
}

/// Rejects a workspace that root could write to only with capabilities that a sandbox does not
/// have.
pub(super) fn check_owner(workspace: &Path, isolation: &Isolation) -> Result<(), SandboxError> {
    if *isolation == Isolation::None || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let found = fs::metadata(workspace).map_err(|error| unusable_workspace(workspace, error))?;
    if found.uid() == 0 || found.mode() & 0o003 == 0o003 {
        return Ok(());
    }
    let reason = format!(
        "it belongs to user {}, and root in a sandbox cannot write other users' files; run glovebox as that user",
        found.uid()
    );
    Err(unusable_workspace(workspace, reason))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use super::{Content, Mount, PublicPart, View, public_part};

    #[test]
    fn search_path_contains_only_visible_folders() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let folders = ["bin", "home/bin", "home/tools/bin", "tmp/bin"].map(|path| root.join(path));
        folders
            .iter()
            .for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        let mut view = View::default();
        view.add_read_only(root.join("bin"));
        view.add_read_only(root.join("home/tools"));
        view.add(root.join("tmp"), Content::Writable(root.join("own")));
        let path = std::env::join_paths(&folders).unwrap();
        let visible: Vec<PathBuf> = std::env::split_paths(&view.search_path(&path)).collect();
        assert_eq!(visible, [root.join("bin"), root.join("home/tools/bin")]);
    }

    #[test]
    fn folder_with_secrets_is_mounted_entry_by_entry() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::set_permissions(root, Permissions::from_mode(0o755)).unwrap();
        for (path, mode) in [("public", 0o755), ("keys", 0o755), ("closed", 0o700)] {
            std::fs::create_dir(root.join(path)).unwrap();
            std::fs::set_permissions(root.join(path), Permissions::from_mode(mode)).unwrap();
        }
        for (path, mode) in [
            ("public/file", 0o644),
            ("keys/host", 0o600),
            ("keys/host.pub", 0o644),
        ] {
            std::fs::write(root.join(path), "").unwrap();
            std::fs::set_permissions(root.join(path), Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink("public/file", root.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();

        assert!(matches!(public_part(&root.join("public")), PublicPart::All));
        let PublicPart::Some(mut mounts) = public_part(root) else {
            panic!("mounted as a whole, or not at all")
        };
        mounts.sort_by(|one, other| one.path.cmp(&other.path));
        let read_only = |path: &str| Mount {
            path: root.join(path),
            content: Content::ReadOnly(root.join(path)),
        };
        let link = Mount {
            path: root.join("link"),
            content: Content::Link("public/file".into()),
        };
        assert_eq!(
            mounts,
            [read_only("keys/host.pub"), link, read_only("public")]
        );
    }
}
