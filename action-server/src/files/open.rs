//! Opens regular files only. Opening a pipe would wait for a writer.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;

use nix::fcntl::OFlag;

use super::MAX_FILE_BYTES;
use super::encoding::is_utf16;
use super::error::FileError;
use super::resolved_path::ResolvedPath;

/// Number of bytes that are checked to distinguish text from binary files.
const SNIFFED_BYTES: usize = 8 << 10;

/// Opens a file for reading. The type is checked on the open file, so that it cannot be exchanged
/// after the check.
pub(super) fn regular(resolved: &ResolvedPath) -> Result<(File, Metadata), FileError> {
    open(OpenOptions::new().read(true), resolved)
}

/// Opens an existing file for writing.
pub(super) fn regular_for_writing(resolved: &ResolvedPath) -> Result<(File, Metadata), FileError> {
    open(OpenOptions::new().write(true), resolved)
}

/// Reads a text file.
pub(super) fn text(resolved: &ResolvedPath) -> Result<Vec<u8>, FileError> {
    let bytes = whole(resolved)?;
    if is_utf16(&bytes) {
        return Err(FileError::Utf16(resolved.display_path().to_owned()));
    }
    if is_binary(&bytes) {
        Err(FileError::Binary)
    } else {
        Ok(bytes)
    }
}

/// Reads a file of any kind.
pub(super) fn whole(resolved: &ResolvedPath) -> Result<Vec<u8>, FileError> {
    let (file, _) = regular(resolved)?;
    let mut bytes = Vec::new();
    // Does not rely on the length: files of `/proc` report 0, and others grow while they are read.
    file.take(MAX_FILE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| FileError::io("read", resolved.display_path(), error))?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(FileError::TooLarge {
            path: resolved.display_path().to_owned(),
            limit: MAX_FILE_BYTES,
        });
    }
    Ok(bytes)
}

/// Returns whether there is a NUL byte near the start, which no supported text encoding contains.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(SNIFFED_BYTES)].contains(&0)
}

fn open(options: &mut OpenOptions, resolved: &ResolvedPath) -> Result<(File, Metadata), FileError> {
    let links = if resolved.is_followed() {
        OFlag::empty()
    } else {
        OFlag::O_NOFOLLOW
    };
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | links;
    let (opened, path) = (
        options.custom_flags(flags.bits()).open(resolved.path()),
        resolved.display_path(),
    );
    let file = match opened {
        Ok(file) => file,
        // A socket, or a pipe without a reader.
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ENXIO as i32) => {
            return Err(FileError::Special(path.to_owned()));
        }
        Err(error) => return Err(FileError::io("open", path, error)),
    };
    let metadata = file
        .metadata()
        .map_err(|error| FileError::io("inspect", path, error))?;
    match metadata.file_type() {
        kind if kind.is_file() => Ok((file, metadata)),
        kind if kind.is_dir() => Err(FileError::Directory(path.to_owned())),
        _ => Err(FileError::Special(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn open_fails_immediately_for_pipes_devices_and_folders() {
        let dir = tempfile::tempdir().unwrap();
        let whole = |path: &Path| whole(&ResolvedPath::unconfined(path.to_owned()));
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(whole(&pipe), Err(FileError::Special(_))));
        assert!(matches!(
            regular_for_writing(&ResolvedPath::unconfined(pipe)),
            Err(FileError::Special(_))
        ));
        assert!(matches!(
            whole(Path::new("/dev/zero")),
            Err(FileError::Special(_))
        ));
        assert!(matches!(whole(dir.path()), Err(FileError::Directory(_))));
        assert!(matches!(
            whole(Path::new("/etc/passwd/x")),
            Err(FileError::NotFound(_))
        ));
        assert!(matches!(
            whole(Path::new("/a\0b")),
            Err(FileError::Io { .. })
        ));
    }

    #[test]
    fn file_is_read_when_it_reports_no_length() {
        assert!(
            !whole(&ResolvedPath::unconfined("/proc/self/status".into()))
                .unwrap()
                .is_empty()
        );
    }
}
