//! An archive becomes a folder. It is unpacked beside its place first and moved there when all of it was taken, so that
//! nothing is left of one that is refused. What is there already stays, unless the archive has a file of the same path.
//! A folder is never put in a file's place, nor a file or link in a folder's.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use tar::{Archive, Entry, EntryType};
use tokio::sync::mpsc::Receiver;

use super::entry_path::{below, link_stays_within, shown};
use super::folder::{Folder, Found};
use super::input::{Arrived, Input, Received};
use crate::files::error::FileError;
use crate::files::place::Place;
use crate::files::temporary::unused_name;
use crate::files::{Files, PART_BYTES};

/// What one archive may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) entries: u64,
    /// Of content; holes count as what they are shown as.
    pub(crate) bytes: u64,
    /// From here on its content may be [`MAX_RATIO`] times as long as what has come of it, and no longer. A tar archive is
    /// shorter than its content only by holes.
    pub(crate) free_bytes: u64,
}

/// Maximum ratio of an archive's content to its own length, unless the content is short: more is taken for a bomb.
const MAX_RATIO: u64 = 100;

/// Between the contents of two entries: headers, long names, attributes.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// What stands between an entry's content and the next.
const BLOCK_BYTES: u64 = 512;

/// Into `path`, which is made if it is missing.
pub(crate) fn unpack(
    files: &Files,
    path: &Path,
    arriving: Receiver<Arrived>,
    limits: Limits,
) -> Result<(), FileError> {
    let target = files.target(path)?;
    let failed = |error| FileError::io("unpacking into", target.told(), error);
    let beside = Beside::make(&target)?;
    let unpacked = beside.open().map_err(failed)?;
    let input = Input::from(arriving);
    let (received, target_path) = (input.received(), target.told());
    Unpacking { root: &unpacked, limits, entries: 0, bytes: 0, received, target: target_path }.run(input)?;
    let _changing = files.change(&target);
    let made = made(&target)?;
    let into = Folder::at(&made).map_err(failed)?;
    if let Some(in_the_way) = conflict(&unpacked, &into).map_err(failed)? {
        let problem = "is in the way: of it and the archive's entry one is a folder and one is not";
        return Err(FileError::Unfit { path: target.told().join(in_the_way), problem });
    }
    merge(&unpacked, &into).map_err(failed)
}

/// The target is a folder.
fn made(target: &Place) -> Result<Cow<'_, Place>, FileError> {
    if target.is_held() {
        return Ok(Cow::Borrowed(target));
    }
    let made = target.with_parents()?;
    match fs::create_dir(made.path()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(FileError::io("unpacking into", target.told(), error))
        }
        // What is there and is no folder is not opened as one.
        Ok(()) | Err(_) => Ok(made),
    }
}

/// A folder of ours alone, removed when dropped.
struct Beside {
    folder: Place,
    name: String,
}

impl Beside {
    /// On the target's file system, so that what is in it can be moved there: in a target that is there, which may be a
    /// mount of its own, else, and beneath a root, beside it.
    fn make(target: &Place) -> Result<Self, FileError> {
        let metadata = if target.is_held() { target.metadata() } else { fs::symlink_metadata(target.path()) };
        let is_there = metadata.is_ok();
        let is_folder = metadata.map_or(true, |metadata| metadata.is_dir());
        if !is_folder || !(target.has_name() || target.is_held()) {
            return Err(FileError::Unfit {
                path: target.told().to_owned(),
                problem: "is no folder to unpack into",
            });
        }
        let is_anywhere = target.holder().is_none();
        let folder = if is_there && is_anywhere { target.clone() } else { target.nearest_folder()? };
        let name = unused_name();
        match DirBuilder::new().mode(0o700).create(folder.path().join(&name)) {
            Ok(()) => Ok(Self { folder, name }),
            Err(error) => Err(FileError::io("unpacking into", target.told(), error)),
        }
    }

    fn open(&self) -> io::Result<Folder> {
        Folder::at(&self.folder.entry(Path::new(&self.name))?)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Nothing better can be done about a folder that lets things be made and not removed.
        _ = fs::remove_dir_all(self.path());
    }
}

struct Unpacking<'a> {
    root: &'a Folder,
    limits: Limits,
    entries: u64,
    bytes: u64,
    received: Received,
    /// For what is told.
    target: &'a Path,
}

