//! Collects the files of a download, and writes them to an archive. Blocking.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

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
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf, name: String) -> Result<(), TransferError> {
        let Ok(metadata) = fs::metadata(&path) else {
            return Ok(());
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
