//! The file on the disk: who may read it, and how every connection to it is set up.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::Durability;

/// Other processes hold the write lock for one group of appends, or for one checkpoint; both take milliseconds. Longer
/// than this is a process that was stopped in the middle.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Until a switch that was refused is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// A log that grew beyond this, while something kept it from being reset, is cut back at the next reset.
const WAL_LIMIT_BYTES: i64 = 64 << 20;

/// Why the store cannot be opened. None is worth a retry without a change outside.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder of the file cannot be made.
    #[error("creating the folder {}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file cannot be made.
    #[error("creating {}", file.display())]
    Create {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a database, or cannot be used.
    #[error("opening {}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// The file or its folder cannot be written.
    #[error("{} cannot be written", file.display())]
    ReadOnly {
        /// The file.
        file: PathBuf,
    },
    /// The tables cannot be brought to this version's shape.
    #[error("migrating {} to version {version}", file.display())]
    Migrate {
        /// The file.
        file: PathBuf,
        /// The version that was wanted.
        version: i64,
        /// Why.
        source: rusqlite::Error,
    },
    /// A newer glovebox has written the file.
    #[error("{} has version {found}, this program knows {known}", file.display())]
    TooNew {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// An older glovebox has written the file, which cannot be migrated because it cannot be written.
    #[error("{} has version {found} and cannot be written to migrate it to {known}", file.display())]
    TooOld {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: i64,
        /// The version that this program reads.
        known: i64,
    },
    /// The file cannot be written, and is not all that there is to read.
    #[error(
        "{}-wal holds events, and cannot be read without writing to its folder: copy the folder, and read the copy",
        file.display()
    )]
    Log {
        /// The file.
        file: PathBuf,
        /// Why it cannot be read as it is.
        source: rusqlite::Error,
    },
    /// The thread that writes cannot be started.
    #[error("starting the writer of {}", file.display())]
    Thread {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The runtime ended meanwhile.
    #[error("opening {} was aborted", file.display())]
    Aborted {
        /// The file.
        file: PathBuf,
        /// Why.
        source: tokio::task::JoinError,
    },
}

impl OpenError {
    /// Whether the file may be one that can only be read. SQLite has several errors for that, by what it tries first.
    pub(super) fn may_be_read_only(&self) -> bool {
        match self {
            Self::ReadOnly { .. } => true,
            Self::Open { source, .. } | Self::Migrate { source, .. } => matches!(
                source.sqlite_error_code(),
                Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
            ),
            Self::Folder { source, .. } | Self::Create { source, .. } => {
                matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
            }
            _ => false,
        }
    }
}

/// Where the logs are.
#[derive(Debug, Clone)]
pub(super) struct Location {
    file: PathBuf,
    access: Access,
}

/// What a connection may do.
#[derive(Debug, Clone, Copy)]
enum Access {
    Write(Durability),
    Read,
    /// Read a file that no process writes and that has no write-ahead log: without locks and without files beside it.
    ReadImmutable,
}

impl Location {
    pub(super) fn new(file: PathBuf, durability: Durability) -> Self {
        Self { file, access: Access::Write(durability) }
    }

    /// The same file, to read what cannot be written. SQLite reads a database with a write-ahead log only with the index
    /// of that log beside it. While a process has the file open the index exists; later it would have to be created.
    pub(super) fn read_only(&self) -> Result<Self, OpenError> {
        let location = Self { access: Access::Read, ..self.clone() };
        let Err(source) = location.configured().and_then(|connection| probe(&connection)) else {
            return Ok(location);
        };
        let mut log = OsString::from(&self.file);
        log.push("-wal");
        if std::fs::metadata(log).is_ok_and(|log| log.len() > 0) {
            return Err(OpenError::Log { file: self.file.clone(), source });
        }
        Ok(Self { access: Access::ReadImmutable, ..location })
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    pub(super) fn into_file(self) -> PathBuf {
        self.file
    }

    /// Makes folder and file for their owner only. SQLite gives its side files the mode of the file. What exists keeps
    /// its mode, and is not opened here: closing a second descriptor would drop the locks that another store of this
    /// process holds on the file.
    pub(super) fn create(&self) -> Result<(), OpenError> {
        if let Some(folder) = self.file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(|source| OpenError::Folder { folder: folder.to_owned(), source })?;
        }
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.file) {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                Err(OpenError::Create { file: self.file.clone(), source })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn connect(&self) -> Result<Connection, OpenError> {
        self.configured().map_err(|source| OpenError::Open { file: self.file.clone(), source })
    }

    /// SQLite opens a file that cannot be written as one that is only read, and says so at the first event.
    pub(super) fn check_writable(&self, connection: &Connection) -> Result<(), OpenError> {
        match connection.is_readonly(rusqlite::MAIN_DB) {
            Ok(false) => Ok(()),
            Ok(true) => Err(OpenError::ReadOnly { file: self.file.clone() }),
            Err(source) => Err(OpenError::Open { file: self.file.clone(), source }),
        }
    }

    /// No creation: the path means the file that [`Self::create`] has made.
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
                return Connection::open_with_flags(immutable(&self.file), read | OpenFlags::SQLITE_OPEN_URI);
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

/// SQLite opens files when they are first read.
fn probe(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// The URI by which SQLite takes a file for one that does not change.
fn immutable(file: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in file.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => uri.push((*byte).into()),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// Of several that make a new file's first connections at once, SQLite lets one switch and refuses the others at once,
/// without their waiting.
fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(BUSY_PAUSE);
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
    fn many_open_a_new_file_at_once() {
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
    fn every_connection_waits_for_the_disk_if_and_only_if_that_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        for (durability, expected) in [(Durability::ProcessDeath, 1), (Durability::PowerCut, 2)] {
            let location = Location::new(folder.path().join("log.db"), durability);
            location.create().unwrap();
            let connection = location.connect().unwrap();
            let synchronous = connection.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0));
            assert_eq!(synchronous, Ok(expected), "{durability:?}");
        }
    }

    #[test]
    fn the_bundled_sqlite_cannot_corrupt_its_log_on_reset() {
        assert!(rusqlite::version_number() >= 3_051_003, "{}", rusqlite::version());
    }
}
