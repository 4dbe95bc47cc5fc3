//! Unpacks an archive into a folder. It is first unpacked into a temporary folder, whose contents
//! are moved to the target once the archive is complete, so that nothing is left of a rejected one.
//! Existing files are kept, unless the archive has a file of the same path. A folder never replaces
//! a file, nor a file or link a folder.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use remove_folder::{ProtectedFolders, remove_folder};
use tar::{Archive, Entry, EntryType};
use tokio::sync::mpsc::Receiver;

use super::entry_path::{below, clip, link_stays_within};
use super::folder::{Folder, FolderEntry};
use super::input::{ArchiveInput, BodyPart, ReceivedBytes};
use crate::files::error::FileError;
use crate::files::resolved_path::ResolvedPath;
use crate::files::temporary::unused_name;
use crate::files::{Files, PART_BYTES};

/// Limits of one archive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArchiveLimits {
    pub(crate) entries: u64,
    /// Maximum size of the contents, including holes.
    pub(crate) bytes: u64,
    /// Size of the contents from which on it may be at most [`MAX_RATIO`] times the bytes received
    /// so far. Only sparse files make an archive shorter than its contents.
    pub(crate) free_bytes: u64,
}

/// Maximum ratio of the size of the contents to that of the archive, above
/// [`ArchiveLimits::free_bytes`].
const MAX_RATIO: u64 = 100;

/// Maximum number of bytes between the contents of two entries: headers, long names, attributes.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Padding between the content of an entry and the next header.
const BLOCK_BYTES: u64 = 512;

/// Unpacks into `path`, which is created if it does not exist.
pub(crate) fn unpack(
    files: &Files,
    path: &Path,
    arriving: Receiver<BodyPart>,
    limits: ArchiveLimits,
) -> Result<(), FileError> {
    let target = files.resolve_target(path)?;
    let failed = |error| FileError::io("unpack into", target.display_path(), error);
    let staging = StagingFolder::create(&target)?;
    let unpacked = staging.open().map_err(failed)?;
    let input = ArchiveInput::new(arriving);
    let (received, target_path) = (input.received(), target.display_path());
    Unpacker {
        root: &unpacked,
        limits,
        entries: 0,
        bytes: 0,
        received,
        target: target_path,
    }
    .run(input)?;
    let _lock = files.lock(&target);
    let made = create_target(&target)?;
    let into = Folder::open(&made).map_err(failed)?;
    if let Some(conflicting) = conflict(&unpacked, &into).map_err(failed)? {
        let problem =
            "conflicts with the archive: either it or the entry is a folder, but not both";
        return Err(FileError::Unfit {
            path: target.display_path().join(conflicting),
            problem,
        });
    }
    merge(&unpacked, &into).map_err(failed)
}

/// Creates the target folder if it does not exist.
fn create_target(target: &ResolvedPath) -> Result<Cow<'_, ResolvedPath>, FileError> {
    if target.is_open() {
        return Ok(Cow::Borrowed(target));
    }
    let made = target.with_parents()?;
    match fs::create_dir(made.path()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(FileError::io("unpack into", target.display_path(), error))
        }
        // If it exists but is not a folder, opening it fails.
        Ok(()) | Err(_) => Ok(made),
    }
}

/// A private temporary folder, removed on drop.
struct StagingFolder {
    folder: ResolvedPath,
    name: String,
}

impl StagingFolder {
    /// Creates the folder on the file system of the target, so that its contents can be moved: in
    /// the target if it exists, because it may be a mount. Otherwise, and with a root, in the
    /// nearest parent folder.
    fn create(target: &ResolvedPath) -> Result<Self, FileError> {
        let metadata = if target.is_open() {
            target.metadata()
        } else {
            fs::symlink_metadata(target.path())
        };
        let is_there = metadata.is_ok();
        let is_folder = metadata.map_or(true, |metadata| metadata.is_dir());
        if !is_folder || !(target.has_name() || target.is_open()) {
            return Err(FileError::Unfit {
                path: target.display_path().to_owned(),
                problem: "is not a folder to unpack into",
            });
        }
        let is_anywhere = target.descriptor().is_none();
        let folder = if is_there && is_anywhere {
            target.clone()
        } else {
            target.nearest_folder()?
        };
        let name = unused_name();
        match DirBuilder::new()
            .mode(0o700)
            .create(folder.path().join(&name))
        {
            Ok(()) => Ok(Self { folder, name }),
            Err(error) => Err(FileError::io("unpack into", target.display_path(), error)),
        }
    }

