//! The file that a conversation's trajectory is saved to.
//!
//! It may be in the workspace, where a program in the sandbox can replace it by a link. So the
//! file, or the folder of a new one, is opened before the sandbox is created, and its path is not
//! resolved again.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use protocol::{ConversationId, Event};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::target_folder;
use crate::config::Config;
use crate::exit::UsageError;
use crate::untrusted_folder::{self, NamedPath};

/// An open target for a trajectory.
pub(super) struct TrajectoryFile {
    path: PathBuf,
    target: Target,
}

enum Target {
    /// An existing file, open for writing.
    Existing(File),
    /// A new file in an open folder.
    New { folder: OwnedFd, name: OsString },
}

impl TrajectoryFile {
    /// Opens the file at `path`, or the folder of a new file. If `path` is a folder, the file is
    /// named by the conversation's id. Creates missing folders. Fails if the trajectory could not
    /// be saved.
    pub(super) fn open(path: &Path, id: &ConversationId) -> io::Result<Self> {
        if is_stream(path) {
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let file = OpenOptions::new()
                .write(true)
                .custom_flags(flags)
                .open(path)?;
            fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
            return Ok(Self {
                path: path.to_owned(),
                target: Target::Existing(file),
            });
        }
        let is_folder = matches!(NamedPath::resolve(path), Ok(NamedPath::Folder(_)))
            || path.as_os_str().as_encoded_bytes().ends_with(b"/");
        let path = if is_folder {
            path.join(format!("{id}.json"))
        } else {
            path.to_owned()
        };
        let target = match NamedPath::resolve_new(&path)? {
            NamedPath::Folder(_) => return Err(io::ErrorKind::IsADirectory.into()),
            NamedPath::Existing { node, .. } => {
                // A FIFO without a reader fails now, instead of blocking the run at its end.
                let file = node.open_to_write()?;
                fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
                Target::Existing(file)
            }
            NamedPath::Missing { folder, name } => {
                drop(tempfile::tempfile_in(untrusted_folder::path_of(&folder))?);
                Target::New { folder, name }
            }
        };
        Ok(Self { path, target })
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the trajectory.
    pub(super) fn write(self, text: &str) -> io::Result<()> {
        match self.target {
            Target::Existing(mut file) => {
                if file.metadata()?.is_file() {
                    file.set_len(0)?;
                    file.rewind()?;
                }
                file.write_all(text.as_bytes())
            }
            Target::New { folder, name } => {
                let folder = untrusted_folder::path_of(&folder);
                let readable = fs::Permissions::from_mode(0o666); // less the umask
                let mut draft = tempfile::Builder::new()
                    .permissions(readable)
                    .tempfile_in(&folder)?;
                draft.write_all(text.as_bytes())?;
                // Replaces a link of that name instead of following it.
                draft
                    .persist(folder.join(name))
                    .map(drop)
                    .map_err(|error| error.error)
            }
        }
    }
}

/// Whether a path is a stream of this process, which is a link.
fn is_stream(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr"]
        .iter()
        .any(|stream| path == Path::new(stream))
        || path.parent() == Some(Path::new("/dev/fd"))
}

/// Opens the configured file. `None` if none is configured.
pub(super) fn prepare(
    config: &Config,
    id: &ConversationId,
) -> anyhow::Result<Option<TrajectoryFile>> {
    config
        .save_trajectory
        .as_deref()
        .map(|path| open(path, id))
        .transpose()
}

/// Opens a file that the user named, in a folder that exists.
pub(super) fn open_in_existing_folder(
    path: &Path,
    id: &ConversationId,
) -> anyhow::Result<TrajectoryFile> {
    // With a slash at its end, it is the folder of the file.
    let is_folder = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let file = if is_folder {
        path.join(format!("{id}.json"))
    } else {
        path.to_owned()
    };
    target_folder::folder_of(&file)?;
    open(path, id)
}

/// Opens the file, and creates missing folders, as V0 does.
fn open(path: &Path, id: &ConversationId) -> anyhow::Result<TrajectoryFile> {
    TrajectoryFile::open(path, id).map_err(|error| {
        UsageError(format!(
            "cannot save the trajectory to {}: {error}",
            path.display()
        ))
        .into()
    })
}

/// Writes a trajectory to its file.
pub(super) fn save(events: &[Event], file: TrajectoryFile) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(events)? + "\n";
    let failed = format!("saving the trajectory to {}", file.path().display());
    file.write(&text).context(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn open(path: &Path) -> io::Result<TrajectoryFile> {
        TrajectoryFile::open(path, &"c".parse().unwrap())
    }

    #[test]
    fn link_is_not_followed_when_it_replaces_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("victim"), "precious").unwrap();
        fs::write(path("old"), "a longer text than the new one").unwrap();
        fs::create_dir(path("elsewhere")).unwrap();
        let [old, new, moved] = ["old", "new", "in/new"].map(|name| open(&path(name)).unwrap());
        fs::rename(path("old"), path("kept")).unwrap();
        for name in ["old", "new"] {
            symlink(path("victim"), path(name)).unwrap();
        }
        for planted in ["old", "in/link/new"] {
            symlink(path("elsewhere"), path("in/link")).ok();
            assert!(
                open(&path(planted)).is_err(),
                "{planted}: a link of an earlier run"
            );
        }
        fs::rename(path("in"), path("out")).unwrap();
        symlink(path("elsewhere"), path("in")).unwrap();
        for file in [old, new, moved] {
            file.write("[]\n").unwrap();
        }
        assert_eq!(fs::read_to_string(path("victim")).unwrap(), "precious");
        for name in ["kept", "new", "out/new"] {
            assert_eq!(fs::read_to_string(path(name)).unwrap(), "[]\n", "{name}");
        }
        assert_eq!(fs::read_dir(path("elsewhere")).unwrap().count(), 0);
    }

    #[test]
    fn folder_gets_a_file_named_by_the_conversation() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("made/")] {
            open(&path).unwrap().write("[]\n").unwrap();
            assert_eq!(fs::read_to_string(path.join("c.json")).unwrap(), "[]\n");
        }
    }

    #[test]
    fn fifo_without_a_reader_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap();
        assert!(made.success());
        assert!(open(&fifo).is_err());
    }
}
