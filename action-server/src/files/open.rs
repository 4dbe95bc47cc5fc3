//! Opening regular files, and nothing else: a pipe would wait for a writer that never comes.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;

use nix::fcntl::OFlag;

use super::MAX_FILE_BYTES;
use super::error::FileError;
use super::place::Place;

/// How much is looked at to tell text from binary.
const SNIFFED_BYTES: usize = 8 << 10;

/// For reading. The kind is asked of what was opened, so that it cannot be exchanged in between.
pub(super) fn regular(place: &Place) -> Result<(File, Metadata), FileError> {
    open(OpenOptions::new().read(true), place)
}

/// For writing over what is there.
pub(super) fn regular_for_writing(place: &Place) -> Result<(File, Metadata), FileError> {
    open(OpenOptions::new().write(true), place)
}

/// The content of a text file that may be edited.
pub(super) fn text(place: &Place) -> Result<Vec<u8>, FileError> {
    let bytes = whole(place)?;
    if is_binary(&bytes) { Err(FileError::Binary) } else { Ok(bytes) }
}

/// The content of a file, whatever it is.
pub(super) fn whole(place: &Place) -> Result<Vec<u8>, FileError> {
    let (file, _) = regular(place)?;
    let mut bytes = Vec::new();
    // Asking the file for its length first would believe it: those of /proc say 0, others grow while they are read.
    file.take(MAX_FILE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| FileError::io("reading", place.told(), error))?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(FileError::TooLarge { path: place.told().to_owned(), limit: MAX_FILE_BYTES });
    }
    Ok(bytes)
}

/// A NUL near the beginning: no text in any encoding that an agent edits.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(SNIFFED_BYTES)].contains(&0)
}

fn open(options: &mut OpenOptions, place: &Place) -> Result<(File, Metadata), FileError> {
    let links = if place.is_followed() { OFlag::empty() } else { OFlag::O_NOFOLLOW };
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | links;
    let (opened, path) = (options.custom_flags(flags.bits()).open(place.path()), place.told());
    let file = match opened {
        Ok(file) => file,
        // A socket, or a pipe without a reader.
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ENXIO as i32) => {
            return Err(FileError::Special(path.to_owned()));
        }
        Err(error) => return Err(FileError::io("opening", path, error)),
    };
    let metadata = file.metadata().map_err(|error| FileError::io("looking at", path, error))?;
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
    fn pipes_devices_and_folders_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let whole = |path: &Path| whole(&Place::anywhere(path.to_owned()));
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(whole(&pipe), Err(FileError::Special(_))));
        assert!(matches!(regular_for_writing(&Place::anywhere(pipe)), Err(FileError::Special(_))));
        assert!(matches!(whole(Path::new("/dev/zero")), Err(FileError::Special(_))));
        assert!(matches!(whole(dir.path()), Err(FileError::Directory(_))));
        assert!(matches!(whole(Path::new("/etc/passwd/x")), Err(FileError::NotFound(_))));
        assert!(matches!(whole(Path::new("/a\0b")), Err(FileError::Io { .. })));
    }

    #[test]
    fn files_that_lie_about_their_length_are_read() {
        assert!(!whole(&Place::anywhere("/proc/self/status".into())).unwrap().is_empty());
    }
}