    fn open(&self) -> io::Result<Folder> {
        Folder::open(&self.folder.entry(Path::new(&self.name))?)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}

impl Drop for StagingFolder {
    fn drop(&mut self) {
        // Ignores errors of a folder that allows to create entries but not to remove them.
        _ = remove_folder(&self.path(), ProtectedFolders::Keep);
    }
}

struct Unpacker<'a> {
    root: &'a Folder,
    limits: ArchiveLimits,
    entries: u64,
    bytes: u64,
    received: ReceivedBytes,
    /// The path for error messages.
    target: &'a Path,
}

impl Unpacker<'_> {
    fn run(&mut self, input: ArchiveInput) -> Result<(), FileError> {
        let allowance = input.allowance();
        let mut archive = Archive::new(input);
        allowance.set(MAX_HEADER_BYTES);
        for entry in archive.entries().map_err(damaged)? {
            let mut entry = entry.map_err(damaged)?;
            self.entries += 1;
            if self.entries > self.limits.entries {
                return Err(rejected("it has too many entries"));
            }
            let left = self.limits.bytes.saturating_sub(self.bytes);
            allowance.set(entry.size().min(left).saturating_add(BLOCK_BYTES));
            self.unpack_entry(&mut entry)?;
            allowance.set(MAX_HEADER_BYTES);
        }
        Ok(())
    }

    fn unpack_entry(&mut self, entry: &mut Entry<'_, ArchiveInput>) -> Result<(), FileError> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let name = entry.path().map_err(damaged)?.into_owned();
        let below = below(&name).map_err(FileError::Archive)?;
        let mode = entry.header().mode().map_err(damaged)?;
        if mode & 0o6000 != 0 {
            return Err(rejected(&format!(
                "entry `{}` has a set-user-id or set-group-id bit",
                clip(&name)
            )));
        }
        let (Some(parent), Some(last)) = (below.parent(), below.file_name()) else {
            // The folder itself.
            return Ok(());
        };
        let parent = self.folder(parent, true)?;
        // Old archives mark folders by a trailing slash.
        let has_slash = name.as_os_str().as_encoded_bytes().ends_with(b"/");
        match kind {
            EntryType::Directory => self.unpack_folder(&parent, last, mode),
            EntryType::Regular if has_slash => self.unpack_folder(&parent, last, mode),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.clear(&parent, last, &below)?;
                self.unpack_file(&parent, last, mode, entry)
            }
            EntryType::Symlink => {
                let target = link_target(entry, &below)?;
                if !link_stays_within(&below, &target) {
                    let problem = format!("link `{}` leads to `{}`", clip(&below), clip(&target));
                    return Err(rejected(&format!(
                        "{problem}, which is not safely within the folder"
                    )));
                }
                self.clear(&parent, last, &below)?;
                parent
                    .new_symlink(last, &target)
                    .map_err(|error| self.failed(error))
            }
            EntryType::Link => {
                self.unpack_hard_link(&parent, last, &below, &link_target(entry, &below)?)
            }
            _ => Err(rejected(&format!(
                "entry `{}` is not a file, folder or link",
                clip(&name)
            ))),
        }
    }

    fn unpack_folder(&self, parent: &Folder, name: &OsStr, mode: u32) -> Result<(), FileError> {
        let folder = parent
            .create_folder(name)
            .map_err(|error| self.step_failed(name, error))?;
        // The server must be able to add entries, whatever the mode in the archive is.
        folder
            .set_mode((mode & 0o1777) | 0o700)
            .map_err(|error| self.failed(error))
    }

    fn unpack_file(
        &mut self,
        parent: &Folder,
        name: &OsStr,
        mode: u32,
        entry: &mut Entry<'_, ArchiveInput>,
    ) -> Result<(), FileError> {
        let mut file = parent.new_file(name).map_err(|error| self.failed(error))?;
        let mut buffer = vec![0; entry.size().clamp(1, PART_BYTES as u64) as usize];
        loop {
            let count = entry.read(&mut buffer).map_err(damaged)?;
            let read = buffer.get(..count).unwrap_or_default();
            if read.is_empty() {
                break;
            }
            self.count(count as u64)?;
            file.write_all(read).map_err(|error| self.failed(error))?;
        }
        let modified = entry.header().mtime().map_err(damaged)?;
        let set = file.set_permissions(Permissions::from_mode(mode & 0o777));
        set.map_err(|error| self.failed(error))?;
        if let Some(modified) = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(modified)) {
            // A time that the file system cannot store is ignored.
            _ = file.set_modified(modified);
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) -> Result<(), FileError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            return Err(rejected("it has too many bytes"));
        }
        let received = self.received.get();
        if self.bytes
            > self
                .limits
                .free_bytes
                .max(received.saturating_mul(MAX_RATIO))
        {
            return Err(rejected(&format!(
                "after {received} bytes it unpacks to {}, a suspected archive bomb: from {} on, the maximum is {MAX_RATIO} times its length",
                self.bytes, self.limits.free_bytes
            )));
        }
        Ok(())
    }

    fn unpack_hard_link(
        &self,
        parent: &Folder,
        name: &OsStr,
        path: &Path,
        target: &Path,
    ) -> Result<(), FileError> {
        let target = below(target).map_err(FileError::Archive)?;
        let no_file = || {
            rejected(&format!(
                "hard link `{}` does not refer to an earlier file",
                clip(path)
            ))
        };
        let (Some(folder), Some(file)) = (target.parent(), target.file_name()) else {
            return Err(no_file());
        };
        let folder = self.folder(folder, false)?;
        let found = folder.find(file).map_err(|error| self.failed(error))?;
        if found != FolderEntry::File || target == path {
            return Err(no_file());
        }
        self.clear(parent, name, path)?;
        parent
            .new_hard_link(name, &folder, file)
            .map_err(|error| self.failed(error))
    }

    /// Opens the folder at this path without following links. Creates it with `is_created`.
    fn folder(&self, below: &Path, is_created: bool) -> Result<Folder, FileError> {
        let mut folder = self.root.try_clone().map_err(|error| self.failed(error))?;
        for name in below {
            let next = match folder.folder(name) {
                Err(error) if is_created && error.kind() == io::ErrorKind::NotFound => {
                    folder.create_folder(name)
                }
                opened => opened,
            };
            folder = next.map_err(|error| self.step_failed(name, error))?;
        }
        Ok(folder)
    }

    /// Removes an earlier entry of the same path.
    fn clear(&self, parent: &Folder, name: &OsStr, path: &Path) -> Result<(), FileError> {
        match parent.find(name).map_err(|error| self.failed(error))? {
            FolderEntry::Nothing => Ok(()),
            FolderEntry::Folder => Err(rejected(&format!(
                "`{}` is both a folder and not a folder",
                clip(path)
            ))),
            FolderEntry::File | FolderEntry::Other => {
                parent.remove_file(name).map_err(|error| self.failed(error))
            }
        }
    }

    fn step_failed(&self, name: &OsStr, error: io::Error) -> FileError {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOTDIR | Errno::ENOENT | Errno::ELOOP) => rejected(&format!(
                "an entry leads through `{}`, which is not a folder",
                clip(Path::new(name))
            )),
            _ => self.failed(error),
        }
    }

    fn failed(&self, error: io::Error) -> FileError {
        FileError::io("unpack into", self.target, error)
    }
}

