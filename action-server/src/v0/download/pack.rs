//! Collects the files of a download, and writes them to an archive. Blocking.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{AccessFlags, access};

use crate::v0::archive::{ArchiveWriter, MAX_ENTRIES};
use crate::v0::transfer_error::TransferError;

/// Maximum size of all files of a download. With the overhead of an archive, 32-bit offsets
/// suffice.
const MAX_BYTES: u64 = 0xf000_0000;

/// Maximum depth of folders. Usually the system's limit of path lengths is reached first.
const MAX_DEPTH: usize = 256;

/// A file and its name in the archive.
#[derive(Debug)]
pub(in crate::v0) struct FileToPack {
    path: PathBuf,
    name: String,
    mode: u32,
}

/// Collects all files at and below `path`. As in V0's server, links to folders are not followed,
/// links to files are resolved, and special files are skipped.
pub(in crate::v0) fn find(path: &Path) -> Result<Vec<FileToPack>, TransferError> {
    let mut collector = FileCollector {
        files: Vec::new(),
        bytes: 0,
    };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => collector.folder(path, "", 0)?,
        Ok(_) => {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            collector.file(path.to_owned(), name)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(TransferError::NotFound(path.to_owned()));
        }
        Err(error) => return Err(TransferError::io("inspect", path, error)),
    }
    Ok(collector.files)
}

struct FileCollector {
    files: Vec<FileToPack>,
    bytes: u64,
}

impl FileCollector {
    fn folder(&mut self, path: &Path, prefix: &str, depth: usize) -> Result<(), TransferError> {
        if depth == MAX_DEPTH {
            return Err(TransferError::TooMuch(format!(
                "{} is nested too deeply",
                path.display()
            )));
        }
        let failed = |error| TransferError::io("read the folder", path, error);
        let mut entries = fs::read_dir(path)
            .map_err(failed)?
            .collect::<io::Result<Vec<_>>>()
            .map_err(failed)?;
        // Sorted, so that the archive of a folder is deterministic.
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    self.folder(&entry.path(), &format!("{name}/"), depth + 1)?;
                }
                Ok(_) => self.file(entry.path(), name)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(TransferError::io("inspect", &entry.path(), error)),
            }
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf, name: String) -> Result<(), TransferError> {
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            // Was removed, or is a link that leads nowhere.
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(TransferError::io("inspect", &path, error)),
        };
        if !metadata.is_file() {
            return Ok(());
        }
        access(&path, AccessFlags::R_OK)
            .map_err(|errno| TransferError::io("read", &path, errno.into()))?;
        self.bytes += metadata.len();
        if self.bytes > MAX_BYTES || self.files.len() == MAX_ENTRIES {
            return Err(TransferError::TooMuch(format!(
                "a download has at most {MAX_ENTRIES} files with {MAX_BYTES} bytes in total"
            )));
        }
        self.files.push(FileToPack {
            path,
            name,
            mode: metadata.permissions().mode(),
        });
        Ok(())
    }
}

fn is_missing(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
        || error.raw_os_error() == Some(Errno::ELOOP as i32)
}

/// Writes all files. One that was removed meanwhile is skipped.
pub(in crate::v0) fn write(files: &[FileToPack], output: impl Write) -> io::Result<()> {
    let mut archive = ArchiveWriter::new(output);
    for found in files {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
            .open(&found.path);
        match opened {
            // Checked again, because reading a device would never end.
            Ok(file) if is_regular(&file) => {
                archive.add(&found.name, found.mode, &mut file.take(MAX_BYTES))?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    archive.finish()
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::symlink;

    use nix::unistd::{Uid, setfsuid};

    use super::*;

    #[test]
    fn find_fails_when_a_file_cannot_be_inspected() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("folder");
        fs::create_dir(&folder).unwrap();
        symlink("nowhere", folder.join("link")).unwrap();
        assert!(find(dir.path()).unwrap().is_empty());
        fs::remove_file(folder.join("link")).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        // Its names can be listed.
        fs::set_permissions(&folder, Permissions::from_mode(0o744)).unwrap();
        let path = dir.path();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Of this thread only. Root may inspect everything.
                setfsuid(Uid::from_raw(65_534));
                let is_owner = !nix::unistd::geteuid().is_root();
                assert_eq!(find(path).is_ok(), is_owner);
            });
        });
    }
}
