//! Which files a download holds, and writing them as an archive. Blocking.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::{AccessFlags, access};

use crate::v0::archive::{MAX_ENTRIES, Writer};
use crate::v0::transfer_error::TransferError;

/// All files of one download together: with what an archive adds it stays below what needs no long offsets.
const MAX_BYTES: u64 = 0xf000_0000;

/// Folders within folders; the system's own bound on paths comes sooner for most names.
const MAX_DEPTH: usize = 256;

/// A file, and its name in the archive.
#[derive(Debug)]
pub(in crate::v0) struct Found {
    path: PathBuf,
    name: String,
    mode: u32,
}

/// All files at and below `path`. Links to folders are not followed; links to files are the files; what is neither file
/// nor folder is left out, as V0's server does.
pub(in crate::v0) fn find(path: &Path) -> Result<Vec<Found>, TransferError> {
    let mut finding = Finding { files: Vec::new(), bytes: 0 };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => finding.folder(path, "", 0)?,
        Ok(_) => {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            finding.file(path.to_owned(), name)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(TransferError::NotFound(path.to_owned()));
        }
        Err(error) => return Err(TransferError::io("looking at", path, error)),
    }
    Ok(finding.files)
}

struct Finding {
    files: Vec<Found>,
    bytes: u64,
}

impl Finding {
    fn folder(&mut self, path: &Path, prefix: &str, depth: usize) -> Result<(), TransferError> {
        if depth == MAX_DEPTH {
            return Err(TransferError::TooMuch(format!("{} is too deep to be packed", path.display())));
        }
        let failed = |error| TransferError::io("reading the folder", path, error);
        let mut entries =
            fs::read_dir(path).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        // The same archive for the same folder.
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.folder(&entry.path(), &format!("{name}/"), depth + 1)?,
                Ok(_) => self.file(entry.path(), name)?,
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf, name: String) -> Result<(), TransferError> {
        let Ok(metadata) = fs::metadata(&path) else { return Ok(()) };
        if !metadata.is_file() {
            return Ok(());
        }
        access(&path, AccessFlags::R_OK)
            .map_err(|errno| TransferError::io("reading", &path, errno.into()))?;
        self.bytes += metadata.len();
        if self.bytes > MAX_BYTES || self.files.len() == MAX_ENTRIES {
            return Err(TransferError::TooMuch(format!(
                "a download holds at most {MAX_ENTRIES} files of together {MAX_BYTES} bytes"
            )));
        }
        self.files.push(Found { path, name, mode: metadata.permissions().mode() });
        Ok(())
    }
}

/// Writes them all. A file that has gone since it was found is left out.
pub(in crate::v0) fn write(files: &[Found], output: impl Write) -> io::Result<()> {
    let mut archive = Writer::new(output);
    for found in files {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
            .open(&found.path);
        match opened {
            // It may have become something else, which is read to no end.
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
