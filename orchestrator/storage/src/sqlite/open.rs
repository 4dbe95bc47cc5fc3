//! Creates the database file and opens connections to it.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::Durability;
use crate::failure::is_full;

/// Time to wait for the write lock. Other processes hold it for milliseconds, unless they were
/// suspended.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which the switch to write-ahead logging is retried.
const WAL_RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// Size to which the write-ahead log is truncated at a reset.
const WAL_LIMIT_BYTES: i64 = 64 << 20;

/// Error of opening the store. A retry succeeds only after the user has removed the cause.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder of the file cannot be created.
    #[error("cannot create the folder {}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file cannot be created.
    #[error("cannot create {}", file.display())]
    Create {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file cannot be used.
    #[error("cannot open {}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// The file is damaged, or another program's.
    #[error("{} is not a database", file.display())]
    NotADatabase {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// No space is left.
    #[error("the disk of {} is full", file.display())]
    Full {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// The file or its folder cannot be written.
    #[error("{} cannot be written", file.display())]
    ReadOnly {
        /// The file.
        file: PathBuf,
    },
    /// The schema cannot be migrated.
    #[error("cannot migrate {} to version {version}", file.display())]
    Migrate {
        /// The file.
        file: PathBuf,
        /// The target version.
        version: i64,
        /// The cause.
        source: rusqlite::Error,
    },
    /// A newer version of Glovebox has migrated the file.
    #[error(
        "{} has version {found}, and this program knows {known}: use the newer glovebox, or restore a backup of this version",
        file.display()
    )]
    TooNew {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The file has an older schema, and cannot be migrated because it cannot be written.
    #[error("{} has version {found} and cannot be written to migrate it to {known}", file.display())]
    TooOld {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: i64,
        /// The version that this program reads.
        known: i64,
    },
    /// The file cannot be written, and a write-ahead log contains further events.
    #[error(
        "{}-wal contains events, and cannot be read without writing to its folder: copy the folder, and read the copy",
        file.display()
    )]
    Log {
        /// The file.
        file: PathBuf,
        /// The error of reading both.
        source: rusqlite::Error,
    },
    /// The writer thread cannot be started.
    #[error("cannot start the writer of {}", file.display())]
    Thread {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The async runtime shut down.
    #[error("opening {} was aborted", file.display())]
    Aborted {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: tokio::task::JoinError,
    },
}

impl OpenError {
    /// Returns the error of using a file.
    pub(crate) fn open(file: PathBuf, source: rusqlite::Error) -> Self {
        match &source {
            full if is_full(full) => Self::Full { file, source },
            other if other.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
                Self::NotADatabase { file, source }
            }
            _ => Self::Open { file, source },
        }
    }

    /// Whether the file can perhaps be read, and not be written. SQLite reports that with different
    /// errors, depending on its first operation.
    pub fn may_be_read_only(&self) -> bool {
        match self {
            Self::ReadOnly { .. } | Self::Full { .. } => true,
            Self::Open { source, .. } | Self::Migrate { source, .. } => matches!(
                source.sqlite_error_code(),
                Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
            ),
            Self::Folder { source, .. } | Self::Create { source, .. } => {
                matches!(
                    source.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
                )
            }
            _ => false,
        }
    }
}

/// The database file, and how to open it.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    file: PathBuf,
    access: Access,
}

/// Access of a connection.
#[derive(Debug, Clone, Copy)]
enum Access {
    Write(Durability),
    Read,
    /// Reads a file that no process writes and that has no write-ahead log. Without locks or side
    /// files.
    ReadImmutable,
}

impl Location {
    pub(crate) fn new(file: PathBuf, durability: Durability) -> Self {
        Self {
            file,
            access: Access::Write(durability),
        }
    }

