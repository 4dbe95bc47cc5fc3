//! The engine's error for a failed operation of a store.

use std::error::Error;
use std::io;
use std::sync::Arc;

use deadpool_postgres::PoolError;
use engine::events::StoreError;
use rusqlite::ErrorCode;
use tokio::time::error::Elapsed;
use tokio_postgres::error::SqlState;

/// Creates the error of an operation, with its cause.
pub(crate) fn failed(
    operation: &'static str,
    source: impl Into<Box<dyn Error + Send + Sync>>,
) -> StoreError {
    let source = source.into();
    if is_full(source.as_ref()) {
        StoreError::Full {
            operation,
            source: without_repetition(source),
        }
    } else {
        StoreError::Storage {
            operation,
            source: cause(source),
        }
    }
}

/// Returns SQLite's error instead of the one of its library, if the text of the library is only a
/// part of it.
fn without_repetition(source: Box<dyn Error + Send + Sync>) -> Box<dyn Error + Send + Sync> {
    let shared = source
        .downcast_ref::<Arc<rusqlite::Error>>()
        .map(AsRef::as_ref);
    match shared.or_else(|| source.downcast_ref()) {
        Some(rusqlite::Error::SqliteFailure(code, Some(text)))
            if code.to_string().contains(text) =>
        {
            Box::new(*code)
        }
        _ => source,
    }
}

/// Returns the cause of an error. That a disk is full, or the database unavailable, is an
/// [`io::Error`], so that it is recognized without knowing the database: of the kind
/// [`StorageFull`](io::ErrorKind::StorageFull) or [`NotConnected`](io::ErrorKind::NotConnected).
pub(crate) fn cause(source: Box<dyn Error + Send + Sync>) -> Box<dyn Error + Send + Sync> {
    if is_full(source.as_ref()) {
        io::Error::new(io::ErrorKind::StorageFull, source).into()
    } else if is_unavailable(source.as_ref()) {
        io::Error::new(io::ErrorKind::NotConnected, source).into()
    } else {
        source
    }
}

/// Whether an error, or one of its causes, is that a disk has no space left.
pub(crate) fn is_full(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        let postgres = cause.downcast_ref::<tokio_postgres::Error>();
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        matches!(
            io,
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        ) || is_full_for_sqlite(cause)
            || postgres.and_then(tokio_postgres::Error::code) == Some(&SqlState::DISK_FULL)
    })
}

/// Whether an error, or one of its causes, is that the database cannot be reached, or does not
/// respond in time. A file cannot be opened if there are no descriptors left.
fn is_unavailable(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        cause.is::<PoolError>()
            || cause.is::<Elapsed>()
            || cause.downcast_ref().is_some_and(is_disconnected)
            || matches!(
                sqlite_code(cause),
                Some(ErrorCode::CannotOpen | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            )
    })
}

/// Whether a statement has failed because of the connection, the end of PostgreSQL, or its time
/// limit.
fn is_disconnected(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::QUERY_CANCELED,
        ]
        .contains(code),
        None => {
            error.is_closed()
                || error
                    .source()
                    .is_some_and(|source| source.is::<io::Error>())
        }
    }
}

/// Returns an error and its causes.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn sqlite_code(error: &(dyn Error + 'static)) -> Option<ErrorCode> {
    sqlite_error(error)?.sqlite_error_code()
}

/// Whether SQLite has no space for the database or for the index of its write-ahead log.
fn is_full_for_sqlite(error: &(dyn Error + 'static)) -> bool {
    let codes = sqlite_error(error).and_then(rusqlite::Error::sqlite_error);
    codes.is_some_and(|codes| {
        codes.code == ErrorCode::DiskFull
            || codes.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
    })
}

fn sqlite_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rusqlite::Error> {
    let shared = error
        .downcast_ref::<Arc<rusqlite::Error>>()
        .map(AsRef::as_ref);
    shared.or_else(|| error.downcast_ref())
}

#[cfg(test)]
mod tests {
    use engine::errors::format_chain;

    use super::*;

    #[test]
    fn full_disk_is_reported_once() {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
        let text = "database or disk is full".to_owned();
        let error = failed(
            "append an event",
            Arc::new(rusqlite::Error::SqliteFailure(code, Some(text))),
        );
        assert!(matches!(error, StoreError::Full { .. }));
        let text = format_chain(&error);
        assert!(
            text.starts_with("cannot append an event: the storage is full: "),
            "{text}"
        );
        assert_eq!(text.matches("disk is full").count(), 1, "{text}");
    }
}
