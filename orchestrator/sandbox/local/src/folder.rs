//! The folder of one local sandbox: its socket, the record of its process, its log, a home, a
//! folder for temporary files, and a workspace unless the user configured one. Only its owner can
//! access it. The sandbox can access only folders in it, because the record determines which
//! process the host terminates.

use std::fs::DirBuilder;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use engine::sandbox::{Lifetime, SandboxDetails, SandboxError, SandboxState, SandboxSummary};
use jiff::Timestamp;
use protocol::SandboxId;
use remove_folder::{ProtectedFolders, remove_folder};
use sandbox_client::provisioning::{MAX_LOG_BYTES, conversation_of, start_error};
use tokio::task::spawn_blocking;

use super::process::ServerProcesses;

/// A socket's path and its final zero fit into 108 bytes.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The folder of one sandbox.
#[derive(Clone)]
pub(super) struct SandboxFolder {
    path: PathBuf,
}

impl SandboxFolder {
    /// Returns the folder of a sandbox, which may not exist.
    pub(super) fn new(state_dir: &Path, sandbox: &SandboxId) -> Result<Self, SandboxError> {
        let folder = Self {
            path: sandboxes(state_dir).join(sandbox.as_str()),
        };
        let length = folder.socket().as_os_str().len();
        if length > MAX_SOCKET_PATH_BYTES {
            return Err(start_error(format!(
                "the path {} has {length} bytes, but a unix socket's at most {MAX_SOCKET_PATH_BYTES}: \
                 choose a shorter state folder",
                folder.socket().display()
            )));
        }
        Ok(folder)
    }

    /// Short names, because the length of a socket's path is limited.
    pub(super) fn socket(&self) -> PathBuf {
        self.socket_folder().join("s")
    }

    pub(super) fn socket_folder(&self) -> PathBuf {
        self.path.join("r")
    }

    /// The home of an isolated sandbox.
    pub(super) fn home(&self) -> PathBuf {
        self.path.join("home")
    }

    /// The folder for temporary files of an isolated sandbox. The name is short, because sockets
    /// are created in it.
    pub(super) fn temporary(&self) -> PathBuf {
        self.path.join("t")
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.path.join("workspace")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// The lifetime of a sandbox without a conversation. Earlier versions left it empty.
    fn keep_marker(&self) -> PathBuf {
        self.path.join("keep")
    }

    fn details_record(&self) -> PathBuf {
        self.path.join("details.json")
    }

    fn record(&self) -> PathBuf {
        self.path.join("server.json")
    }

    /// Creates the folder, which must not exist.
    pub(super) fn create(&self, lifetime: Lifetime) -> Result<(), SandboxError> {
        let private = |recursive: bool, path: &Path| {
            DirBuilder::new()
                .mode(0o700)
                .recursive(recursive)
                .create(path)
        };
        private(true, self.path.parent().unwrap_or(&self.path))
            .and_then(|()| private(false, &self.path))
            .and_then(|()| private(false, &self.socket_folder()))
            .and_then(|()| private(false, &self.home()))
            .and_then(|()| private(false, &self.temporary()))
            .and_then(|()| private(false, &self.workspace()))
            .and_then(|()| match lifetime {
                Lifetime::Conversation => Ok(()),
                Lifetime::UntilRemoved | Lifetime::Until(_) => {
                    std::fs::write(self.keep_marker(), lifetime.to_string())
                }
            })
            .map_err(|source| self.error("create", source))
    }

    /// Records the process of the server.
    pub(super) fn record_server(&self, processes: &ServerProcesses) -> Result<(), SandboxError> {
        serde_json::to_vec(processes)
            .map_err(io::Error::other)
            .and_then(|text| std::fs::write(self.record(), text))
            .map_err(|source| self.error("record the server of", source))
    }

    /// Returns the recorded process. `None` if there is no folder, or the start was aborted before
    /// the record.
    pub(super) fn server(&self) -> Result<Option<ServerProcesses>, SandboxError> {
        match std::fs::read(self.record()) {
            // A crash of the host truncated it. Treated as missing.
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(self.error("read the record of the server of", source)),
        }
    }

    /// Records the settings of the sandbox.
    pub(super) fn record_details(&self, details: &SandboxDetails) -> Result<(), SandboxError> {
        serde_json::to_vec(details)
            .map_err(io::Error::other)
            .and_then(|text| std::fs::write(self.details_record(), text))
            .map_err(|source| self.error("record the settings of", source))
    }

    /// Returns the recorded settings. Empty for a sandbox of an earlier version.
    pub(super) fn details(&self) -> Result<SandboxDetails, SandboxError> {
        match std::fs::read(self.details_record()) {
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.path.exists() => {
                Ok(SandboxDetails::default())
            }
            Err(source) => Err(self.error("read the settings of", source)),
        }
    }

    /// Returns the lifetime. An unreadable marker keeps the sandbox.
    fn lifetime(&self) -> Lifetime {
        match std::fs::read_to_string(self.keep_marker()) {
            Ok(text) => text.parse().unwrap_or(Lifetime::UntilRemoved),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Lifetime::Conversation,
            Err(_) => Lifetime::UntilRemoved,
        }
    }

    /// Returns the end of the server's log. Best effort, because it only complements an error.
    pub(super) fn log_tail(&self) -> String {
        let tail = || -> io::Result<Vec<u8>> {
            let mut log = std::fs::File::open(self.log())?;
            let length = log.metadata()?.len();
            log.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG_BYTES as u64)))?;
            let mut tail = Vec::new();
            log.take(MAX_LOG_BYTES as u64).read_to_end(&mut tail)?;
            Ok(tail)
        };
        String::from_utf8_lossy(&tail().unwrap_or_default()).into_owned()
    }

    /// Deletes the folder and its content. Links are not followed.
    pub(super) async fn remove(&self) -> Result<(), SandboxError> {
        let path = self.path.clone();
        let removed =
            spawn_blocking(
                move || match remove_folder(&path, ProtectedFolders::Remove) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    other => other,
                },
            );
        let removed = removed.await.unwrap_or_else(|panic| Err(panic.into()));
        removed.map_err(|source| self.error("remove", source))
    }

    fn error(&self, operation: &'static str, source: io::Error) -> SandboxError {
        SandboxError::host(
            operation,
            format_args!("the sandbox folder {}", self.path.display()),
            source,
        )
    }
}

/// Returns the sandboxes whose folders exist.
pub(super) fn list(state_dir: &Path) -> Result<Vec<SandboxSummary>, SandboxError> {
    let path = sandboxes(state_dir);
    let entries = match std::fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(SandboxError::host(
                "list",
                format_args!("the sandboxes in {}", path.display()),
                source,
            ));
        }
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names
        .filter_map(|name| {
            summarize(
                SandboxFolder {
                    path: path.join(&name),
                },
                &name,
            )
        })
        .collect())
}

fn summarize(folder: SandboxFolder, name: &str) -> Option<SandboxSummary> {
    let is_running = folder
        .server()
        .ok()
        .flatten()
        .is_some_and(|processes| processes.server.is_alive());
    Some(SandboxSummary {
        lifetime: folder.lifetime(),
        condition: if is_running {
            SandboxState::Running
        } else {
            SandboxState::Ended
        },
        created_at: std::fs::metadata(&folder.path)
            .and_then(|found| found.created())
            .ok()
            .and_then(|time| Timestamp::try_from(time).ok()),
        ..SandboxSummary::new(name.parse().ok()?, Some(conversation_of(name)?))
    })
}

fn sandboxes(state_dir: &Path) -> PathBuf {
    state_dir.join("sandboxes")
}
