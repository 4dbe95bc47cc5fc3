//! The action server as a file of the host, which backends mount, upload or start.
//!
//! It is embedded in this program, and unpacked once to a file that is named after its hash. An existing file is compared byte
//! by byte before it is used. Other versions have other names, so that running sandboxes keep their files.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use engine::sandbox::SandboxError;
use ring::digest;
use tokio::task::spawn_blocking;

static EMBEDDED: &[u8] = include_bytes!(env!("ACTION_SERVER_FILE"));

static EMBEDDED_NAME: LazyLock<String> = LazyLock::new(|| {
    let hash = digest::digest(&digest::SHA256, EMBEDDED);
    format!("action-server-{}", hex::encode(&hash.as_ref()[..8]))
});

/// The source of the action server's file.
#[derive(Debug, Clone)]
pub struct ServerBinary {
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    Embedded { cache: PathBuf },
    File(PathBuf),
}

impl ServerBinary {
    /// Uses the embedded server, which is unpacked into the folder `cache` on first use.
    pub fn embedded(cache: impl Into<PathBuf>) -> Self {
        Self { source: Source::Embedded { cache: cache.into() } }
    }

    /// Uses an existing file, for packagers and tests.
    pub fn from_file(path: impl Into<PathBuf>) -> Self {
        Self { source: Source::File(path.into()) }
    }

    /// Returns the absolute path of the executable file.
    ///
    /// # Errors
    /// The file cannot be written or found.
    pub async fn path(&self) -> Result<PathBuf, SandboxError> {
        match &self.source {
            Source::File(path) => tokio::fs::canonicalize(path).await.map_err(|source| {
                SandboxError::host("find", format_args!("the action server {}", path.display()), source)
            }),
            Source::Embedded { cache } => {
                let path = cache.join(EMBEDDED_NAME.as_str());
                let subject = format!("the action server to {}", path.display());
                let unpacked = spawn_blocking(move || unpack(&path)).await;
                let unpacked = unpacked.unwrap_or_else(|panic| Err(panic.into()));
                unpacked.map_err(|source| SandboxError::host("unpack", subject, source))
            }
        }
    }

    /// Returns the content of the file, for remote hosts.
    pub(crate) async fn bytes(&self) -> Result<Vec<u8>, SandboxError> {
        match &self.source {
            Source::Embedded { .. } => Ok(EMBEDDED.to_vec()),
            Source::File(path) => tokio::fs::read(path).await.map_err(|source| {
                SandboxError::host("read", format_args!("the action server {}", path.display()), source)
            }),
        }
    }
}

fn unpack(path: &Path) -> io::Result<PathBuf> {
    if !is_intact(path)? {
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        std::fs::create_dir_all(folder)?;
        // Renamed at the end, so that concurrent starts see a complete file or none.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(EMBEDDED)?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o755))?;
        file.as_file().sync_all()?;
        // A file of a concurrent start is not replaced, because it may be in use.
        if let Err(conflict) = file.persist_noclobber(path)
            && !is_intact(path)?
        {
            conflict.file.persist(path)?;
        }
    }
    path.canonicalize()
}

/// Whether the file exists with this content, is executable, and is not a link.
fn is_intact(path: &Path) -> io::Result<bool> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let is_executable = found.is_file() && found.permissions().mode() & 0o777 == 0o755;
    Ok(is_executable && found.len() == EMBEDDED.len() as u64 && std::fs::read(path)? == EMBEDDED)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{EMBEDDED, ServerBinary};

    #[tokio::test]
    async fn embedded_server_is_unpacked_once_and_repaired_when_changed() {
        let cache = tempfile::tempdir().unwrap();
        let server = ServerBinary::embedded(cache.path().join("bin"));
        let path = server.path().await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);

        std::fs::write(&path, b"something else").unwrap();
        assert_eq!(server.path().await.unwrap(), path);
        assert!(std::fs::read(&path).unwrap() == EMBEDDED);
        assert_eq!(std::fs::read_dir(cache.path().join("bin")).unwrap().count(), 1, "no leftovers");
    }

    #[tokio::test]
    async fn error_contains_the_path_when_the_file_is_missing() {
        let error = ServerBinary::from_file("/nowhere/action-server").path().await.unwrap_err();
        assert_eq!(error.to_string(), "cannot find the action server /nowhere/action-server");
    }
}