fn link_target(entry: &Entry<'_, ArchiveInput>, path: &Path) -> Result<PathBuf, FileError> {
    let target = entry.link_name().map_err(damaged)?;
    target
        .map(Into::into)
        .ok_or_else(|| rejected(&format!("link `{}` has no target", clip(path))))
}

fn rejected(problem: &str) -> FileError {
    FileError::Archive(problem.to_owned())
}

fn damaged(error: io::Error) -> FileError {
    FileError::Archive(error.to_string())
}

/// Returns the first path that is a folder on one side only.
fn conflict(from: &Folder, into: &Folder) -> io::Result<Option<PathBuf>> {
    for name in from.names()? {
        match (from.find(&name)?, into.find(&name)?) {
            (_, FolderEntry::Nothing) => {}
            (FolderEntry::Folder, FolderEntry::Folder) => {
                if let Some(deeper) = conflict(&from.folder(&name)?, &into.folder(&name)?)? {
                    return Ok(Some(Path::new(&name).join(deeper)));
                }
            }
            (FolderEntry::Folder, _) | (_, FolderEntry::Folder) => return Ok(Some(name.into())),
            _ => {}
        }
    }
    Ok(None)
}

fn merge(from: &Folder, into: &Folder) -> io::Result<()> {
    for name in from.names()? {
        match (from.find(&name)?, into.find(&name)?) {
            (FolderEntry::Folder, FolderEntry::Folder) => {
                merge(&from.folder(&name)?, &into.folder(&name)?)?;
            }
            _ => from.move_to(&name, into)?,
        }
    }
    Ok(())
}