impl Unpacking<'_> {
    fn run(&mut self, input: Input) -> Result<(), FileError> {
        let allowance = input.allowance();
        let mut archive = Archive::new(input);
        allowance.set(MAX_HEADER_BYTES);
        for entry in archive.entries().map_err(damaged)? {
            let mut entry = entry.map_err(damaged)?;
            self.entries += 1;
            if self.entries > self.limits.entries {
                return Err(refused("it has too many entries"));
            }
            let left = self.limits.bytes.saturating_sub(self.bytes);
            allowance.set(entry.size().min(left).saturating_add(BLOCK_BYTES));
            self.take(&mut entry)?;
            allowance.set(MAX_HEADER_BYTES);
        }
        Ok(())
    }

    fn take(&mut self, entry: &mut Entry<'_, Input>) -> Result<(), FileError> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let name = entry.path().map_err(damaged)?.into_owned();
        let below = below(&name).map_err(FileError::Archive)?;
        let mode = entry.header().mode().map_err(damaged)?;
        if mode & 0o6000 != 0 {
            return Err(refused(&format!("entry `{}` has a set-user-id or set-group-id bit", shown(&name))));
        }
        let (Some(parent), Some(last)) = (below.parent(), below.file_name()) else {
            // The folder itself.
            return Ok(());
        };
        let parent = self.folder(parent, true)?;
        // As archives were before they knew folders.
        let is_folder_of_old = name.as_os_str().as_encoded_bytes().ends_with(b"/");
        match kind {
            EntryType::Directory => self.take_folder(&parent, last, mode),
            EntryType::Regular if is_folder_of_old => self.take_folder(&parent, last, mode),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.clear(&parent, last, &below)?;
                self.take_file(&parent, last, mode, entry)
            }
            EntryType::Symlink => {
                let target = target_of(entry, &below)?;
                if !link_stays_within(&below, &target) {
                    let problem = format!("link `{}` leads to `{}`", shown(&below), shown(&target));
                    return Err(refused(&format!("{problem}, which is not safely within the folder")));
                }
                self.clear(&parent, last, &below)?;
                parent.new_symlink(last, &target).map_err(|error| self.failed(error))
            }
            EntryType::Link => self.take_hard_link(&parent, last, &below, &target_of(entry, &below)?),
            _ => Err(refused(&format!("entry `{}` is no file, folder or link", shown(&name)))),
        }
    }

    fn take_folder(&self, parent: &Folder, name: &OsStr, mode: u32) -> Result<(), FileError> {
        let folder = parent.folder_made(name).map_err(|error| self.step_failed(name, error))?;
        // Whatever else it says, we go on putting things into it.
        folder.set_mode((mode & 0o1777) | 0o700).map_err(|error| self.failed(error))
    }

    fn take_file(
        &mut self,
        parent: &Folder,
        name: &OsStr,
        mode: u32,
        entry: &mut Entry<'_, Input>,
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
            // A date that the system cannot keep is no reason to refuse the file.
            _ = file.set_modified(modified);
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) -> Result<(), FileError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            return Err(refused("it has too many bytes"));
        }
        let received = self.received.bytes();
        if self.bytes > self.limits.free_bytes.max(received.saturating_mul(MAX_RATIO)) {
            return Err(refused(&format!(
                "after {received} bytes it unpacks to {}; from {} on more than {MAX_RATIO} times its length is taken for a bomb",
                self.bytes, self.limits.free_bytes
            )));
        }
        Ok(())
    }

    fn take_hard_link(
        &self,
        parent: &Folder,
        name: &OsStr,
        path: &Path,
        target: &Path,
    ) -> Result<(), FileError> {
        let target = below(target).map_err(FileError::Archive)?;
        let is_file_of_it = || refused(&format!("hard link `{}` is to no file before it", shown(path)));
        let (Some(folder), Some(file)) = (target.parent(), target.file_name()) else {
            return Err(is_file_of_it());
        };
        let folder = self.folder(folder, false)?;
        let found = folder.find(file).map_err(|error| self.failed(error))?;
        if found != Found::File || target == path {
            return Err(is_file_of_it());
        }
        self.clear(parent, name, path)?;
        parent.new_hard_link(name, &folder, file).map_err(|error| self.failed(error))
    }

    /// The folder at this path; links are refused on every step.
    fn folder(&self, below: &Path, is_made: bool) -> Result<Folder, FileError> {
        let mut folder = self.root.again().map_err(|error| self.failed(error))?;
        for name in below {
            let next = match folder.folder(name) {
                Err(error) if is_made && error.kind() == io::ErrorKind::NotFound => folder.folder_made(name),
                opened => opened,
            };
            folder = next.map_err(|error| self.step_failed(name, error))?;
        }
        Ok(folder)
    }

    /// A later entry of the same path takes the earlier one's place.
    fn clear(&self, parent: &Folder, name: &OsStr, path: &Path) -> Result<(), FileError> {
        match parent.find(name).map_err(|error| self.failed(error))? {
            Found::Nothing => Ok(()),
            Found::Folder => Err(refused(&format!("`{}` is a folder and also is not", shown(path)))),
            Found::File | Found::Other => parent.remove_file(name).map_err(|error| self.failed(error)),
        }
    }

    fn step_failed(&self, name: &OsStr, error: io::Error) -> FileError {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOTDIR | Errno::ENOENT | Errno::ELOOP) => {
                refused(&format!("an entry leads through `{}`, which is no folder", shown(Path::new(name))))
            }
            _ => self.failed(error),
        }
    }

    fn failed(&self, error: io::Error) -> FileError {
        FileError::io("unpacking into", self.target, error)
    }
}

fn target_of(entry: &Entry<'_, Input>, path: &Path) -> Result<PathBuf, FileError> {
    let target = entry.link_name().map_err(damaged)?;
    target.map(Into::into).ok_or_else(|| refused(&format!("link `{}` leads nowhere", shown(path))))
}

fn refused(problem: &str) -> FileError {
    FileError::Archive(problem.to_owned())
}

fn damaged(error: io::Error) -> FileError {
    FileError::Archive(error.to_string())
}

/// Something that is a folder on one side only.
fn conflict(from: &Folder, into: &Folder) -> io::Result<Option<PathBuf>> {
    for name in from.names()? {
        match (from.find(&name)?, into.find(&name)?) {
            (_, Found::Nothing) => {}
            (Found::Folder, Found::Folder) => {
                if let Some(deeper) = conflict(&from.folder(&name)?, &into.folder(&name)?)? {
                    return Ok(Some(Path::new(&name).join(deeper)));
                }
            }
            (Found::Folder, _) | (_, Found::Folder) => return Ok(Some(name.into())),
            _ => {}
        }
    }
    Ok(None)
}

fn merge(from: &Folder, into: &Folder) -> io::Result<()> {
    for name in from.names()? {
        match (from.find(&name)?, into.find(&name)?) {
            (Found::Folder, Found::Folder) => merge(&from.folder(&name)?, &into.folder(&name)?)?,
            _ => from.move_to(&name, into)?,
        }
    }
    Ok(())
}
