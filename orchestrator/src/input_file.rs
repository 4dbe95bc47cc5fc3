//! Files that are read whole. Every read has a limit, so that no file can exhaust the memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::io::Errno;

use crate::untrusted_folder::{self, NamedPath};

/// Maximum size of a configuration, policy, secret or list of keys, in bytes.
pub(crate) const MAX_SETTINGS_LENGTH: usize = 1 << 20;

/// Reads a file that the user named. It may be a device or an anonymous pipe, as of `<(command)`. A
/// FIFO is refused: it may have no writer, or be created by a program in a sandbox, so that the
/// read would block forever.
pub(crate) fn read_named(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(open(path, flags, Mode::empty())?);
    let is_anonymous = || {
        let name = std::fs::read_link(untrusted_folder::path_of(&file));
        name.is_ok_and(|name| name.as_os_str().as_encoded_bytes().starts_with(b"pipe:"))
    };
    if file.metadata()?.file_type().is_fifo() && !is_anonymous() {
        return Err(not_regular());
    }
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    read_bounded(file, max)
}

/// Reads a regular file at a path that another program may control. Refuses pipes, because the read
/// would wait for a writer.
pub(crate) fn read_found(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    read_regular(File::from(open(path, flags, Mode::empty())?), max)
}

/// Reads a regular file at a path that a conversation's log names. Follows links only where just
/// root can create them: a sandbox may have put any other there since.
pub(crate) fn read_recorded(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    match NamedPath::resolve(path)? {
        NamedPath::Existing { node, .. } => read_bounded(node.open_file()?, max),
        NamedPath::Folder(_) => Err(not_regular()),
        NamedPath::Missing { .. } => Err(Errno::NOENT.into()),
    }
}

/// Reads a regular file beneath a folder. No link and no `..` of the path leads out of the folder.
pub(crate) fn read_beneath(folder: &Path, path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open(folder, flags, Mode::empty())?;
    read_bounded(
        untrusted_folder::open_beneath(folder, path)?.open_file()?,
        max,
    )
}

/// Reads to the end. Fails if the input exceeds `max` bytes.
pub(crate) fn read_bounded(input: impl Read, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(max as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > max {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("longer than {max} bytes"),
        )),
        false => Ok(bytes),
    }
}

/// Converts bytes to text. Fails if they are not UTF-8.
pub(crate) fn to_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let problem = format!("not UTF-8: byte {}", error.utf8_error().valid_up_to());
        io::Error::new(io::ErrorKind::InvalidData, problem)
    })
}

fn read_regular(file: File, max: usize) -> io::Result<Vec<u8>> {
    match file.metadata()?.is_file() {
        true => read_bounded(file, max),
        false => Err(not_regular()),
    }
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn endless_file_is_refused_at_the_limit() {
        let error = read_named(Path::new("/dev/zero"), 1000).unwrap_err();
        assert_eq!(error.to_string(), "longer than 1000 bytes");
        assert_eq!(
            read_found(Path::new("/dev/zero"), 1000)
                .unwrap_err()
                .to_string(),
            "not a regular file"
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "12345").unwrap();
        assert_eq!(
            read_found(&folder.path().join("file"), 5).unwrap(),
            b"12345"
        );
        assert!(read_found(&folder.path().join("file"), 4).is_err());
    }

    #[test]
    fn pipe_of_the_shell_is_read_and_a_fifo_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        for path in [&fifo, &link] {
            assert_eq!(
                read_named(path, 10).unwrap_err().to_string(),
                "not a regular file"
            );
            assert_eq!(
                read_found(path, 10).unwrap_err().to_string(),
                "not a regular file"
            );
        }
        let (reader, mut writer) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        let writing = std::thread::spawn(move || writer.write_all(b"piped"));
        assert_eq!(read_named(Path::new(&path), 10).unwrap(), b"piped");
        writing.join().unwrap().unwrap();
    }

    #[test]
    fn path_is_refused_when_it_leaves_its_folder() {
        let outside = tempfile::NamedTempFile::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "in").unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("out")).unwrap();
        std::os::unix::fs::symlink("file", folder.path().join("link")).unwrap();
        let read = |path: &str| read_beneath(folder.path(), Path::new(path), 10);
        assert_eq!(read("file").unwrap(), b"in");
        assert_eq!(read("link").unwrap(), b"in");
        for path in ["out", "../x", "/etc/passwd", "."] {
            assert!(read(path).is_err(), "{path}");
        }
    }

    #[test]
    fn recorded_path_is_refused_when_it_leads_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        std::fs::write(at("real/agent.md"), "agent").unwrap();
        std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
        std::os::unix::fs::symlink("agent.md", at("real/link.md")).unwrap();
        assert_eq!(read_recorded(&at("real/agent.md"), 10).unwrap(), b"agent");
        for path in ["link/agent.md", "real/link.md", "real", "real/none"] {
            assert!(read_recorded(&at(path), 10).is_err(), "{path}");
        }
    }
}
