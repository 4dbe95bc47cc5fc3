//! The action server as a file of the host, which backends mount, upload or start.
//!
//! The program contains a server, and unpacks it on first use. An existing file is compared byte by
//! byte before it is used. Each version has a path of its own, so that running sandboxes keep their
//! files.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use engine::sandbox::SandboxError;
use tokio::task::spawn_blocking;

/// The source of the action server's file.
#[derive(Clone)]
pub struct ServerBinary {
    source: Source,
}

#[derive(Clone)]
enum Source {
    Embedded {
        content: &'static [u8],
        path: PathBuf,
    },
    File(PathBuf),
}

impl ServerBinary {
    /// Uses the server with this content, which is unpacked to `path` on first use.
    pub fn embedded(content: &'static [u8], path: impl Into<PathBuf>) -> Self {
        Self {
            source: Source::Embedded {
                content,
                path: path.into(),
            },
        }
    }

    /// Uses an existing file, for packagers and tests.
    pub fn from_file(path: impl Into<PathBuf>) -> Self {
        Self {
            source: Source::File(path.into()),
        }
    }

    /// Returns the absolute path of the executable file.
    ///
    /// # Errors
    /// The file cannot be written or found.
    pub async fn path(&self) -> Result<PathBuf, SandboxError> {
        match &self.source {
            Source::File(path) => tokio::fs::canonicalize(path).await.map_err(|source| {
                SandboxError::host(
                    "find",
                    format_args!("the action server {}", path.display()),
                    source,
                )
            }),
            Source::Embedded { content, path } => {
                let (content, path) = (*content, path.clone());
                let subject = format!("the action server to {}", path.display());
                let unpacked = spawn_blocking(move || unpack(content, &path)).await;
                let unpacked = unpacked.unwrap_or_else(|panic| Err(panic.into()));
                unpacked.map_err(|source| SandboxError::host("unpack", subject, source))
            }
        }
    }

    /// Returns the content of the file, for remote hosts.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn bytes(&self) -> Result<Vec<u8>, SandboxError> {
        match &self.source {
            Source::Embedded { content, .. } => Ok(content.to_vec()),
            Source::File(path) => tokio::fs::read(path).await.map_err(|source| {
                SandboxError::host(
                    "read",
                    format_args!("the action server {}", path.display()),
                    source,
                )
            }),
        }
    }
}

/// Without the content.
impl fmt::Debug for ServerBinary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Source::Embedded { path, .. } | Source::File(path)) = &self.source;
        formatter.debug_tuple("ServerBinary").field(path).finish()
    }
}

fn unpack(content: &[u8], path: &Path) -> io::Result<PathBuf> {
    if !is_intact(content, path)? {
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        std::fs::create_dir_all(folder)?;
        // Renamed at the end, so that concurrent starts see a complete file or none.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(content)?;
        file.as_file()
            .set_permissions(std::fs::Permissions::from_mode(0o755))?;
        file.as_file().sync_all()?;
        // A file of a concurrent start is not replaced, because it may be in use.
        if let Err(conflict) = file.persist_noclobber(path)
            && !is_intact(content, path)?
        {
            conflict.file.persist(path)?;
        }
    }
    path.canonicalize()
}

/// Whether the file exists with this content, is executable, and is not a link.
fn is_intact(content: &[u8], path: &Path) -> io::Result<bool> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let is_executable = found.is_file() && found.permissions().mode() & 0o777 == 0o755;
    Ok(is_executable && found.len() == content.len() as u64 && std::fs::read(path)? == content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::ServerBinary;

    #[tokio::test]
    async fn embedded_server_is_unpacked_once_and_repaired_when_changed() {
        let cache = tempfile::tempdir().unwrap();
        let server = ServerBinary::embedded(b"a server", cache.path().join("bin/server"));
        let path = server.path().await.unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o755
        );

        std::fs::write(&path, b"something else").unwrap();
        assert_eq!(server.path().await.unwrap(), path);
        assert!(std::fs::read(&path).unwrap() == b"a server");
        assert_eq!(
            std::fs::read_dir(cache.path().join("bin")).unwrap().count(),
            1,
            "no leftovers"
        );
    }

    #[tokio::test]
    async fn error_contains_the_path_when_the_file_is_missing() {
        let error = ServerBinary::from_file("/nowhere/action-server")
            .path()
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot find the action server /nowhere/action-server"
        );
    }
}
