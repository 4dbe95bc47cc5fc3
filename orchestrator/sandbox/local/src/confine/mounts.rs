//! A root directory that consists of parts of the host's. The process cannot access the rest.
//!
//! Every mount is read-only, `nosuid` and `nodev` unless it is declared otherwise. A read-only
//! mount also prevents changes that Landlock does not cover: mode, owner, times and extended
//! attributes.

use std::ffi::{CStr, CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, fstat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_change, mount_remount, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, pivot_root};
use serde::{Deserialize, Serialize};

use super::ConfineError;

/// Upper bound of `/dev/shm`, in bytes; the default of Docker. Its memory stays in use after the
/// process that wrote it.
pub(crate) const SHARED_MEMORY_BYTES: u32 = 64 << 20;

/// The mount point of the new root: a directory that exists on every host and is not the source of
/// a mount.
const STAGING: &str = "/proc";

/// The device files of the new root. Its terminals are its own.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The links in `/dev` that programs expect.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("pts/ptmx", "dev/ptmx"),
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
];

/// One path of the new root. Paths are absolute and contain no links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) path: PathBuf,
    pub(crate) content: Content,
}

/// The content at a path of the new root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Content {
    /// A symbolic link with this target.
    Link(PathBuf),
    /// An empty directory.
    Empty,
    /// Hides the content of the parent mount with an empty directory, or a file that cannot be
    /// opened.
    Hidden,
    /// A read-only file or directory of the host. Skipped if it does not exist any more.
    ReadOnly(PathBuf),
    /// A file or directory of the host.
    Writable(PathBuf),
}

/// Switches to the new root. This process must be the first of its own process namespace and have
/// its own mount namespace. In `mounts`, a directory precedes its content.
pub(super) fn enter(mounts: &[Mount]) -> Result<(), ConfineError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(failed("make mounts private"))?;
    // Cloned before the new root covers anything.
    let sources = mounts
        .iter()
        .map(clone_source)
        .collect::<Result<Vec<_>, _>>()?;
    let devices = DEVICES
        .iter()
        .map(|name| clone_tree(&Path::new("/dev").join(name)));
    let devices = devices.collect::<Result<Vec<_>, _>>()?;

    mount_tmpfs(Path::new(STAGING), c"mode=755")?;
    chdir(STAGING).map_err(failed("enter the new root"))?;
    mount_devices(&devices)?;
    create(Path::new("proc"), true)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "proc", "proc", flags, None).map_err(failed("mount proc"))?;
    for (each, source) in mounts.iter().zip(sources) {
        mount_one(each, source.as_ref())?;
    }

    pivot_root(".", ".").map_err(failed("change the root"))?;
    unmount(".", UnmountFlags::DETACH).map_err(failed("detach the host's root"))?;
    chdir("/").map_err(failed("enter the new root"))?;
    restrict_mounts(mounts)
}

/// Clones the source of a mount. `None` if the mount has no source, or a read-only source does not
/// exist any more.
fn clone_source(each: &Mount) -> Result<Option<OwnedFd>, ConfineError> {
    match &each.content {
        Content::ReadOnly(source) => match clone_tree(source) {
            Err(_) if is_gone(&each.content) => Ok(None),
            cloned => cloned.map(Some),
        },
        Content::Writable(source) => clone_tree(source).map(Some),
        Content::Link(_) | Content::Empty | Content::Hidden => Ok(None),
    }
}

/// Attaches one mount. The working directory is the new root.
fn mount_one(each: &Mount, source: Option<&OwnedFd>) -> Result<(), ConfineError> {
    let path = each.path.strip_prefix("/").unwrap_or(&each.path);
    match &each.content {
        Content::Link(target) => link(target, path),
        Content::Empty => create(path, true),
        Content::Hidden if path.is_dir() => mount_tmpfs(path, c"mode=755"),
        Content::Hidden => attach(&clone_tree(Path::new("dev/null"))?, path),
        Content::ReadOnly(_) | Content::Writable(_) => {
            let Some(source) = source else { return Ok(()) };
            let status = fstat(source).map_err(failed("inspect a mount"))?;
            create(path, FileType::from_raw_mode(status.st_mode).is_dir())?;
            match attach(source, path) {
                // Removed since it was cloned: the kernel attaches no deleted file.
                Err(_) if is_gone(&each.content) => Ok(()),
                attached => attached,
            }
        }
    }
}

/// Whether a read-only source does not exist any more, as a temporary file that the host has
/// removed meanwhile.
fn is_gone(content: &Content) -> bool {
    matches!(content, Content::ReadOnly(source) if !source.exists())
}

fn mount_devices(devices: &[OwnedFd]) -> Result<(), ConfineError> {
    create(Path::new("dev"), true)?;
    mount_tmpfs(Path::new("dev"), c"mode=755")?;
    for (name, device) in DEVICES.iter().zip(devices) {
        let path = Path::new("dev").join(name);
        create(&path, false)?;
        attach(device, &path)?;
    }
    for (target, path) in DEVICE_LINKS {
        link(Path::new(target), Path::new(path))?;
    }
    create(Path::new("dev/pts"), true)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = c"newinstance,ptmxmode=0666,mode=620";
    mount("devpts", "dev/pts", "devpts", flags, options).map_err(failed("mount devpts"))?;
    create(Path::new("dev/shm"), true)?;
    let size = CString::new(format!("mode=1777,size={SHARED_MEMORY_BYTES}"));
    mount_tmpfs(Path::new("dev/shm"), &size.unwrap_or_default())
}