    /// Returns the location for reading a file that cannot be written. SQLite reads a database with
    /// a write-ahead log only if the index of that log exists, as it does while a process has the
    /// file open. Otherwise it would have to be created.
    pub(super) fn read_only(&self) -> Result<Self, OpenError> {
        let location = Self {
            access: Access::Read,
            ..self.clone()
        };
        let Err(source) = location
            .configured()
            .and_then(|connection| probe(&connection))
        else {
            return Ok(location);
        };
        let mut log = OsString::from(&self.file);
        log.push("-wal");
        if std::fs::metadata(log).is_ok_and(|log| log.len() > 0) {
            return Err(OpenError::Log {
                file: self.file.clone(),
                source,
            });
        }
        Ok(Self {
            access: Access::ReadImmutable,
            ..location
        })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Creates the folder and the file, accessible to their owner only. SQLite's side files get the
    /// mode of the file. An existing file keeps its mode and is not opened: closing a second
    /// descriptor would release the locks of another store in this process.
    pub(crate) fn create(&self) -> Result<(), OpenError> {
        if let Some(folder) = self
            .file
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(|source| OpenError::Folder {
                    folder: folder.to_owned(),
                    source,
                })?;
        }
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.file)
        {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => Err(OpenError::Create {
                file: self.file.clone(),
                source,
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn connect(&self) -> Result<Connection, OpenError> {
        self.configured()
            .map_err(|source| OpenError::open(self.file.clone(), source))
    }

    /// Checks that the file can be written. SQLite opens it read-only otherwise, and the first
    /// append would fail.
    pub(crate) fn check_writable(&self, connection: &Connection) -> Result<(), OpenError> {
        match connection.is_readonly(rusqlite::MAIN_DB) {
            Ok(false) => Ok(()),
            Ok(true) => Err(OpenError::ReadOnly {
                file: self.file.clone(),
            }),
            Err(source) => Err(OpenError::open(self.file.clone(), source)),
        }
    }

    /// Opens and configures a connection. Does not create the file, which is [`Self::create`]'s
    /// task.
    fn configured(&self) -> rusqlite::Result<Connection> {
        let read = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let synchronous = match self.access {
            Access::Write(Durability::ProcessDeath) => "NORMAL",
            Access::Write(Durability::PowerCut) => "FULL",
            Access::Read => {
                let connection = Connection::open_with_flags(&self.file, read)?;
                connection.busy_timeout(BUSY_TIMEOUT)?;
                return Ok(connection);
            }
            Access::ReadImmutable => {
                return Connection::open_with_flags(
                    immutable_uri(&self.file),
                    read | OpenFlags::SQLITE_OPEN_URI,
                );
            }
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        use_write_ahead_log(&connection)?;
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "journal_size_limit", WAL_LIMIT_BYTES)?;
        Ok(connection)
    }
}

/// Runs `open` on a blocking thread.
pub(crate) async fn open_blocking<T: Send + 'static>(
    file: PathBuf,
    open: impl FnOnce(PathBuf) -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    let subject = file.clone();
    let opened = tokio::task::spawn_blocking(move || open(file)).await;
    opened.unwrap_or_else(|source| {
        Err(OpenError::Aborted {
            file: subject,
            source,
        })
    })
}

/// Reads the schema, because SQLite opens files at the first read.
fn probe(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Returns the URI with which SQLite treats the file as immutable.
fn immutable_uri(file: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in file.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push((*byte).into());
            }
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// Switches to write-ahead logging. If several connections switch a new file concurrently, SQLite
/// rejects all but one without waiting for the busy timeout.
fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(WAL_RETRY_INTERVAL);
            }
            switched => return switched,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::{Durability, Location};

    #[test]
    fn new_file_can_be_opened_concurrently() {
        const MANY: usize = 20;
        for _ in 0..40 {
            let folder = tempfile::tempdir().unwrap();
            let location = Location::new(folder.path().join("log.db"), Durability::default());
            location.create().unwrap();
            let barrier = Barrier::new(MANY);
            std::thread::scope(|scope| {
                for _ in 0..MANY {
                    scope.spawn(|| {
                        barrier.wait();
                        location.connect().unwrap();
                    });
                }
            });
        }
    }

    #[test]
    fn connection_syncs_commits_only_with_power_cut_durability() {
        let folder = tempfile::tempdir().unwrap();
        for (durability, expected) in [(Durability::ProcessDeath, 1), (Durability::PowerCut, 2)] {
            let location = Location::new(folder.path().join("log.db"), durability);
            location.create().unwrap();
            let connection = location.connect().unwrap();
            let synchronous =
                connection.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0));
            assert_eq!(synchronous, Ok(expected), "{durability:?}");
        }
    }

    #[test]
    fn bundled_sqlite_has_the_fix_of_the_wal_reset_bug() {
        assert!(
            rusqlite::version_number() >= 3_051_003,
            "{}",
            rusqlite::version()
        );
    }
}
