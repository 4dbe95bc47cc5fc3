//! The action server as a file of the host: what backends mount, upload or start.
//!
//! It is carried in this program and written once, whole, under its content's hash; what is found there is compared
//! byte by byte before it is used. Another version has another name, so that a running sandbox keeps its file.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use engine::sandbox::SandboxError;
use ring::digest;
use tokio::task::spawn_blocking;

use crate::host_secret::hex;

static EMBEDDED: &[u8] = include_bytes!(env!("ACTION_SERVER_FILE"));

static EMBEDDED_NAME: LazyLock<String> = LazyLock::new(|| {
    let hash = digest::digest(&digest::SHA256, EMBEDDED);
    format!("action-server-{}", hex(&hash.as_ref()[..8]))
});

/// Where the action server's file comes from.
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
    /// The one that this program carries, unpacked into the folder `cache` when it is first needed.
    pub fn embedded(cache: impl Into<PathBuf>) -> Self {
        Self { source: Source::Embedded { cache: cache.into() } }
    }

    /// One that lies on the host already: for packagers and tests.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { source: Source::File(path.into()) }
    }

    /// An absolute path of the executable file.
    ///
    /// # Errors
    /// The file cannot be written or found.
    pub async fn path(&self) -> Result<PathBuf, SandboxError> {
        let (doing, found) = match &self.source {
            Source::File(path) => (format!("finding the action server {}", path.display()), {
                tokio::fs::canonicalize(path).await
            }),
            Source::Embedded { cache } => {
                let path = cache.join(EMBEDDED_NAME.as_str());
                let doing = format!("unpacking the action server to {}", path.display());
                (doing, spawn_blocking(move || unpack(&path)).await.unwrap_or_else(|lost| Err(lost.into())))
            }
        };
        found.map_err(|source| SandboxError::Host { doing, source })
    }

    /// The file's bytes, for hosts that do not see this one's files.
    pub(crate) async fn bytes(&self) -> Result<Vec<u8>, SandboxError> {
        match &self.source {
            Source::Embedded { .. } => Ok(EMBEDDED.to_vec()),
            Source::File(path) => tokio::fs::read(path).await.map_err(|source| SandboxError::Host {
                doing: format!("reading the action server {}", path.display()),
                source,
            }),
        }
    }
}

fn unpack(path: &Path) -> io::Result<PathBuf> {
    if !is_intact(path)? {
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        std::fs::create_dir_all(folder)?;
        // Renamed into place: another program that starts at the same time sees the whole file or none.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(EMBEDDED)?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o755))?;
        file.as_file().sync_all()?;
        // One that another start has just put there is not replaced: something may hold on to that very file.
        if let Err(taken) = file.persist_noclobber(path)
            && !is_intact(path)?
        {
            taken.file.persist(path)?;
        }
    }
    path.canonicalize()
}

/// Whether a former run left the very bytes there, in a file (not a link) that can be executed.
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
    async fn a_file_that_is_not_there_is_named() {
        let error = ServerBinary::at("/nowhere/action-server").path().await.unwrap_err();
        assert_eq!(error.to_string(), "finding the action server /nowhere/action-server");
    }
}
