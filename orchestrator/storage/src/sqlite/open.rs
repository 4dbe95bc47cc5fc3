//! The file on the disk: who may read it, and how every connection to it is set up.

use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
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

/// Where the logs are.
#[derive(Debug, Clone)]
pub(super) struct Location {
    file: PathBuf,
    durability: Durability,
}

impl Location {
    pub(super) fn new(file: PathBuf, durability: Durability) -> Self {
        Self { file, durability }
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

    /// No URI names and no creation: the path means the file that [`Self::create`] has made.
    fn configured(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        use_write_ahead_log(&connection)?;
        let synchronous = match self.durability {
            Durability::ProcessDeath => "NORMAL",
            Durability::PowerCut => "FULL",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "journal_size_limit", WAL_LIMIT_BYTES)?;
        Ok(connection)
    }
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