/// Applies the flags of each [`Mount`]. A nested mount of the host gets those of its parent.
fn restrict_mounts(mounts: &[Mount]) -> Result<(), ConfineError> {
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(failed("list mounts"))?;
    for line in table.lines() {
        let [_, _, _, _, path, options, ..] = line.split(' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        let path = PathBuf::from(OsString::from_vec(unescape(path)));
        let has = |option| options.split(',').any(|each| each == option);
        let mut flags = MountFlags::BIND | MountFlags::NOSUID;
        // A flag that the host has set cannot be cleared.
        flags.set(MountFlags::NOEXEC, has("noexec"));
        flags.set(MountFlags::NODEV, has("nodev") || !path.starts_with("/dev"));
        flags.set(MountFlags::RDONLY, has("ro") || !is_writable(&path, mounts));
        let restricted = mount_remount(&path, flags, c"");
        restricted.map_err(failed(format!("restricting {}", path.display())))?;
    }
    Ok(())
}

fn is_writable(path: &Path, mounts: &[Mount]) -> bool {
    let above = mounts.iter().filter(|each| path.starts_with(&each.path));
    match above
        .max_by_key(|each| each.path.components().count())
        .map(|nearest| &nearest.content)
    {
        Some(content) => matches!(content, Content::Writable(_)),
        None => ["/proc", "/dev/pts", "/dev/shm"]
            .iter()
            .any(|writable| path == Path::new(writable)),
    }
}

/// Decodes the octal escapes of `/proc/self/mountinfo`.
fn unescape(text: &str) -> Vec<u8> {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part
            .split_at_checked(3)
            .map(|(digits, rest)| (u8::from_str_radix(digits, 8), rest))
        {
            Some((Ok(byte), rest)) => {
                bytes.push(byte);
                bytes.extend(rest.as_bytes());
            }
            // Not an escape sequence.
            _ => bytes.extend([b"\\", part.as_bytes()].concat()),
        }
    }
    bytes
}

/// Returns a detached copy of the mounts at and below a path.
fn clone_tree(path: &Path) -> Result<OwnedFd, ConfineError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, path, flags).map_err(failed(format!("clone the mount of {}", path.display())))
}

fn attach(tree: &OwnedFd, path: &Path) -> Result<(), ConfineError> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(tree, "", CWD, path, flags).map_err(failed(format!("mounting {}", path.display())))
}

fn mount_tmpfs(path: &Path, options: &CStr) -> Result<(), ConfineError> {
    let mounted = mount(
        "tmpfs",
        path,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        options,
    );
    mounted.map_err(failed(format!("mount an empty {}", path.display())))
}

/// Creates an empty file or directory, with its parents, unless it exists.
fn create(path: &Path, is_dir: bool) -> Result<(), ConfineError> {
    let created = match is_dir {
        true => fs::create_dir_all(path),
        false if path.exists() => Ok(()),
        false => create_parents(path).and_then(|()| File::create(path).map(drop)),
    };
    created.map_err(failed(format!("creating {}", path.display())))
}

fn link(target: &Path, path: &Path) -> Result<(), ConfineError> {
    let linked = create_parents(path).and_then(|()| symlink(target, path));
    linked.map_err(failed(format!("linking {}", path.display())))
}

fn create_parents(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

fn failed<E: Into<io::Error>>(operation: impl Into<String>) -> impl FnOnce(E) -> ConfineError {
    |error| ConfineError::Namespaces {
        operation: operation.into(),
        source: error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Content, Mount, is_writable, unescape};

    #[test]
    fn nearest_mount_determines_whether_a_path_is_writable() {
        let mount = |path: &str, content: fn(std::path::PathBuf) -> Content| Mount {
            path: path.into(),
            content: content(path.into()),
        };
        let mounts = [
            mount("/proc/sys", Content::ReadOnly),
            mount("/usr", Content::ReadOnly),
            mount("/project", Content::Writable),
            mount("/project/state", |_| Content::Hidden),
        ];
        for writable in [
            "/proc",
            "/dev/shm",
            "/dev/pts",
            "/project",
            "/project/nested",
        ] {
            assert!(is_writable(Path::new(writable), &mounts), "{writable}");
        }
        for read_only in [
            "/",
            "/dev",
            "/dev/null",
            "/proc/sys",
            "/usr",
            "/usr/nested",
            "/project/state",
        ] {
            assert!(!is_writable(Path::new(read_only), &mounts), "{read_only}");
        }
    }

    #[test]
    fn escaped_mount_points_are_decoded() {
        assert_eq!(unescape(r"/a\040b\134c"), br"/a b\c");
        assert_eq!(unescape(r"/a\9"), br"/a\9");
    }
}
